"""Claims on fixed thresholds."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.paper import comparing
from experiments.paper.checks import NO, POINTS, YES, Check, Claim, check, not_run, or_empty
from experiments.paper.experiments import EMNIST, FIXED, OURS, THRESHOLDS
from experiments.paper.measures import ROUNDS, rate
from taciturn.studies.difference import BEHIND, UNDECIDED
from taciturn.studies.results import Results

SAVES = 10.0  # % of clients or upload that count as a saving


def best(results: Mapping[str, Results], ou: str) -> Claim:
    """As printed: "OU client selection outperforms competing methods"."""
    fixed = _beside_adaptive(results)
    return Claim(
        f"`{ou}` is best under fixed thresholds",
        f"ahead in {POINTS}. Thresholds at which more than {100 - SAVES:g} % of the clients of "
        f"`{ou}` speak, by the median over seeds, are left out: hardly anyone is silent there",
        [
            _better(fixed, threshold, ou, other)
            for threshold in THRESHOLDS
            if not _all_speak(fixed, f"{threshold} {ou}")
            for other in ("zero", "ignore")
        ],
    )


def _all_speak(fixed: Results, arm: str) -> bool:
    """Whether hardly any client is silent."""
    return arm in fixed.arms and bool(np.median(rate(fixed, arm)) > 100 - SAVES)


def _better(fixed: Results, threshold: float, ou: str, other: str) -> Check:
    where, what = f"EMNIST, τ = {threshold:g}", f"`{ou}` − `{other}`"
    arms = f"{threshold} {ou}", f"{threshold} {other}"
    if any(arm not in fixed.arms for arm in (*arms, "full")):
        return not_run(where, what)
    return check(where, what, comparing.accuracies(fixed, *arms, ROUNDS))


def save_nothing(results: Mapping[str, Results], names: Sequence[str]) -> Claim:
    """As printed: "fixing the threshold to small values fails to reduce communication […] while
    setting it to large values leads to inaccurate models"."""
    fixed = _beside_adaptive(results)
    which = f" (`{OURS}`)" if OURS in names else ""
    return Claim(
        f"fixed thresholds save nothing or cost accuracy{which}",
        f"saves less than {SAVES:g} %, or is behind `adaptive` with the same stand-in in {POINTS}",
        [_saves_nothing(fixed, threshold, name) for threshold in THRESHOLDS for name in names],
    )


def _saves_nothing(fixed: Results, threshold: float, stand_in: str) -> Check:
    arm, adaptive = f"{threshold} {stand_in}", f"adaptive {stand_in}"
    where, what = f"EMNIST, τ = {threshold:g}", f"`{stand_in}` − `{adaptive}`"
    if any(name not in fixed.arms for name in (arm, adaptive, "full")):
        return not_run(where, what)
    found = comparing.accuracies(fixed, arm, adaptive, ROUNDS)
    share, accuracy = fixed.share(arm, ROUNDS), fixed.arms[arm].at(ROUNDS)
    if np.median(share) > 100 - SAVES or found.word == BEHIND:
        says = YES
    else:
        says = UNDECIDED if found.word == UNDECIDED else NO
    shown = (
        f"{np.median(accuracy):.1f} % at {np.median(share):.0f} % upload (medians); {found.shown}"
    )
    return Check(where, what, shown, found.told(), says)


def _beside_adaptive(results: Mapping[str, Results]) -> Results:
    """The fixed arms, beside full communication and the adaptive arms of the same data."""
    fixed, emnist = or_empty(results, FIXED), or_empty(results, EMNIST)
    others = {n: arm for n, arm in emnist.arms.items() if n == "full" or n.startswith("adaptive")}
    return fixed._replace(arms=others | fixed.arms)

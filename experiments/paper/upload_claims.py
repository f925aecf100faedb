"""Claims on upload: how much is saved, and at what accuracy."""

from collections.abc import Sequence

import numpy as np

from experiments.paper import comparing
from experiments.paper.checks import (
    NO,
    UPLOAD,
    YES,
    Check,
    Claim,
    Measure,
    check,
    figures_of,
    not_run,
    places,
)
from experiments.paper.measures import ROUNDS, TARGET, bytes_to_target, share
from taciturn.studies.difference import BEHIND, MARGIN, SAME, UNDECIDED
from taciturn.studies.results import Results

HALF = 45.0  # % that count as "up to 50 %"
SIMILAR = 3.0  # points of the share of full upload; those that the paper calls similar are nearer


_SHARE = Measure(share, "% of full upload", 2, UPLOAD)


def saves_half(main: Sequence[Results], ou: str) -> Claim:
    """As printed: "up to 50 % while achieving […] competitive (or better) model accuracy"."""
    return Claim(
        f"adaptive `{ou}` saves up to 50 % at the accuracy of full communication",
        f"saves {HALF:g} % or more, and the interval of accuracy − full lies above "
        f"−{MARGIN:g} points. It says no where less is saved, the interval lies below that, or "
        f"signs say behind",
        [_saves(result, f"adaptive{w} {ou}", where) for result, w, where in places(main)],
        any=True,
    )


def _saves(result: Results, arm: str, where: str) -> Check:
    if arm not in result.arms:
        return not_run(where, f"`{arm}`")
    found = comparing.accuracies(result, arm, "full", ROUNDS)
    saving = 100 - float(np.median(result.share(arm, ROUNDS)))
    by_signs = np.isinf(found.high)
    if saving < HALF or found.high < -MARGIN or (by_signs and found.word == BEHIND):
        says = NO
    else:
        says = YES if found.low > -MARGIN else UNDECIDED
    shown = f"saves {saving:.1f} % (median); accuracy − full {found.shown}"
    return Check(where, f"`{arm}`", shown, found.told(), says)


def less_to_target(main: Sequence[Results], ou: str) -> Claim:
    """As printed: "smaller amount of communication to achieve accuracy comparable"."""
    return Claim(
        f"adaptive `{ou}` needs less upload for an accuracy comparable to full communication",
        f"every seed reaches {100 * TARGET:.0f} % of the final accuracy of `full` with the same "
        f"seed, and with less upload than `full`. It says no where a seed never gets there",
        [_less(result, f"adaptive{w} {ou}", where) for result, w, where in places(main)],
    )


def _less(result: Results, arm: str, where: str) -> Check:
    what = f"`{arm}` − `full`, % of the upload of `full` until then"
    if arm not in result.arms:
        return not_run(where, what)
    own, full = comparing.common(result, arm, "full")
    first, second = bytes_to_target(result, arm)[own], bytes_to_target(result, "full")[full]
    never = np.isinf(first)
    if never.any():
        return Check(where, what, f"never there in {comparing.of_all(never)} seeds", "", NO)
    found = comparing.compare(100 * first / second, np.full(len(first), 100.0), digits=1)
    return check(where, what, found, BEHIND, UPLOAD)


def zero_saves_as_much(main: Sequence[Results]) -> Claim:
    """As printed: "has similar communication savings to OU in all cases"."""
    return Claim(
        "`zero` has similar savings to `ou` (adaptive)",
        f"the interval of the difference lies within ±{SIMILAR:g} % of full upload or, by signs, "
        f"enough seeds do. It says no where the interval or enough seeds lie outside; else "
        f"undecided",
        figures_of(main, "zero", ("ou",), _SHARE._replace(margin=SIMILAR), SAME),
    )


def ignore_saves_most(main: Sequence[Results]) -> Claim:
    """As printed: "the `ignore` strategy achieves the highest communication savings"."""
    return Claim(
        "`ignore` saves the most (adaptive)",
        "less in share of full upload",
        figures_of(main, "ignore", ("ou", "zero"), _SHARE, BEHIND),
    )

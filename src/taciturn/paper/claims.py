"""The paper's claims, and whether they hold here."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from taciturn.paper.experiments import (
    ARMS,
    BY_COHORT,
    EMNIST,
    FIXED,
    SHAKESPEARE,
    STAND_INS,
    THRESHOLDS,
)
from taciturn.paper.tables import ROUNDS, thresholds_after_first
from taciturn.studies.difference import difference
from taciturn.studies.results import Results

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"
_SAME = 0.5  # points of accuracy below full communication that count as equal to it
_SAVES = 10.0  # % of upload that count as a saving
_HALF = 45.0  # % that count as "up to 50 %"
_MAIN = (EMNIST.name, SHAKESPEARE.name)


class Claim(NamedTuple):
    """A claim, the verdict, and the numbers that say so."""

    text: str
    verdict: str
    because: str


def verdict(checks: Sequence[bool]) -> str:
    """All, some or none."""
    return HOLDS if all(checks) else IN_PART if any(checks) else FAILS


def claims(results: Mapping[str, Results], measured: Mapping[str, Any]) -> list[Claim]:
    """Every claim; `results` by the names of experiments, `measured` of the weights' paths."""
    main = {name: results[name] for name in _MAIN}
    return [
        *(_beats_others(main, ou) for ou in ("ou", "ou constrained")),
        *(_is_stable(main, ou) for ou in ("ou", "ou constrained")),
        _adaptive_beats_random(main),
        *(_saves_half(main, ou) for ou in ("ou", "ou constrained")),
        _fixed_fails(results[FIXED.name], results[EMNIST.name]),
        _paths_look_like_ou(measured),
        _thresholds_differ(main),
        _more_clients_help([results[e.name] for e in BY_COHORT.values()]),
    ]


def _beats_others(main: Mapping[str, Results], ou: str) -> Claim:
    parts, checks = [], []
    for result in main.values():
        for other in ("zero", "ignore"):
            d = result.gap(f"adaptive {ou}", f"adaptive {other}", ROUNDS)
            checks.append(d.ahead)
            parts.append(f"{result.experiment.title} − {other} {d}")
        parts[-1] += _collapses(result, f"adaptive {ou}")
    return Claim(
        f"`{ou}` beats `zero` and `ignore` (adaptive, accuracy after {ROUNDS} rounds)",
        verdict(checks),
        "; ".join(parts),
    )


def _collapses(result: Results, arm: str) -> str:
    """In how many seeds an arm ends below half of what full communication reaches."""
    fallen = result.arms[arm].at(ROUNDS) < result.arms["full"].at(ROUNDS) / 2
    return f" (it collapses in {fallen.sum()} of {len(fallen)} seeds)" if fallen.any() else ""


def _is_stable(main: Mapping[str, Results], ou: str) -> Claim:
    parts, checks = [], []
    for result in main.values():
        swings = [_swings(result, f"adaptive {name}") for name in (ou, "ignore")]
        paths = [thresholds_after_first(result, f"adaptive {name}") for name in (ou, "ignore")]
        spreads = [path.std(1) for path in paths]
        checks += [difference(swings[1], swings[0]).ahead, difference(spreads[1], spreads[0]).ahead]
        parts.append(
            f"{result.experiment.title}: accuracy swings by {swings[0].mean():.2f} points from "
            f"test to test in the second half, `ignore` by {swings[1].mean():.2f}; the threshold's "
            f"deviation over rounds is {spreads[0].mean():.3f}, `ignore`'s {spreads[1].mean():.3f}"
        )
    return Claim(f"`{ou}` is stable where `ignore` is not", verdict(checks), ". ".join(parts))


def _swings(result: Results, arm: str) -> np.ndarray:
    """The deviation of accuracy's change from test to test, in the second half; (seeds,)."""
    last = min(ROUNDS, result.rounds)
    shown = (result.arms[arm].tested > last // 2) & (result.arms[arm].tested <= last)
    return np.diff(result.arms[arm].accuracy[:, shown], axis=1).std(1)


def _adaptive_beats_random(main: Mapping[str, Results]) -> Claim:
    parts, checks = [], []
    for result in main.values():
        for name in STAND_INS:
            d = result.gap(f"adaptive {name}", f"random {name}", ROUNDS)
            checks.append(d.ahead)
            parts.append(f"{result.experiment.title} {name} {d}")
    return Claim("adaptive beats random at the same rate", verdict(checks), "; ".join(parts))


def _saves_half(main: Mapping[str, Results], ou: str) -> Claim:
    parts, saved = [], [0.0]
    for result in main.values():
        d = result.gap(f"adaptive {ou}", "full", ROUNDS)
        saving = 100 - float(result.share(f"adaptive {ou}", ROUNDS).mean())
        if d.mean - d.half > -_SAME:
            saved.append(saving)
        parts.append(f"{result.experiment.title}: saves {saving:.1f} %, accuracy − full {d}")
    return Claim(
        f"`{ou}` saves up to 50 % at equal accuracy (holds: {_HALF:g} % or more on a data set "
        f"where the interval of accuracy − full lies above −{_SAME:g}; in part: {_SAVES:g} %)",
        HOLDS if max(saved) >= _HALF else IN_PART if max(saved) >= _SAVES else FAILS,
        "; ".join(parts),
    )


def _fixed_fails(fixed: Results, emnist: Results) -> Claim:
    adaptive = [arm for arm in ARMS if arm.startswith("adaptive")]
    best = max(adaptive, key=lambda arm: float(emnist.arms[arm].at(ROUNDS).mean()))
    parts, checks = [], []
    for threshold in THRESHOLDS:
        texts = []
        for name in STAND_INS:
            arm = f"{threshold} {name}"
            accuracy, share = fixed.arms[arm].at(ROUNDS), float(fixed.share(arm, ROUNDS).mean())
            behind = difference(accuracy, emnist.arms[best].at(ROUNDS)).behind
            checks.append(behind or share > 100 - _SAVES)
            texts.append(f"{name} {accuracy.mean():.1f} % at {share:.0f} %")
        parts.append(f"τ = {threshold:g}: {', '.join(texts)}")
    return Claim(
        "fixed thresholds save nothing or cost accuracy (EMNIST)",
        verdict(checks),
        f"{sum(checks)} of {len(checks)} save less than {_SAVES:g} % or are behind the best "
        f"adaptive arm, `{best}` (accuracy at share uploaded): " + "; ".join(parts),
    )


def _paths_look_like_ou(measured: Mapping[str, Any]) -> Claim:
    normal = measured["increments_normal_share"]
    tens = measured["increments_of_ten_steps_normal_share"]
    pulled = measured["unit_root_rejected_share"]
    late = measured["unit_root_rejected_in_last_epoch_share"]
    shares = (normal, pulled, late)
    return Claim(
        "weights under SGD move like an OU process (Fashion-MNIST; holds: nine of ten weights pass "
        "each test; in part: half pass one)",
        HOLDS if min(shares) >= 90 else IN_PART if max(*shares, tens) >= 50 else FAILS,
        f"Increments of {normal:.0f} % of the weights pass for normal (Jarque–Bera, 5 %; last "
        f"epoch), of ten steps at a time {tens:.0f} %; the median excess kurtosis is "
        f"{measured['increments_kurtosis_median']:.2f}. A pull to a mean is significant "
        f"(Dickey–Fuller, 5 %) for {pulled:.0f} % over all {measured['steps']} steps, where the "
        f"way from the start counts as pull, and for {late:.0f} % in the last epoch",
    )


def _thresholds_differ(main: Mapping[str, Results]) -> Claim:
    parts, checks = [], []
    for result in main.values():
        paths = {name: thresholds_after_first(result, f"adaptive {name}")
                 for name in ("ou", "zero", "ignore")}  # fmt: skip
        means = {name: path.mean(1) for name, path in paths.items()}
        spreads = {name: path.std(1) for name, path in paths.items()}
        checks += [
            difference(means["ignore"], means["ou"]).ahead,
            difference(spreads["ignore"], spreads["ou"]).ahead,
            difference(spreads["ignore"], spreads["zero"]).ahead,
        ]
        figures = ", ".join(f"{n} {means[n].mean():.3f} ± {spreads[n].mean():.3f}" for n in paths)
        parts.append(f"{result.experiment.title}: {figures}")
    return Claim(
        "`ignore` has higher and less steady thresholds than `ou` and `zero`",
        verdict(checks),
        "Mean ± deviation over rounds. " + "; ".join(parts),
    )


def _more_clients_help(by_cohort: Sequence[Results]) -> Claim:
    few, *_, many = by_cohort
    parts, checks = [], []
    for arm in ARMS:
        accuracy = [r.arms[arm].accuracy[:, -1] for r in by_cohort]
        checks.append(difference(accuracy[-1], accuracy[0]).ahead)
        parts.append(f"{arm} {' / '.join(f'{a.mean():.1f}' for a in accuracy)}")
    sizes = " / ".join(str(r.cohort) for r in by_cohort)
    return Claim(
        f"more clients help every arm (Shakespeare, N = {few.cohort} to {many.cohort})",
        verdict(checks),
        f"Accuracy at N = {sizes}: " + "; ".join(parts),
    )

"""Claims on how steady training and thresholds are."""

from collections.abc import Sequence

import numpy as np

from experiments.paper import comparing
from experiments.paper.checks import (
    HEIGHT,
    NO,
    YES,
    Check,
    Claim,
    Measure,
    figures_of,
    not_run,
    places,
)
from experiments.paper.measures import (
    ROUNDS,
    late_spread,
    mean_threshold,
    swings,
    thresholds_after_first,
)
from taciturn.studies.difference import AHEAD, BEHIND
from taciturn.studies.results import Results

_SWING_RULE = (
    "the swing of accuracy (deviation of its change from test to test in the second half of the "
    "rounds, points)"
)
_SPREAD_RULE = (
    "the threshold's deviation over the second half of the rounds (in the first ones it still "
    "falls)"
)


_SWING = Measure(swings, "swing of accuracy", 3, HEIGHT)
_SPREAD = Measure(late_spread, "threshold's deviation", 4, HEIGHT)
_MEAN = Measure(mean_threshold, "mean threshold", 4, HEIGHT)


def is_stable(main: Sequence[Results], ou: str) -> Claim:
    """As printed: "without rendering the convergence unstable"."""
    return Claim(
        f"`{ou}` is stable where `ignore` is not (adaptive)",
        f"lower in {_SWING_RULE} and in {_SPREAD_RULE}",
        [
            *figures_of(main, ou, ("ignore",), _SWING, BEHIND),
            *figures_of(main, ou, ("ignore",), _SPREAD, BEHIND),
        ],
    )


def zero_is_smooth(main: Sequence[Results]) -> Claim:
    """As printed: "`OU` and `zero` help smooth the training process"."""
    return Claim(
        "`zero` smooths training where `ignore` does not (adaptive)",
        f"lower in {_SWING_RULE}",
        figures_of(main, "zero", ("ignore",), _SWING, BEHIND),
    )


def higher_thresholds(main: Sequence[Results]) -> Claim:
    """As printed: "The thresholds may take on larger values"."""
    return Claim(
        "`ignore` has higher thresholds than `ou` and `zero` (adaptive)",
        "higher in the mean threshold over rounds",
        figures_of(main, "ignore", ("ou", "zero"), _MEAN, AHEAD),
    )


def less_steady_thresholds(main: Sequence[Results]) -> Claim:
    """As printed: "`OU` and `zero` have a significantly more stable schedule of thresholds"."""
    return Claim(
        "`ignore` has less steady thresholds than `ou` and `zero` (adaptive)",
        f"higher in {_SPREAD_RULE}",
        figures_of(main, "ignore", ("ou", "zero"), _SPREAD, AHEAD),
    )


def falls_to_zero(main: Sequence[Results]) -> Claim:
    """As printed: "may drive the threshold in some rounds to 0 (or to negative values […])"."""
    return Claim(
        "the threshold of `ignore` falls to 0 or below, and those of `ou` and `zero` less often "
        "(adaptive)",
        f"τ ≤ 0 in a larger share of the rounds from 2 to {ROUNDS} than with `ou` and with `zero`; "
        f"else no",
        [_falls(result, f"adaptive{w} ignore", where) for result, w, where in places(main)],
        any=True,
    )


def _falls(result: Results, arm: str, where: str) -> Check:
    what, others = f"`{arm}`", [arm.replace("ignore", name) for name in ("ou", "zero")]
    if not {arm, *others} <= result.arms.keys():
        return not_run(where, what)
    fell = {name: thresholds_after_first(result, name) <= 0 for name in (arm, *others)}
    seeds = comparing.of_all(np.any(fell[arm], axis=1))
    lowest = f"{thresholds_after_first(result, arm).min():.4f}".replace("-", "−")
    counts = {name: f"in {int(some.sum())} of {some.size} rounds" for name, some in fell.items()}
    shown = f"{counts[arm]} and {seeds} seeds; lowest τ {lowest}"
    shown = "; ".join([shown, *(f"`{name}` {counts[name]}" for name in others)])
    more = all(fell[arm].mean() > fell[name].mean() for name in others)
    return Check(where, what, shown, "", YES if more else NO)

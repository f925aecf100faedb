"""Claims on how fast arms learn: rounds until a share of what full communication ends with."""

from collections.abc import Sequence

import numpy as np

from experiments.paper.checks import NO, TIME, YES, Check, Claim, check, not_run, places
from experiments.paper.comparing import Comparison, common, compare, of_all
from experiments.paper.measures import ROUNDS, TARGET, rounds_to_target
from taciturn.studies.difference import AHEAD, UNDECIDED
from taciturn.studies.results import Results

SLOWER = 10.0  # rounds to the target within which two arms converge alike
_GOAL = f"{100 * TARGET:.0f} % of the final accuracy of `full` with the same seed"


def converges_alike(main: Sequence[Results], ou: str) -> Claim:
    """As printed: "achieving the same rate of convergence"."""
    return Claim(
        f"adaptive `{ou}` converges at the rate of full communication",
        f"every seed reaches {_GOAL}, and the interval of the difference in rounds lies below "
        f"+{SLOWER:g}. It says no where a seed never gets there or the interval lies above "
        f"+{SLOWER:g}; else undecided. Level is within ±{SLOWER:g} rounds",
        [_as_fast(result, f"adaptive{w} {ou}", where) for result, w, where in places(main)],
    )


def _as_fast(result: Results, arm: str, where: str) -> Check:
    what = f"`{arm}` − `full`, rounds"
    if arm not in result.arms:
        return not_run(where, what)
    never = np.isinf(_both(result, arm)[0])
    if never.any():
        return Check(where, what, f"never there in {of_all(never)} seeds", TIME[AHEAD], NO)
    found = _compared(result, arm)
    says = YES if found.high < SLOWER else NO if found.low > SLOWER else UNDECIDED
    return Check(where, what, found.shown, found.told(TIME), says)


def zero_is_slow(main: Sequence[Results]) -> Claim:
    """As printed: "by zeroing out clients' updates convergence is considerably slowed down"."""
    return Claim(
        "`zero` slows convergence down (adaptive)",
        f"the interval of the difference in rounds until {_GOAL} lies above 0. Where a seed never "
        f"gets there signs decide, and it counts as round {ROUNDS + 1}. Level is within "
        f"±{SLOWER:g} rounds",
        [_slower(result, f"adaptive{w} zero", where) for result, w, where in places(main)],
    )


def _slower(result: Results, arm: str, where: str) -> Check:
    what = f"`{arm}` − `full`, rounds"
    if arm not in result.arms:
        return not_run(where, what)
    return check(where, what, _compared(result, arm), AHEAD, TIME)


def _compared(result: Results, arm: str) -> Comparison:
    """An arm's rounds to the target against those of full communication."""
    values = _both(result, arm)
    never = any(np.isinf(value).any() for value in values)
    first, second = (np.where(np.isinf(value), ROUNDS + 1, value) for value in values)
    return compare(first, second, SLOWER, never, digits=1)


def _both(result: Results, arm: str) -> tuple[np.ndarray, np.ndarray]:
    """Rounds to the target of an arm and of full communication, of the seeds that both have."""
    own, full = common(result, arm, "full")
    return rounds_to_target(result, arm)[own], rounds_to_target(result, "full")[full]

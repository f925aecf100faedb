"""Figures of runs that tables and pictures share; (seeds,) where nothing else is said.

A run has *collapsed* where it ends more than `COLLAPSE` points below full communication with the
same seed. It has also collapsed where it ends at most `PLATEAU` points above a model that always
gives the most frequent answer, and more than `PLATEAU` below full communication, which may be on
that plateau itself.
"""

import numpy as np
from scipy import stats

from experiments.common.results import Arm, Results
from taciturn.summary import difference

ROUNDS = 100  # of the main table
TARGET = 0.9  # of the final accuracy of full communication, to which bytes and rounds are counted
COLLAPSE = 5.0  # points of accuracy below full communication
PLATEAU = 1.0  # points of accuracy around a constant answer, or below full communication


def collapsed(result: Results, arm: str, rounds: int = ROUNDS) -> np.ndarray:
    """Which runs of an arm collapsed, of the seeds that full communication has too."""
    own, full = result.common(arm, "full")
    ends, goal = result.arms[arm].at(rounds)[own], result.arms["full"].at(rounds)[full]
    constant = result.data.get("constant", -np.inf)  # some files do not say what data they had
    stuck = (ends <= constant + PLATEAU) & (ends < goal - PLATEAU)
    return stuck | (ends < goal - COLLAPSE)


def compared(result: Results, first: str, second: str, rounds: int = ROUNDS) -> str:
    """first − second in points of accuracy, over the seeds that both have.

    The mean and half of its 95 % interval. Where runs collapsed, a mean lies where no run is: there
    it is the median, and in how many seeds the first is ahead, with the p-value of the sign test.
    """
    one, other = result.common(first, second)
    d = result.arms[first].at(rounds)[one] - result.arms[second].at(rounds)[other]
    if not any(collapsed(result, arm, rounds).any() for arm in (first, second)):
        return f"{difference(d, np.zeros_like(d))}, n = {len(d)}"
    more, fewer = int((d > 0).sum()), int((d < 0).sum())
    p = stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
    shown = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    return f"{np.median(d):+.2f}, {more} of {len(d)}, {shown}"


def thresholds(arm: Arm) -> np.ndarray:
    """The thresholds by round, (seeds, rounds); in the first one everyone speaks."""
    found = arm.figure("threshold")
    assert found is not None, f"{arm.policy} has no threshold"
    return found


def mean_threshold(result: Results, arm: str) -> np.ndarray:
    """Over all rounds but the first."""
    return thresholds(result.arms[arm])[:, 1:ROUNDS].mean(1)


def threshold_spread(result: Results, arm: str) -> np.ndarray:
    """The deviation of the threshold over all rounds but the first."""
    return thresholds(result.arms[arm])[:, 1:ROUNDS].std(1)


def late_spread(result: Results, arm: str) -> np.ndarray:
    """The deviation of the threshold over the second half of the rounds."""
    return thresholds(result.arms[arm])[:, ROUNDS // 2 : ROUNDS].std(1)


def swing(result: Results, arm: str) -> np.ndarray:
    """The deviation of accuracy's change from test to test, in the second half of the rounds."""
    own = result.arms[arm]
    late = (own.tested > ROUNDS // 2) & (own.tested <= ROUNDS)
    return np.diff(own.accuracy[:, late], axis=1).std(1)


def reached(result: Results, arm: str) -> tuple[float, int] | None:
    """Bytes and rounds until the median over seeds has the target; None where it never has."""
    goal = TARGET * float(np.median(result.arms["full"].at(ROUNDS)))
    own = result.arms[arm]
    found = np.flatnonzero((np.median(own.accuracy, axis=0) >= goal) & (own.tested <= ROUNDS))
    if not len(found):
        return None
    return float(np.median(own.uploaded[:, found[0]])), int(own.tested[found[0]])


def rejected(result: Results, arm: str) -> float | None:
    """Replies that were not finite, in % of all; None where files do not say."""
    found = result.arms[arm].figure("rejected")
    return None if found is None else float(100 * found.mean() / (result.rounds * result.cohort))

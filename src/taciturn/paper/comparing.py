"""Two arms compared, seed by seed: ahead, behind, level or undecided.

Both arms of a comparison have the same clients and batches, so differences are taken seed by seed.

- *ahead*, *behind*: the 95 % interval of the mean difference (Student's t) lies on one side of 0.
- *level*: it has 0 in it and lies within ±`margin`, which is an equivalence test, two one-sided
  tests at 2.5 % each.
- *undecided*: neither. That is not *level*: the seeds cannot tell.

A run has *collapsed* where it ends more than `COLLAPSE` points below full communication with the
same seed. Where runs of a comparison have, a mean lies where no run is, and its interval says
little: signs and the median are used there, ahead and behind by the two-sided sign test at 5 %.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from taciturn.studies.difference import AHEAD, BEHIND, MARGIN, UNDECIDED, difference
from taciturn.studies.results import Results

COLLAPSE = 5.0  # points of accuracy below full communication
LEVEL = 0.05  # of the sign test


class Comparison(NamedTuple):
    """A difference of two arms, over seeds.

    Attributes:
      word: ahead, behind, level or undecided.
      shown: the numbers that say so.
      low, high: the ends of the interval of the mean; infinite where there is none.
    """

    word: str
    shown: str
    low: float = -np.inf
    high: float = np.inf


def compare(
    first: np.ndarray, second: np.ndarray, margin: float = 0.0, signs: bool = False, digits: int = 2
) -> Comparison:
    """first − second, seed by seed; see the module's text for `margin` and `signs`."""
    d = np.asarray(first, float) - np.asarray(second, float)
    if signs:
        return _by_signs(d, digits)
    found = difference(d, np.zeros_like(d))
    n, low, high = len(d), found.low, found.high
    if n < 2:
        return Comparison(UNDECIDED, f"{d[0]:+.{digits}f}, one seed")
    shown = f"{found.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}], n = {n}"
    return Comparison(found.word(margin), shown, low, high)


def _by_signs(d: np.ndarray, digits: int) -> Comparison:
    more, fewer = int((d > 0).sum()), int((d < 0).sum())
    p = stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
    word = UNDECIDED if p > LEVEL else AHEAD if more > fewer else BEHIND
    shown = f"median {np.median(d):+.{digits}f}, above 0 in {more} of {len(d)} seeds, p = {p:.2g}"
    return Comparison(word, shown)


def accuracies(
    result: Results, first: str, second: str, rounds: int, margin: float = MARGIN
) -> Comparison:
    """Two arms' accuracies, over the seeds that both have; by signs where a run collapsed."""
    one, other = common(result, first, second)
    fallen = any(collapsed(result, arm, rounds, len(one)).any() for arm in (first, second))
    return compare(
        result.arms[first].at(rounds)[one],
        result.arms[second].at(rounds)[other],
        margin,
        signs=fallen,
    )


def common(result: Results, first: str, second: str) -> tuple[list[int], list[int]]:
    """Where the seeds that both arms have lie in each."""
    one, other = result.arms[first].seeds, result.arms[second].seeds
    both = [seed for seed in one if seed in other]
    return [one.index(seed) for seed in both], [other.index(seed) for seed in both]


def collapsed(result: Results, arm: str, rounds: int, seeds: int | None = None) -> np.ndarray:
    """Which runs of an arm collapsed; (seeds,).

    Of the first `seeds` seeds, or of all that full communication has too.
    """
    own, full = (where[:seeds] for where in common(result, arm, "full"))
    return result.arms[arm].at(rounds)[own] < result.arms["full"].at(rounds)[full] - COLLAPSE


def of_all(which: np.ndarray) -> str:
    """How many, of how many."""
    return f"{int(which.sum())} of {len(which)}"

"""Two arms compared, seed by seed: ahead, behind, level or undecided.

Both arms of a comparison have the same clients and batches, so differences are taken seed by seed.

- *ahead*, *behind*: the 95 % interval of the mean difference (Student's t) lies on one side of 0.
- *level*: it has 0 in it and lies within ±`margin`, which is an equivalence test, two one-sided
  tests at 2.5 % each.
- *undecided*: neither. That is not *level*: the seeds cannot tell.

A run has *collapsed* where it ends more than `COLLAPSE` points below full communication with the
same seed. It has also collapsed where it ends at most `PLATEAU` points above a model that always
gives the most frequent answer, and more than `PLATEAU` below full communication, which may be on
that plateau itself. Where runs of a comparison have collapsed, a mean lies where no run is, and its
interval says little: signs and the median are used there, ahead and behind by the two-sided sign
test at 5 %, in which seeds without a difference do not count. By the same test a difference lies
within a margin, or beyond it, if that is so in enough seeds.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats

from taciturn.studies.difference import AHEAD, BEHIND, MARGIN, UNDECIDED, difference
from taciturn.studies.results import Results

COLLAPSE = 5.0  # points of accuracy below full communication
PLATEAU = 1.0  # points of accuracy around a constant answer, or below full communication
LEVEL = 0.05  # of the sign test
_MOST_DIGITS = 8


class Comparison(NamedTuple):
    """A difference of two arms, over seeds.

    Attributes:
      word: ahead, behind, level or undecided.
      shown: the numbers that say so.
      low, high: the ends of the interval of the mean; infinite where there is none.
      margin: within which arms are level.
      inside, outside: whether the difference surely lies within the margin, or beyond it.
    """

    word: str
    shown: str
    low: float = -np.inf
    high: float = np.inf
    margin: float = 0.0
    inside: bool = False
    outside: bool = False

    def told(self, names: Mapping[str, str] | None = None) -> str:
        """The word for people, by other names for ahead and behind if there are; with a remark
        where the difference is sure, and surely smaller than the margin."""
        word = (names or {}).get(self.word, self.word)
        small = self.word in (AHEAD, BEHIND) and self.inside
        return f"{word}, by less than {self.margin:g}" if small else word


def compare(
    first: np.ndarray, second: np.ndarray, margin: float = 0.0, signs: bool = False, digits: int = 2
) -> Comparison:
    """first − second, seed by seed; see the module's text for `margin` and `signs`."""
    d = np.asarray(first, float) - np.asarray(second, float)
    if signs:
        return _by_signs(d, digits, margin)
    found = difference(d, np.zeros_like(d))
    n, low, high = len(d), found.low, found.high
    if n < 2:
        return Comparison(UNDECIDED, f"{signed(d[0], digits)}, one seed", margin=margin)
    digits = _enough(digits, (low, high), (0.0, -margin, margin))
    ends = f"[{signed(low, digits)}, {signed(high, digits)}]"
    shown = f"{signed(found.mean, digits)} {ends}, n = {n}"
    inside, outside = -margin < low and high < margin, low > margin or high < -margin
    return Comparison(found.word(margin), shown, low, high, margin, inside, outside)


def _by_signs(d: np.ndarray, digits: int, margin: float) -> Comparison:
    more, fewer = int((d > 0).sum()), int((d < 0).sum())
    word, p = _sign_test(more, fewer)
    median = float(np.median(d))
    shown = (
        f"median {signed(median, _enough(digits, (median,), (0.0,)))}, above 0 in {more} and below "
        f"in {fewer} of {len(d)} seeds, p {'< 0.0001' if p < 1e-4 else f'= {p:.2g}'}"
    )
    if not margin:
        return Comparison(word, shown)
    near = int((np.abs(d) < margin).sum())
    inside, _ = _sign_test(near, len(d) - near)
    return Comparison(
        word,
        f"{shown}; within ±{margin:g} in {near}",
        margin=margin,
        inside=inside == AHEAD,
        outside=inside == BEHIND and word != UNDECIDED,
    )


def _sign_test(more: int, fewer: int) -> tuple[str, float]:
    """Whether one sign is surely the more frequent one, and the two-sided p-value."""
    p = float(stats.binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
    return UNDECIDED if p > LEVEL else AHEAD if more > fewer else BEHIND, p


def signed(value: float, digits: int) -> str:
    """A difference for people."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _enough(digits: int, ends: Collection[float], limits: Collection[float]) -> int:
    """As many digits as it takes to see on which side of every limit the ends lie."""
    while digits < _MOST_DIGITS and any(
        end != limit and round(end, digits) == limit for end in ends for limit in limits
    ):
        digits += 1
    return digits


def accuracies(
    result: Results, first: str, second: str, rounds: int, margin: float = MARGIN
) -> Comparison:
    """Two arms' accuracies, over the seeds that both have; by signs where a run collapsed."""
    return figures(
        result,
        (first, second),
        (result.arms[first].at(rounds), result.arms[second].at(rounds)),
        rounds,
        margin,
    )


def figures(
    result: Results,
    arms: tuple[str, str],
    values: tuple[np.ndarray, np.ndarray],
    rounds: int,
    margin: float = 0.0,
    digits: int = 2,
) -> Comparison:
    """Figures of two arms, over the seeds that both have; by signs where a run collapsed."""
    one, other = common(result, *arms)
    seeds = [result.arms[arms[0]].seeds[i] for i in one]
    fallen = any(collapsed(result, arm, rounds, seeds).any() for arm in arms)
    return compare(values[0][one], values[1][other], margin, fallen, digits)


def common(result: Results, first: str, second: str) -> tuple[list[int], list[int]]:
    """Where the seeds that both arms have lie in each."""
    one, other = result.arms[first].seeds, result.arms[second].seeds
    both = [seed for seed in one if seed in other]
    return [one.index(seed) for seed in both], [other.index(seed) for seed in both]


def collapsed(
    result: Results, arm: str, rounds: int, seeds: Collection[int] | None = None
) -> np.ndarray:
    """Which runs of an arm collapsed, of these seeds or all, that full communication has too."""
    own, full = common(result, arm, "full")
    ends, goal = result.arms[arm].at(rounds)[own], result.arms["full"].at(rounds)[full]
    asked = [seeds is None or result.arms[arm].seeds[i] in seeds for i in own]
    constant = result.data.get("constant", -np.inf)  # not in old files
    stuck = (ends <= constant + PLATEAU) & (ends < goal - PLATEAU)
    return (stuck | (ends < goal - COLLAPSE))[asked]


def of_all(which: np.ndarray) -> str:
    """How many, of how many."""
    return f"{int(which.sum())} of {len(which)}"

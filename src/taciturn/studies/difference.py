"""Differences between two arms, seed by seed, since both have the same clients and batches.

*Ahead* and *behind* mean that the 95 % interval of the mean (Student's t) leaves zero out; *level*
that it has zero in it and lies within a margin (an equivalence test); *undecided* is the rest.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

MARGIN = 0.5  # points of accuracy within which arms are level
AHEAD, BEHIND, SAME, UNDECIDED = "ahead", "behind", "level", "undecided"


class Difference(NamedTuple):
    """Of two arms, over seeds: its mean and half the width of its 95 % interval."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def ahead(self) -> bool:
        return self.low > 0

    def word(self, margin: float = MARGIN) -> str:
        if self.ahead:
            return AHEAD
        if self.high < 0:
            return BEHIND
        return SAME if -margin < self.low and self.high < margin else UNDECIDED

    def signed(self) -> str:
        """The mean, and half the width where there are several seeds."""
        return f"{self.mean:+.2f}" + f" ± {self.half:.2f}" * bool(np.isfinite(self.half))

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f} points ({self.word()})".replace("-", "−")


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """first − second, seed by seed."""
    d = np.asarray(first) - np.asarray(second)
    count = len(d)
    if count < 2:
        return Difference(float(d.mean()), np.inf)
    half = stats.t.ppf(0.975, count - 1) * d.std(ddof=1) / np.sqrt(count)
    return Difference(float(d.mean()), float(half))

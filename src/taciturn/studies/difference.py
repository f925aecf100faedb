"""Differences between two arms, seed by seed, since both have the same clients and batches.

*Ahead* and *behind* mean that the 95 % interval of the mean (Student's t) leaves zero out; *level*
that it has zero in it and is within ±0.5 points (an equivalence test); *undecided* is the rest.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

MARGIN = 0.5  # points of accuracy within which arms are level


class Difference(NamedTuple):
    """Of two arms, over seeds: its mean and half the width of its 95 % interval."""

    mean: float
    half: float

    @property
    def ahead(self) -> bool:
        return self.mean - self.half > 0

    @property
    def behind(self) -> bool:
        return self.mean + self.half < 0

    @property
    def word(self) -> str:
        if self.ahead or self.behind:
            return "ahead" if self.ahead else "behind"
        return "level" if abs(self.mean) + self.half <= MARGIN else "undecided"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f} points ({self.word})"


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """first − second, seed by seed."""
    d = np.asarray(first) - np.asarray(second)
    count = len(d)
    if count < 2:
        return Difference(float(d.mean()), np.inf)
    half = stats.t.ppf(0.975, count - 1) * d.std(ddof=1) / np.sqrt(count)
    return Difference(float(d.mean()), float(half))

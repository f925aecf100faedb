"""The difference between two arms, taken seed by seed: both have the same clients and batches."""

from typing import NamedTuple

import numpy as np
from scipy import stats

MARGIN = 0.5  # points of accuracy within which two arms count as level


class Difference(NamedTuple):
    """Of two arms, over seeds: its mean and half the width of its 95 % interval."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + f" ± {self.half:.2f}" * bool(np.isfinite(self.half))


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """first − second, seed by seed."""
    d = np.asarray(first) - np.asarray(second)
    count = len(d)
    if count < 2:
        return Difference(float(d.mean()), np.inf)
    half = stats.t.ppf(0.975, count - 1) * d.std(ddof=1) / np.sqrt(count)
    return Difference(float(d.mean()), float(half))

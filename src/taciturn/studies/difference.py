"""Figures over seeds, and differences between two arms.

Differences are taken seed by seed, since both arms have the same clients and batches.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

MARGIN = 0.5  # points of accuracy within which two arms count as level


class Spread(NamedTuple):
    """A figure over seeds, written as mean ± standard deviation."""

    values: np.ndarray
    digits: int = 2

    @property
    def deviation(self) -> float | None:
        """Of the sample; None of a single seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def __str__(self) -> str:
        text, std = f"{np.mean(self.values):.{self.digits}f}", self.deviation
        return text if std is None else f"{text} ± {std:.{self.digits}f}"


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

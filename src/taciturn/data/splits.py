"""Splits of data that have no clients of their own."""

import numpy as np


def dirichlet(
    labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """The owner of each example: every label is cut into shares drawn from Dir(alpha).

    References:
      Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution, 2019.
    """
    owners = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        owners[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return owners

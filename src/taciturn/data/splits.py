"""Data without clients of their own, shared out: evenly, or so that clients have few labels."""

import numpy as np


def share_out(labels: np.ndarray, clients: int, split: str, alpha: float, seed: int) -> np.ndarray:
    """Who gets each example, for `split` of `iid` or `dirichlet`."""
    rng = np.random.default_rng(seed)
    if split == "iid":
        return rng.permutation(np.arange(len(labels)) % clients)
    return dirichlet(labels, clients, alpha, rng)


def dirichlet(
    labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Who gets each example: every label is cut into shares drawn from Dir(alpha).

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

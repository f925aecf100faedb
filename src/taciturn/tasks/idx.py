"""Fashion-MNIST and other sets in MNIST's idx layout, split over clients evenly or by label."""

import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from taciturn.checks import choice, number, whole
from taciturn.data import sources
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, grouped
from taciturn.data.idx import PARTS, find, read
from taciturn.errors import DataError, InputError
from taciturn.tasks.files import given, network
from taciturn.tasks.task import Task

log = logging.getLogger("taciturn")


def fashion(
    data: str | Path | None = None,
    split: str = "iid",
    alpha: float = 0.3,
    clients: int = 100,
    seed: int = 0,
) -> Task:
    """Fashion-MNIST, 10 classes of clothing, with a 784-128-10 network.

    Args:
      data: the folder of the four idx files; by default TACITURN_DATA, the user's cache folder, or
        a download.
      split: `iid`, even and at random, or `dirichlet`: each label's examples are shared out by a
        draw of Dir(alpha).
      alpha: small means that clients have few labels.
      clients: how many clients there are; those who get nothing are left out.
      seed: of the split.
    """
    files = sources.find_or_fetch("fashion", data)
    dataset = cached("fashion", files, lambda: read(files, classes=10))
    return _task("fashion", dataset, split, alpha, clients, seed)


def idx(
    data: str | Path | None = None,
    split: str = "iid",
    alpha: float = 0.3,
    clients: int = 100,
    seed: int = 0,
) -> Task:
    """Any images and labels in MNIST's idx layout (`--data`), with a one-layer network.

    Args:
      data: the folder of `train-images…`, `train-labels…`, `t10k-images…` and `t10k-labels…` (or
        `test-…`), packed with gzip or not.
      split, alpha, clients, seed: as for `fashion`.
    """
    folder = given("idx", data)
    if not folder.is_dir():
        raise DataError(f"`data` must be a folder, and {folder} is none.")
    files = [find(folder, part) for part in PARTS]
    dataset = cached("idx", files, lambda: read(files))
    return _task("idx", dataset, split, alpha, clients, seed)


def _task(name: str, dataset: Dataset, split: str, alpha: float, clients: int, seed: int) -> Task:
    labels, rng = dataset.train["y"], np.random.default_rng(whole("seed", seed, 0))
    if choice("split", split, ("iid", "dirichlet")) == "dirichlet":
        alpha = number("alpha", alpha, 1e-6, math.inf, "(0, inf)")
    if whole("clients", clients) > len(labels):
        raise InputError(f"`clients` must be at most {len(labels)} examples, got {clients}.")
    if split == "dirichlet":
        owners = dirichlet(labels, clients, alpha, rng)
    else:
        owners = rng.permutation(np.arange(len(labels)) % clients)
    train = grouped(name, dataset.train, owners, dataset.counts)
    if gone := clients - len(train.rows):
        log.warning("%s: %d of %d clients got no examples and are left out.", name, gone, clients)
    return network(name, replace(train, names=(), test=dataset.test), 128)


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

"""Data as they were read: examples of named clients, one after another in flat arrays."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taciturn.errors import DataError

log = logging.getLogger("taciturn")

Examples = Mapping[str, np.ndarray]  # the arrays of one client, one entry of each an example


@dataclass(frozen=True)
class Dataset:
    """What a reader returns and the cache keeps.

    Attributes:
      names: of the clients, in order.
      train: arrays whose first axis runs over all examples of all clients.
      rows: how many training examples each client has, one at the least.
      test: the union of the clients' test examples, or None where the source has no such split.
      left_out: how many clients there were without a training example.
      counts: what else the source can be checked by, e.g. the number of snippets.
      test_clients: whose each test example is, as a number; None where the source does not say.
    """

    names: tuple[str, ...]
    train: dict[str, np.ndarray]
    rows: np.ndarray
    test: dict[str, np.ndarray] | None
    left_out: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    test_clients: np.ndarray | None = None

    def summary(self) -> dict[str, int]:
        """Clients and examples, and the source's own counts."""
        tested = 0 if self.test is None else len(next(iter(self.test.values())))
        counted = {"clients": len(self.names), "train": int(self.rows.sum()), "test": tested}
        return counted | {"left out": self.left_out} | self.counts


def collect(
    place: Any,
    train: Mapping[str, Examples],
    test: Mapping[str, Examples] | None,
    counts: Mapping[str, int] | None = None,
) -> Dataset:
    """One `Dataset` of the clients' arrays.

    Clients without a training example are left out, with their test examples, and counted.

    Args:
      place: where the data come from, for messages.
      train, test: the examples of every client by name; without `test`, a tenth is held out later.
      counts: as in `Dataset`.
    """
    names = tuple(name for name, arrays in train.items() if len(next(iter(arrays.values()))))
    others = set(train) | set(test or ())
    left_out = len(others) - len(names)
    if not names:
        raise DataError(f"{place} has no client with a training example.")
    if left_out:
        log.warning("%s: %d clients without a training example are left out.", place, left_out)
    rows = np.array([len(next(iter(train[name].values()))) for name in names])
    joined, whose = None, None
    if test is not None:
        parts = {i: test[name] for i, name in enumerate(names) if name in test}
        tested = [len(next(iter(arrays.values()))) for arrays in parts.values()]
        if not sum(tested):
            raise DataError(f"{place} has no test examples for its clients.")
        joined = _join(list(parts.values()))
        whose = np.repeat(np.array(list(parts), np.int32), tested)
    everything = _join([train[name] for name in names])
    return Dataset(names, everything, rows, joined, left_out, dict(counts or {}), whose)


def _join(parts: list[Examples]) -> dict[str, np.ndarray]:
    return {key: np.concatenate([arrays[key] for arrays in parts]) for key in parts[0]}


def check_labels(place: Any, client: str, labels: np.ndarray, classes: int) -> np.ndarray:
    """The labels of one client as int32, or an error that names file and client."""
    labels, where = np.asarray(labels), f"{place}, client `{client}`: labels must be"
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        seen = f"{labels.dtype} of shape {labels.shape}"
        raise DataError(f"{where} whole numbers, one per example, got {seen}.")
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        worst = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(f"{where} in 0 to {classes - 1}, got {worst}.")
    return labels.astype(np.int32)


def check_pixels(place: Any, client: str, pixels: np.ndarray, side: int = 28) -> np.ndarray:
    """Pixels in [0, 1] as uint8, n × side × side, or an error that names file and client.

    The published files hold k / 255 in float32, which uint8 keeps without loss in a quarter of the
    memory: all of EMNIST is 0.5 GB on a device and not 2.1.
    """
    pixels, where = np.asarray(pixels), f"{place}, client `{client}`: pixels must"
    if pixels.ndim != 3 or pixels.shape[1:] != (side, side):
        raise DataError(f"{where} have the shape n × {side} × {side}, got {pixels.shape}.")
    if not np.issubdtype(pixels.dtype, np.floating):
        raise DataError(f"{where} be floating-point numbers, got {pixels.dtype}.")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):  # also false for NaN
        raise DataError(f"{where} be in [0, 1], got {pixels.min()} to {pixels.max()}.")
    return np.rint(pixels * 255).astype(np.uint8)

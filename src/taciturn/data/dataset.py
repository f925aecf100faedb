"""Data as a reader returns them: flat arrays of the examples of named clients."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from taciturn.errors import DataError

log = logging.getLogger("taciturn")

Examples = Mapping[str, np.ndarray]  # of one client: arrays with an entry per example


@dataclass(frozen=True)
class Dataset:
    """Training examples, client by client, and the test examples of all clients.

    Attributes:
      names: of the clients, in order.
      train: arrays whose first axis runs over all examples of all clients.
      rows: how many training examples each client has, at least one.
      test: the test examples of all clients, or None where the source has no test set.
      left_out: how many clients were left out because they have no training example.
      counts: other totals, such as the number of classes.
      test_clients: the number of the client of each test example; None where it is unknown.
      about: what else a reader says of the data, in what JSON can hold.
    """

    names: tuple[str, ...]
    train: dict[str, np.ndarray]
    rows: np.ndarray
    test: dict[str, np.ndarray] | None
    left_out: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    test_clients: np.ndarray | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, int]:
        """Clients and examples, and the source's own counts."""
        tested = 0 if self.test is None else _size(self.test)
        counted = {"clients": len(self.names), "train": int(self.rows.sum()), "test": tested}
        return counted | {"left out": self.left_out} | self.counts


def collect(
    place: Any,
    train: Iterable[tuple[str, Examples]],
    test: Iterable[tuple[str, Examples]] | None = None,
    counts: dict[str, int] | None = None,
) -> Dataset:
    """A `Dataset` of pairs of a client's name and examples; `place` stands in messages.

    A client may come several times. Clients without a training example are left out, with their
    test examples, and counted. Without `test`, a task holds out a tenth later.
    """
    everyone, tests = _by_client(train), _by_client(test or ())
    own = {name: arrays for name, arrays in everyone.items() if _size(arrays)}
    if not own:
        raise DataError(f"{place} has no client with a training example.")
    if left_out := len({*everyone, *tests} - {*own}):
        log.warning("%s: %d clients without a training example are left out.", place, left_out)
    rows = np.array([*map(_size, own.values())])
    dataset = Dataset(tuple(own), _join([*own.values()]), rows, None, left_out, counts or {})
    if test is None:
        return dataset
    parts = {i: tests[name] for i, name in enumerate(own) if name in tests}
    whose = np.repeat(np.array([*parts], np.int32), [*map(_size, parts.values())])
    if not len(whose):
        raise DataError(f"{place} has no test examples for its clients.")
    return replace(dataset, test=_join([*parts.values()]), test_clients=whose)


def _by_client(parts: Iterable[tuple[str, Examples]]) -> dict[str, Examples]:
    clients: dict[str, list[Examples]] = {}
    for client, part in parts:
        clients.setdefault(client, []).append(part)
    return {client: _join(found) for client, found in clients.items()}


def _join(parts: Sequence[Examples]) -> dict[str, np.ndarray]:
    """The examples of all parts, one part after another."""
    return {key: np.concatenate([arrays[key] for arrays in parts]) for key in parts[0]}


def _size(arrays: Examples) -> int:
    return len(next(iter(arrays.values())))


def grouped(place: Any, everyone: Examples, whose: np.ndarray, counts: dict[str, int]) -> Dataset:
    """Examples by client, in the order of the clients' names; `whose` has the client of each."""
    names, owners = np.unique(whose, return_inverse=True)
    if not len(names):
        raise DataError(f"{place} has no client with a training example.")
    order, rows = np.argsort(owners, kind="stable"), np.bincount(owners)
    train = {key: array[order] for key, array in everyone.items()}
    return Dataset(tuple(map(str, names.tolist())), train, rows, None, 0, counts)


@contextmanager
def naming(where: Any) -> Iterator[None]:
    """Puts `where`, such as file and client, before the errors of what is read in the block."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def check_labels(labels: np.ndarray, classes: int | None) -> np.ndarray:
    """The labels as int32, or an error where they are no classes from 0."""
    classes = classes or 2**31 - 1
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        seen = f"{labels.dtype} of shape {labels.shape}"
        raise DataError(f"labels must be whole numbers, one per example, got {seen}.")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise DataError(f"labels must be in 0 to {classes - 1}, got {wrong[0]}.")
    return labels.astype(np.int32)


def count_classes(labels: np.ndarray) -> int:
    """One more than the largest label."""
    classes = int(labels.max(initial=0)) + 1
    if classes > max(1_000, len(labels)):
        seen = f"labels go up to {classes - 1} in {len(labels)} examples"
        raise DataError(f"{seen}: number the classes from 0, one after another.")
    return classes


def check_inputs(name: str, x: np.ndarray) -> np.ndarray:
    """`x` as it is where it is bytes, a quarter of the memory; else as finite float32."""
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):
        found = x.astype(np.float32)
    if not np.isfinite(found).all():
        raise DataError(f"{name} must be finite in float32, got NaN or a number too large.")
    return found

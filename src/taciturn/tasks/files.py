"""Your own data: one `npz` file, or a folder of arrays for every client."""

import math
from pathlib import Path
from typing import Any

import jax

from taciturn.checks import path_of, whole
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset
from taciturn.data.files import read_folder, read_npz
from taciturn.errors import DataError, InputError
from taciturn.models import MLP
from taciturn.tasks.task import Task, classification, regression, unit


def npz(data: str | Path | None = None, hidden: int = 128) -> Task:
    """One file with `x`, `y` and `client` (`--data FILE.npz`), with a one-layer network.

    Args:
      data: the file. `client` names who each example belongs to; `x_test` and `y_test` may be
        there, and `client_test`, which names whose each of these is; without them a tenth of
        every client is held out.
      hidden: the width of the network.
    """
    path = given("npz", data)
    return network("npz", cached("npz", [path], lambda: read_npz(path)), hidden)


def folder(data: str | Path | None = None, hidden: int = 128) -> Task:
    """A folder for every client (`--data DIR`) with `x.npy` and `y.npy`, with a one-layer network.

    Args:
      data: the folder of folders. A client may also have `x_test.npy` and `y_test.npy`; where none
        has, a tenth of every client is held out.
      hidden: the width of the network.
    """
    root = given("folder", data)
    files = sorted(root.glob("*/*.npy"))
    if not files:
        raise DataError(f"{root} has no folders with x.npy and y.npy, one per client.")
    return network("folder", cached("folder", files, lambda: read_folder(root)), hidden)


def given(task: str, data: Any) -> Path:
    """The path of the data that this task cannot do without."""
    if data is None:
        raise InputError(f"The task `{task}` needs `data`, the path of what you bring.")
    path = path_of("data", data)
    if not path.exists():
        raise DataError(f"{path} is not there.")
    return path


def network(name: str, dataset: Dataset, hidden: int, **others: Any) -> Task:
    """A task with a network of one hidden layer: for classes, or numbers where there are none."""
    inputs, classes = math.prod(dataset.train["x"].shape[1:]), dataset.counts["classes"]
    hidden = whole("hidden", hidden, most=100_000)

    def scores(model: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return model(unit(x), key)

    loss, metrics = classification(scores) if classes else regression(scores)
    return Task.of(
        name,
        dataset,
        init=lambda key: MLP(key, inputs, hidden, classes or 1),
        loss=loss,
        metrics=metrics,
        **others,
    )

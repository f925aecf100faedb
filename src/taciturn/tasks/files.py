"""Your own data, in tables and files, and Fashion-MNIST, which has the layout of one of these."""

import logging
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice, flag, number, path_of, whole
from taciturn.data import files, sources
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, grouped
from taciturn.data.table import Encoding
from taciturn.data.table import read as read_table
from taciturn.errors import DataError, InputError
from taciturn.models import MLP
from taciturn.tasks.clients import Stored
from taciturn.tasks.task import Task, classification, regression, unit

log = logging.getLogger("taciturn")


def npz(data: str | Path | None = None, hidden: int = 128) -> Task:
    """One file with `x`, `y` and `client` (`--data FILE.npz`), with a one-layer network.

    Args:
      data: the file. `client` names who each example belongs to; `x_test` and `y_test` may be
        there, and `client_test`, which names whose each of these is; without them a tenth of
        every client is held out.
      hidden: the width of the network.
    """
    path = given("npz", data)
    return network("npz", cached("npz", [path], lambda: files.read_npz(path)), hidden)


def folder(data: str | Path | None = None, hidden: int = 128) -> Task:
    """A folder for every client (`--data DIR`) with `x.npy` and `y.npy`, with a one-layer network.

    Args:
      data: the folder of folders. A client may also have `x_test.npy` and `y_test.npy`; where none
        has, a tenth of every client is held out.
      hidden: the width of the network.
    """
    root = given("folder", data)
    arrays = sorted(root.glob("*/*.npy"))
    if not arrays:
        raise DataError(f"{root} has no folders with x.npy and y.npy, one per client.")
    return network("folder", cached("folder", arrays, lambda: files.read_folder(root)), hidden)


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
    paths = sources.find_or_fetch("fashion", data)
    dataset = cached("fashion", paths, lambda: files.read_idx(paths, classes=10))
    return _split("fashion", dataset, split, alpha, clients, seed)


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
    root = given("idx", data)
    if not root.is_dir():
        raise DataError(f"`data` must be a folder, and {root} is none.")
    paths = files.find_idx(root)
    dataset = cached("idx", paths, lambda: files.read_idx(paths))
    return _split("idx", dataset, split, alpha, clients, seed)


def _split(name: str, dataset: Dataset, split: str, alpha: float, clients: int, seed: int) -> Task:
    """The task of a set that comes without clients, split over so many of them."""
    labels, rng = dataset.train["y"], np.random.default_rng(whole("seed", seed, 0))
    split = choice("split", split, ("iid", "dirichlet"))
    if whole("clients", clients) > len(labels):
        raise InputError(f"`clients` must be at most {len(labels)} examples, got {clients}.")
    if split == "dirichlet":
        owners = dirichlet(labels, clients, number("alpha", alpha, "[1e-6, inf)"), rng)
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


def table(
    data: Any = None,
    client: str | None = None,
    label: str | None = None,
    features: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    standardise: bool = True,
    number: bool | None = None,
    categories: int = 20,
    fill_gaps: bool = True,
    hidden: int = 128,
    hold_out: str = "random",
) -> Task:
    """A table with a client column (`--data FILE --client COLUMN --label COLUMN`).

    Args:
      data: a CSV or Parquet file, `hf://OWNER/NAME`, a frame of pandas or Polars, a
        `datasets.Dataset`, or a dict of arrays.
      client: the column that says whose a row is.
      label: the column to be learned: classes, or numbers where it has fractions.
      features: the columns to learn from; by default all others but dates and free text.
      leave_out: columns not to learn from.
      standardise: whether numbers, also those to predict, are brought to mean 0 and deviation 1.
      number: whether the label is a number to predict and no class.
      categories: text with at most so many values, each twice on average, is an input per value.
      fill_gaps: whether gaps get the column's median and an input that says so, or are an error.
      hidden: the width of the network.
      hold_out: which tenth of every client is tested on, `random` or `last`.

    Means, medians and values are those of the rows that are trained on. The task's `encode` has the
    `names` of the inputs, and makes inputs of other rows.
    """
    for name, value, what in (
        ("data", data, "a file, a frame or a set of the Hugging Face Hub"),
        ("client", client, "the column that says whose a row is"),
        ("label", label, "the column to be learned"),
    ):
        if value is None:
            raise InputError(f"The task `table` needs `{name}`, {what}.")
        if name != "data" and not isinstance(value, str):
            raise InputError(f"`{name}` must be the name of a column, got {value!r}.")
    asked: dict[str, Any] = {
        "client": client, "label": label, "features": _names("features", features),
        "leave_out": _names("leave_out", leave_out), "number": number,
        "categories": whole("categories", categories, 0, 10_000),
        "fill_gaps": flag("fill_gaps", fill_gaps),
    }  # fmt: skip
    standardise = flag("standardise", standardise)
    path = Path(data) if isinstance(data, str | Path) and "://" not in str(data) else None
    if path is None or not path.is_file():
        dataset = read_table(data, **asked)
    else:
        kept = f"table-{zlib.crc32(repr(sorted(asked.items())).encode()):08x}"
        dataset = cached(kept, [path], lambda: read_table(path, **asked))
    rows, y = dataset.train, dataset.train["y"]
    train, *_ = Stored.of(rows, dataset.rows, names=dataset.names).hold_out(hold_out)
    encode = Encoding.of(dataset, train.arrays, standardise)
    if not encode.classes:
        mean, deviation = encode.label
        y = ((y.astype(np.float64) - mean) / deviation).astype(np.float32)
    dataset = replace(dataset, train={"x": encode.inputs(rows), "y": y})
    return network("table", dataset, hidden, hold_out=hold_out, encode=encode)


def _names(name: str, value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(one, str) for one in names):
        raise InputError(f"`{name}` must be names of columns, got {value!r}.")
    return names


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
    learn = classification if classes else regression
    loss, metrics = learn(lambda model, x, key: model(unit(x), key))
    return Task.of(
        name,
        dataset,
        init=lambda key: MLP(key, inputs, hidden, classes or 1),
        loss=loss,
        metrics=metrics,
        **others,
    )

"""Tables with a column that names the client, with a one-layer network."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice, flag
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset
from taciturn.data.table import read
from taciturn.errors import InputError
from taciturn.tasks.clients import HOLD_OUT, Stored
from taciturn.tasks.files import network
from taciturn.tasks.task import Task


def table(
    data: Any = None,
    client: str | None = None,
    label: str | None = None,
    features: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    standardise: bool = False,
    number: bool | None = None,
    hidden: int = 128,
    hold_out: str = "random",
) -> Task:
    """A table with a client column (`--data FILE --client COLUMN --label COLUMN`).

    Args:
      data: a CSV or Parquet file, `hf://OWNER/NAME`, a frame of pandas or Polars, a
        `datasets.Dataset`, or a dict of arrays.
      client: the column that says whose a row is.
      label: the column to be learned: classes, or numbers where it has fractions.
      features: the columns to learn from; by default all others.
      leave_out: columns not to learn from.
      standardise: whether features, and numbers to predict, are brought to mean 0 and deviation 1,
        by the rows that are trained on.
      number: whether the label is a number to predict and no class.
      hidden: the width of the network.
      hold_out: which tenth of every client is tested on, `random` or `last`.
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
    asked = {"client": client, "label": label, "features": _names("features", features),
             "leave_out": _names("leave_out", leave_out), "number": number}  # fmt: skip
    hold_out, standardise = choice("hold_out", hold_out, HOLD_OUT), flag("standardise", standardise)
    task = network("table", _read(data, asked), hidden, hold_out=hold_out)
    return replace(task, clients=_standardised(task.clients, hold_out)) if standardise else task


def _names(name: str, value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(one, str) for one in names):
        raise InputError(f"`{name}` must be names of columns, got {value!r}.")
    return names


def _read(data: Any, asked: dict[str, Any]) -> Dataset:
    path = Path(data) if isinstance(data, str | Path) and "://" not in str(data) else None
    if path is None or not path.is_file():
        return read(data, **asked)
    name = f"table-{zlib.crc32(repr(sorted(asked.items())).encode()):08x}"
    return cached(name, [path], lambda: read(path, **asked))


def _standardised(stored: Any, hold_out: str) -> Stored:
    """Mean 0 and deviation 1 of every number, by the rows that are trained on."""
    train, *_ = stored.hold_out(hold_out)
    found = dict(stored.arrays)
    for key in ("x", "y") if stored.arrays["y"].dtype.kind == "f" else ("x",):
        seen = np.asarray(train.arrays[key], np.float64)
        deviation = seen.std(0)
        scaled = (stored.arrays[key] - seen.mean(0)) / np.where(deviation > 0, deviation, 1.0)
        found[key] = scaled.astype(np.float32)
    return replace(stored, arrays=found)

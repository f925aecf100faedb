"""Tables with a column that names the client, with a one-layer network."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import flag, whole
from taciturn.data.cache import cached
from taciturn.data.table import Encoding, read
from taciturn.errors import InputError
from taciturn.tasks.clients import Stored
from taciturn.tasks.files import network
from taciturn.tasks.task import Task


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
        dataset = read(data, **asked)
    else:
        kept = f"table-{zlib.crc32(repr(sorted(asked.items())).encode()):08x}"
        dataset = cached(kept, [path], lambda: read(path, **asked))
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

"""Tables with a column that names the client: CSV, Parquet, frames, sets of Hugging Face."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Self

import numpy as np

from taciturn.checks import path_of
from taciturn.data import layouts
from taciturn.data.dataset import Dataset, check_inputs, grouped, naming
from taciturn.errors import DataError, InputError, UnknownName, require

_HUB = "hf://"
_NOTHING = {"None", "nan", "NaT", "<NA>"}  # how libraries write a cell without a value
_NO_NUMBER = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
_DATE = re.compile(r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4})([T ].*)?")
_CLASSES = 100  # may be there in however few rows
_DELIMITERS = (",", "\t", ";")

Columns = dict[str, np.ndarray]


def read(
    data: Any,
    client: str,
    label: str,
    features: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    number: bool | None = None,
    categories: int = 20,
    fill_gaps: bool = True,
) -> Dataset:
    """The rows of a table by client: `numbers` with NaN for gaps, `texts` with a mark where a row
    has a value, and `y` as classes from 0 or as the numbers they are.

    Arguments are those of `taciturn.table`; `counts["classes"]` is 0 where numbers are predicted.
    `about` has what an `Encoding` is made of.
    """
    place, columns = _columns_of(data, (client, label, *features, *leave_out))
    if client == label:
        raise InputError(f"`client` and `label` must be two columns, got `{label}` for both.")
    chosen = [name for name in features or columns if name not in (client, label, *leave_out)]
    numbers = [name for name in chosen if columns[name].dtype.kind in "iufb"
               and not np.isnan(columns[name]).all()]  # fmt: skip
    with naming(place):
        values = {name: _values(name, columns[name], categories, bool(features))
                  for name in chosen if name not in numbers}  # fmt: skip
        texts = [(name, value) for name, own in values.items() for value in own]
        out = [name for name, own in values.items() if not own]
        if not numbers and not texts:
            raise InputError(
                f"{place} has no column to learn from beside `{client}` and `{label}`"
                f"{', left out: ' * bool(out)}{', '.join(out)}."
            )
        if len(numbers) + len(texts) > 1 and any(columns[name].ndim > 1 for name in numbers):
            raise DataError("a column of arrays must be the only one of `features`.")
        y, classes = _labels(label, _complete(label, columns[label]), number)
        whose = _clients(client, _complete(client, columns[client]))
        rows = _features(columns, numbers, texts, fill_gaps) | {"y": y}
    about = {"numbers": numbers, "texts": texts, "left_out": out, "classes": classes}
    return replace(grouped(place, rows, whose, {"classes": len(classes)}), about=about)


@dataclass(frozen=True, eq=False)
class Encoding:
    """What a network is given of the columns of a table. Called on other rows, a table of any kind
    with the same columns, it gives their inputs. As text, it is what was made of the columns.

    Attributes:
      names: of the inputs, in order.
      classes: of the label, in the order of the network's outputs; empty where it is a number.
      label: mean and deviation of the numbers to predict: an output · deviation + mean is one.
    """

    numbers: Sequence[str]
    texts: Sequence[tuple[str, str]]  # columns, each with one of its values
    classes: tuple[str, ...]
    label: tuple[float, float]
    medians: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    gappy: np.ndarray  # which numbers have gaps, and thus an input that says so
    known: np.ndarray  # which texts some row for training has; the others are no inputs
    about: str

    @classmethod
    def of(cls, dataset: Dataset, train: Mapping[str, np.ndarray], standardise: bool) -> Self:
        """The encoding of the rows of a dataset of `read`, of which `train` are for training."""
        numbers, y = train["numbers"], np.asarray(train["y"], np.float64)
        missing = np.isnan(numbers)
        gappy, known = missing.any(0), np.any(train["texts"], axis=0)
        medians = np.zeros(numbers.shape[1:])
        for i in np.flatnonzero(gappy & ~missing.all(0)):
            medians[i] = np.nanmedian(numbers[:, i])
        means, deviations, label = np.zeros_like(medians), np.ones_like(medians), (0.0, 1.0)
        names, out, classes = (dataset.about[key] for key in ("numbers", "left_out", "classes"))
        if standardise and numbers.dtype != np.uint8:
            seen = np.where(missing, medians, np.asarray(numbers, np.float64))
            means, deviations = seen.mean(0), seen.std(0)
            deviations = np.where(deviations > 0, deviations, 1.0)
            if not classes:
                label = float(y.mean()), float(y.std()) or 1.0
        texts = [(name, value) for name, value in dataset.about["texts"]]
        gaps = int(np.isnan(dataset.train["numbers"]).sum())
        also = " and the label" * (label != (0, 1)) + ", standardised" * standardise
        made = (
            (_plural(medians.size, "number") + also) * (medians.size > 0),
            f"{_plural(len(dict(texts)), 'text')} as {known.sum()} columns" * bool(texts),
            f"left out: {', '.join(out)}" * bool(out),
            f"{_plural(gaps, 'gap')} filled" * bool(gaps),
        )
        return cls(names, texts, tuple(classes), label, medians, means, deviations, gappy, known,
                   "; ".join(filter(None, made)))  # fmt: skip

    def __str__(self) -> str:
        return self.about

    @property
    def names(self) -> tuple[str, ...]:
        gaps = [f"{name} is missing" for name in compress(self.numbers, self.gappy.flat)]
        texts = [f"{name}={value}" for name, value in compress(self.texts, self.known)]
        return (*self.numbers, *gaps, *texts)

    def __call__(self, data: Any) -> np.ndarray:
        place, columns = _columns_of(data, (*self.numbers, *dict(self.texts)))
        with naming(place):
            return self.inputs(_features(columns, self.numbers, self.texts))

    def inputs(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """The inputs of rows as `read` gives them: `numbers` has NaN for gaps."""
        numbers = rows["numbers"]
        if numbers.dtype == np.uint8:
            return numbers
        missing = np.isnan(numbers)
        filled = np.where(missing, self.medians, numbers)
        found = ((filled - self.means) / self.deviations).astype(np.float32)
        if found.ndim > 2:
            return found
        parts = [found, missing[:, self.gappy], rows["texts"][:, self.known]]
        return np.concatenate(parts, axis=1, dtype=np.float32)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _complete(name: str, column: np.ndarray) -> np.ndarray:
    """The column, if it has one value in every row."""
    if column.ndim != 1:
        raise DataError(f"`{name}` must have one value per row.")
    missing = ~np.isfinite(column) if column.dtype.kind in "iufb" else column == ""
    if missing.any():
        where = f"it is not in row {_first(missing)} of the data"
        raise DataError(f"`{name}` must be there in every row; {where}.")
    return column


def _clients(name: str, column: np.ndarray) -> np.ndarray:
    """The number or name of the client of each row."""
    if column.dtype.kind == "f" and (column == np.rint(column)).all():
        column = column.astype(np.int64)
    if column.dtype.kind not in "iubU":
        raise DataError(f"`{name}` must name a client in every row, got {column.dtype}.")
    return column


def _columns_of(data: Any, wanted: Sequence[str]) -> tuple[str, Columns]:
    """The name of a table, for messages, and its columns, with those that are `wanted`.

    A table is a CSV or Parquet file, `hf://OWNER/NAME` of the Hugging Face Hub, a dict of arrays,
    or anything with columns, such as a frame of pandas or Polars or a `datasets.Dataset`.
    """
    text = data.as_posix().replace(":/", "://", 1) if isinstance(data, Path) else data
    if isinstance(text, str) and text.startswith(_HUB):  # a path has lost one of the slashes
        place, columns = text, _of_frame(layouts.load_table(text.removeprefix(_HUB)))
    elif isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names"):
        place, columns = "the table", _of_frame(data)
    else:
        path = path_of("data", data)
        if not path.is_file():
            raise DataError(f"{path} is not there, or no file.")
        place, columns = str(path), (_of_parquet if path.suffix == ".parquet" else _of_csv)(path)
    lengths = {name: len(column) if column.ndim else None for name, column in columns.items()}
    if not columns or not next(iter(lengths.values())):
        raise DataError(f"{place} has no rows.")
    if len(set(lengths.values())) > 1:
        raise DataError(f"{place}: columns must be of one length, got {lengths}.")
    for name in wanted:
        if name not in columns:
            raise UnknownName(f"column in {place}", name, columns)
    return place, columns


def _of_frame(frame: Any) -> Columns:
    names = getattr(frame, "column_names", getattr(frame, "columns", frame))
    if isinstance(names, Mapping) and names is not frame:  # a `datasets.DatasetDict`
        raise InputError(f"`data` must be one split of a data set, got all: {', '.join(names)}.")
    if not hasattr(frame, "__getitem__"):  # a set that older `datasets` read row by row alone
        rows = list(frame)
        frame = {name: [row[name] for row in rows] for name in names}
    found = {}
    for name in names:
        try:
            column = np.asarray(frame[name])
            found[str(name)] = _typed(column.tolist()) if column.dtype.kind == "O" else column
        except (ValueError, TypeError):
            raise DataError(f"the table: `{name}` is neither numbers nor words.") from None
    return found


def _of_parquet(path: Path) -> Columns:
    parquet = require("pyarrow.parquet", "data")
    try:
        table = parquet.read_table(path)
    except Exception as error:  # the library raises a tree of its own
        raise DataError(f"{path} is no whole Parquet file: {error}.") from None
    return _of_frame(table)


def _of_csv(path: Path) -> Columns:
    try:
        text = path.read_text("utf-8-sig")
        delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = [[cell.strip() for cell in row] for row in reader if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from None
    names = rows[0] if rows else []
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of one name: {', '.join(names)}.")
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise DataError(f"{path}, row {i + 1}: must have {len(names)} cells, got {len(row)}.")
    return {name: _typed(cells) for name, *cells in zip(*rows, strict=True)}


def _typed(cells: Sequence[Any]) -> np.ndarray:
    """A column as whole numbers, numbers or words, the first that fits.

    Empty cells of numbers are NaN, and so are words such as "NA" among them.
    """
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
        return np.array([_nested(cell) for cell in cells], dtype=float)
    cells = [cell if isinstance(cell, str) or str(cell) not in _NOTHING else "" for cell in cells]
    gaps = [str(cell).lower() in _NO_NUMBER for cell in cells]
    known = [cell for cell, gap in zip(cells, gaps, strict=True) if not gap]
    fractions = any(gaps) or any(isinstance(cell, float) for cell in known)
    for kind in (float,) if fractions else (int, float):
        with suppress(TypeError, ValueError, OverflowError):
            if known or not any(cells):
                return np.array([math.nan if gap else kind(cell)
                                 for cell, gap in zip(cells, gaps, strict=True)])  # fmt: skip
    return np.array([str(cell) for cell in cells])


def _nested(cell: Any) -> Any:
    """A cell of arrays of arrays, as Parquet has them, as lists."""
    if isinstance(cell, np.ndarray) and cell.dtype.kind == "O":
        return [_nested(part) for part in cell]
    return cell


def _values(name: str, column: np.ndarray, most: int, named: bool) -> list[str]:
    """The values of a text that has few; none of a column to be left out."""
    values = np.unique(column).tolist() if column.dtype.kind == "U" else []
    is_date = all(_DATE.fullmatch(value) for value in values if value)
    if 0 < len(values) <= min(most, len(column) // 2) and (named or not is_date):
        return values
    words = [value for value in values
             if value.lower() not in _NO_NUMBER and _typed([value]).dtype.kind == "U"]  # fmt: skip
    if 0 < 2 * len(words) <= len(values):  # which would be left out for a slip of the pen
        row = _first(column == words[0])
        seen = f"but for {words[0]!r:.40} in row {row} of the data"
        remedy = "`leave_out` (--leave-out) leaves the column out"
        raise DataError(f"`{name}` has numbers, {seen}; {remedy}.")
    if named:
        raise DataError(
            f"`{name}` must be numbers, or text with at most {most} values, each twice on "
            f"average, got {len(values) or 'no'} values; `categories` (--option categories=50) "
            "allows more."
        )
    return []


def _features(
    columns: Columns, names: Sequence[str], texts: Sequence[tuple[str, str]], fill_gaps: bool = True
) -> Columns:
    """`numbers`, arrays of bytes as they are and others as float32, and which `texts` a row has."""
    rows = len(next(iter(columns.values())))
    numbers, marks = np.zeros((rows, len(names)), np.float32), np.zeros((rows, len(texts)), bool)
    for i, name in enumerate(names):
        column = columns[name]
        if column.dtype.kind not in "iufb":
            raise DataError(f"`{name}` must be numbers, got {column.dtype}.")
        unfit = ~np.isfinite(column)
        if fill_gaps and column.ndim == 1:
            unfit &= ~np.isnan(column)
        if unfit.any():
            raise DataError(f"`{name}` has no finite number in row {_first(unfit)} of the data.")
        if column.ndim > 1:  # which is the only one
            return {"numbers": check_inputs("features", column), "texts": marks}
        with np.errstate(over="ignore"):
            numbers[:, i] = column
    if np.isinf(numbers).any():
        raise DataError("features must be finite in float32, got a number too large.")
    for i, (name, value) in enumerate(texts):
        if columns[name].ndim > 1:
            raise DataError(f"`{name}` must be text, got arrays of {columns[name].dtype}.")
        marks[:, i] = columns[name].astype(str, copy=False) == value
    return {"numbers": numbers, "texts": marks}


def _first(wrong: np.ndarray) -> int:
    """The first row with a wrong cell, counted from 1."""
    return int(np.argwhere(wrong)[0][0]) + 1


def _labels(label: str, column: np.ndarray, number: bool | None) -> tuple[np.ndarray, list[str]]:
    """Classes from 0 in the order of their names, and these; or numbers, and none."""
    numbers = column.dtype.kind in "iufb"
    if len(column) > 1 and (column == column[0]).all():
        raise DataError(f"`{label}` is {column[0]} in all rows: nothing can be learned.")
    if number is None:
        number = numbers and not (column == np.rint(column)).all()
    if number:
        if not numbers:
            raise DataError(f"`{label}` must be numbers, got {column[0]!r}.")
        return column.astype(np.float32), []
    names, classes = np.unique(column, return_inverse=True)
    if len(names) > max(_CLASSES, len(column) // 2):
        instead = "; `number` (--option number=true) takes them as numbers" if numbers else ""
        raise DataError(f"`{label}` has {len(names)} classes in {len(column)} rows{instead}.")
    return classes.astype(np.int32), list(map(str, names.tolist()))

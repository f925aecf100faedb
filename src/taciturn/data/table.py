"""Tables with a column that names the client: CSV, Parquet, frames, sets of Hugging Face."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import path_of
from taciturn.data import hugging_face
from taciturn.data.dataset import Dataset, check_inputs
from taciturn.data.files import grouped
from taciturn.errors import DataError, InputError, UnknownName, require

_HUB = "hf://"
_NO_NUMBER = {"na", "n/a", "nan", "null", "none", "?", "-"}
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
) -> Dataset:
    """The rows of a table by client: `x`, and `y` as classes from 0 or as the numbers they are.

    Arguments are those of `taciturn.table`; `counts["classes"]` is 0 where numbers are predicted.
    """
    place, columns = _columns_of(data)
    for name in (client, label, *features, *leave_out):
        if name not in columns:
            raise UnknownName(f"column in {place}", name, columns)
    if client == label:
        raise InputError(f"`client` and `label` must be two columns, got `{label}` for both.")
    chosen = [name for name in features or columns if name not in (client, label, *leave_out)]
    if not chosen:
        raise InputError(f"{place} has no column to learn from beside `{client}` and `{label}`.")
    x = _features(place, {name: columns[name] for name in chosen})
    y, classes = _labels(place, label, columns[label], number)
    whose = _clients(place, client, columns[client])
    return grouped(place, {"x": x, "y": y}, whose, {"classes": classes})


def _clients(place: str, name: str, column: np.ndarray) -> np.ndarray:
    """The number or name of the client of each row."""
    where = f"{place}: `{name}` must name a client in every row"
    if column.dtype.kind == "f" and np.isfinite(column).all() and (column == np.rint(column)).all():
        column = column.astype(np.int64)
    if column.ndim != 1 or column.dtype.kind not in "iubU":
        raise DataError(f"{where}, got {column.dtype}.")
    if column.dtype.kind == "U" and not column.all():
        raise DataError(f"{where}, row {_first_row(column == '')} of the data is empty.")
    return column


def _columns_of(data: Any) -> tuple[str, Columns]:
    """The name of a table, for messages, and its columns.

    A table is a CSV or Parquet file, `hf://OWNER/NAME` of the Hugging Face Hub, a dict of arrays,
    or anything with columns, such as a frame of pandas or Polars or a `datasets.Dataset`.
    """
    text = data.as_posix().replace(":/", "://", 1) if isinstance(data, Path) else data
    if isinstance(text, str) and text.startswith(_HUB):  # a path has lost one of the slashes
        place, columns = text, _of_frame(hugging_face.table(text.removeprefix(_HUB)))
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
    return place, columns


def _of_frame(frame: Any) -> Columns:
    names = getattr(frame, "column_names", None)
    if isinstance(names, Mapping):  # a `datasets.DatasetDict`
        raise InputError(f"`data` must be one split of a data set, got all: {', '.join(names)}.")
    if names is None:
        names = frame if isinstance(frame, Mapping) else frame.columns
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
    return _of_frame({name: table[name].to_numpy() for name in table.column_names})


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
    empty = [cell is None or cell == "" or cell != cell for cell in cells]
    gaps = [none or str(cell).lower() in _NO_NUMBER
            for cell, none in zip(cells, empty, strict=True)]  # fmt: skip
    known = [cell for cell, gap in zip(cells, gaps, strict=True) if not gap]
    fractions = any(gaps) or any(isinstance(cell, float) for cell in known)
    for kind in (float,) if fractions else (int, float):
        with suppress(TypeError, ValueError, OverflowError):
            if known or all(empty):
                return np.array([math.nan if gap else kind(cell)
                                 for cell, gap in zip(cells, gaps, strict=True)])  # fmt: skip
    return np.array(["" if none else str(cell) for cell, none in zip(cells, empty, strict=True)])


def _nested(cell: Any) -> Any:
    """A cell of arrays of arrays, as Parquet has them, as lists."""
    if isinstance(cell, np.ndarray) and cell.dtype.kind == "O":
        return [_nested(part) for part in cell]
    return cell


def _features(place: str, columns: Columns) -> np.ndarray:
    """One array of all features: bytes as they are, other numbers as float32."""
    for name, column in columns.items():
        if column.dtype.kind not in "iufb":
            cells = column.reshape(len(column), -1)[:, 0].tolist()
            words = (row for row, cell in enumerate(cells) if _typed([cell]).dtype.kind == "U")
            row = next(words, 0)
            raise DataError(
                f"{place}: `{name}` must be numbers to learn from, got {str(cells[row])!r:.40} in "
                f"row {row + 1} of the data; `leave_out` (--leave-out) leaves the column out."
            )
        if not np.isfinite(column).all():
            row = _first_row(~np.isfinite(column))
            raise DataError(f"{place}: `{name}` has no finite number in row {row} of the data.")
    arrays = list(columns.values())
    if len(arrays) == 1 and arrays[0].ndim > 1:
        found = arrays[0]
    elif any(array.ndim > 1 for array in arrays):
        raise DataError(f"{place}: a column of arrays must be the only one of `features`.")
    else:
        found = np.stack(arrays, axis=1)
    return check_inputs(f"{place}: features", found)


def _first_row(wrong: np.ndarray) -> int:
    """The first row with a wrong cell, counted from 1."""
    return int(np.argwhere(wrong)[0][0]) + 1


def _labels(
    place: str, label: str, column: np.ndarray, number: bool | None
) -> tuple[np.ndarray, int]:
    """Classes from 0 in the order of their names, or numbers, and how many classes there are."""
    numbers = column.dtype.kind in "iufb"
    if column.ndim != 1:
        raise DataError(f"{place}: `{label}` must have one value per row.")
    missing = ~np.isfinite(column) if numbers else column == ""
    if missing.any():
        where = f"it is not in row {_first_row(missing)} of the data"
        raise DataError(f"{place}: `{label}` must be there in every row; {where}.")
    if number is None:
        number = numbers and not (column == np.rint(column)).all()
    if number:
        if not numbers:
            raise DataError(f"{place}: `{label}` must be numbers, got {column[0]!r}.")
        return column.astype(np.float32), 0
    names, classes = np.unique(column, return_inverse=True)
    if len(names) > max(_CLASSES, len(column) // 2):
        instead = "; `number` (--option number=true) takes them as numbers" if numbers else ""
        raise DataError(
            f"{place}: `{label}` has {len(names)} classes in {len(column)} rows{instead}."
        )
    return classes.astype(np.int32), len(names)

"""Run folders: configuration, metrics, weights, checkpoints.

Every file is written beside its place and then renamed onto it: a reader, or a run that goes on
after a crash, sees the old file or the new one and never half of either (see `files`). A table that
grows is the exception: its readers leave out a row that is not whole.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from taciturn import files
from taciturn.checks import path_of
from taciturn.errors import RunError
from taciturn.files import sweep


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """As `files.replacing`; what cannot be written is one error."""
    try:
        with files.replacing(path, mode) as file:
            yield file
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from None


def create(out: Path | None, task: str) -> Path:
    """A new, empty run folder: `out`, or one under `runs/` named after task and time."""
    if out is not None:
        path_of("out", out)
        sweep(out)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RunError(f"{out} is already there and not an empty folder.")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{out} cannot be made: {error.strerror}.") from None
        return out
    name = f"{task}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        folder = Path("runs") / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{folder} cannot be made: {error.strerror}.") from None
        return folder
    raise RunError(f"runs/{name} and a thousand like it are already there.")


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as file:
        file.write(to_json(value) + "\n")


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON as the standard has it: what is not a finite number becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with a header; numbers that are not there are left empty."""
    with replacing(path) as file:
        csv.writer(file, lineterminator="\n").writerow(rows[0])
        file.write(_lines(rows[0], rows))


class GrowingTable:
    """A CSV file that rows are appended to; the last one can be written again.

    What a row costs does not depend on how many there are. A reader may see the file without the
    row that is being written, or with a part of it, which `read_csv` leaves out.
    """

    def __init__(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Begins the file with these rows, one at the least."""
        write_csv(path, rows)
        self._path, self._columns = path, list(rows[0])
        self._end = path.stat().st_size
        self._start = self._end - len(_lines(self._columns, rows[-1:]).encode())

    def append(self, row: Mapping[str, Any]) -> None:
        self._start = self._end
        self.rewrite(row)

    def rewrite(self, row: Mapping[str, Any]) -> None:
        with open(self._path, "r+b") as file:
            file.seek(self._start)
            file.truncate()
            file.write(_lines(self._columns, [row]).encode())
            file.flush()
            os.fsync(file.fileno())
            self._end = file.tell()


def _lines(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, list(columns), lineterminator="\n").writerows(
        {k: "" if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in rows
    )
    return text.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table that are whole: the last one may be being written."""
    try:
        text = b"".join(path.read_bytes().rpartition(b"\n")[:2]).decode()
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    half = rows and (None in rows[-1] or None in rows[-1].values())  # too many cells, or too few
    return rows[:-1] if half else rows


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """A flat table of strings, numbers, flags and lists of these; what is None is left out."""
    with replacing(path) as file:
        for key, value in values.items():
            if value is not None:
                # JSON's numbers, strings, flags and lists are TOML's, but for infinity.
                text = "inf" if value == math.inf else json.dumps(value, ensure_ascii=False)
                file.write(f"{key} = {text}\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Named arrays as safetensors."""
    with replacing(path, "wb") as file:
        file.write(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

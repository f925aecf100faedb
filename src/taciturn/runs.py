"""Run folders: configuration, metrics, weights, checkpoints.

A reader sees the old file or the new one and never half of either (see `files`), but for a table
that grows: its readers leave out a row that is not whole.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from taciturn.checks import path_of
from taciturn.errors import RunError, require
from taciturn.files import atomic_write, sweep, try_lock

LOCK = ".running.lock"  # held while a process writes into the folder


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """A block in which no other process writes into the folder, which is made if need be."""
    if path_of("out", folder).exists() and not folder.is_dir():
        raise RunError(f"{folder} is already there and not an empty folder: choose another one.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / LOCK)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}.") from None
    if lock is None:
        raise RunError(f"{folder} is in use: another process is writing into it.")
    with lock:
        yield folder


@contextmanager
def create(out: Path | None, task: str) -> Iterator[Path]:
    """A new, empty run folder, claimed: `out`, or one under `runs/` named after task and time."""
    folder = out or _new_folder(task)
    # Before it is claimed, so that no lock is left in a folder of other things.
    if path_of("out", folder).is_dir() and not (folder / LOCK).exists():
        _check_empty(folder)
    with claimed(folder):
        _check_empty(folder)
        yield folder


def _check_empty(folder: Path) -> None:
    sweep(folder)
    there = {path.name for path in folder.iterdir()} - {LOCK}
    if "config.toml" in there and "summary.json" not in there:
        raise RunError(
            f"{folder} holds a run that was stopped: `taciturn resume {folder}` goes on."
        )
    if there:
        raise RunError(f"{folder} is already there and not an empty folder: choose another one.")


def _new_folder(task: str) -> Path:
    """A folder that was not there, under `runs/`."""
    first = folder = Path("runs", f"{task}-{datetime.now():%Y%m%d-%H%M%S}")
    for attempt in itertools.count(2):
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            folder = first.with_name(f"{first.name}-{attempt}")
        except OSError as error:
            raise RunError(f"{folder} cannot be made: {error.strerror}.") from None
    return folder


def write_text(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value) + "\n")


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
    write_text(path, _csv([list(rows[0]), *([row[name] for name in rows[0]] for row in rows)]))


def write_columns(path: Path, names: Iterable[str], columns: Iterable[np.ndarray]) -> None:
    """A table of many rows, given by column."""
    write_text(path, _csv([list(names)]) + _csv(_rows(columns)))


class StreamedTable:
    """A CSV file that grows by many rows at a time, and can be cut back to where it once was.

    What was added is in the file when `add` returns: it outlives the process.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._hash = path, 0, hashlib.sha256()
        self._file: FileIO | None = None

    def begin(self, names: Iterable[str]) -> None:
        """Begins the file with a header; what was there is gone."""
        self._file = FileIO(self._path, "w")
        self._write(_csv([list(names)]))

    def go_on(self, size: int, checksum: str) -> list[dict[str, str]]:
        """Cuts the file to `size` bytes, if these are what they were, and gives its rows."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(size)
        except OSError as error:
            raise RunError(f"{self._path} cannot be read: {error.strerror}") from None
        found = hashlib.sha256(data)
        if len(data) < size:
            raise RunError(f"{self._path} has {len(data)} bytes, and had {size}")
        if found.hexdigest() != checksum:
            raise RunError(f"{self._path} is damaged: its first {size} bytes have changed")
        self._file, self._size, self._hash = FileIO(self._path, "a"), size, found
        self._file.truncate(size)
        return list(csv.DictReader(io.StringIO(data.decode(), newline="")))

    def add(self, columns: Iterable[np.ndarray]) -> None:
        """Adds rows, given by column, in the order of the header."""
        self._write(_csv(_rows(columns)))

    def settle(self) -> tuple[int, str]:
        """The size and checksum of the file, once all of it is on the disk: for `go_on`."""
        assert self._file is not None
        os.fsync(self._file.fileno())
        return self._size, self._hash.hexdigest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, text: str) -> None:
        assert self._file is not None
        data = text.encode()
        rest = memoryview(data)
        while rest:  # a disk that is almost full takes a part
            rest = rest[self._file.write(rest) :]
        self._hash.update(data)
        self._size += len(data)


def _rows(columns: Iterable[np.ndarray]) -> Iterable[Sequence[Any]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    """Lines of CSV; NaN is left empty."""
    text = io.StringIO()
    lines = (["" if value != value else value for value in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table that are whole: the last one may be being written."""
    return list(csv.DictReader(io.StringIO(whole_rows(path), newline="")))


def whole_rows(path: Path) -> str:
    """The text of a table without a last row that has too few cells or too many."""
    try:
        text = b"".join(path.read_bytes().rpartition(b"\n")[:2]).decode()
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None
    last = text.rfind("\n", 0, -1) + 1
    first, row = (next(csv.reader([line]), []) for line in (text.partition("\n")[0], text[last:]))
    return text if len(row) == len(first) else text[:last]


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """A flat table of strings, numbers, flags and lists of these; what is None is left out."""
    known = {name: value for name, value in values.items() if value is not None}
    write_text(path, require("tomli_w", "sim").dumps(known))


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], text: Mapping[str, str] | None = None
) -> None:
    """Named arrays as safetensors, and named texts beside them."""
    with atomic_write(path, "wb") as file:
        ready = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        file.write(save(ready, dict(text) if text else None))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def write_checked(path: Path, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """JSON and named arrays in one file, with a checksum of all."""
    text = to_json(content, indent=None)
    write_arrays(path, arrays, {"content": text, "sha256": _checksum(text, arrays)})


def read_checked(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_checked` wrote, or an error where it is not that."""
    arrays = read_arrays(path)
    with safe_open(path, "numpy") as file:
        text = file.metadata() or {}
    if "sha256" not in text or "content" not in text:
        raise RunError(f"{path} is not of this package: it has no checksum.")
    if _checksum(text["content"], arrays) != text["sha256"]:
        raise RunError(f"{path} is damaged: its checksum does not fit.")
    return json.loads(text["content"]), arrays


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

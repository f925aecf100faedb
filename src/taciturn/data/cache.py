"""Parsed data, kept in the cache folder: arrays with a checksum, and what they were made of.

What an interrupted run, another version, other source files or a failing disk left is noticed and
made anew.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import places
from taciturn.data.dataset import Dataset
from taciturn.errors import DataError, RunError
from taciturn.files import sweep
from taciturn.runs import read_checked, write_checked

log = logging.getLogger("taciturn")

VERSION = 6
_SAMPLES, _SAMPLE = 16, 1 << 20  # how many blocks of a large file are looked at, and their bytes


def cached(name: str, sources: Sequence[Path], build: Callable[[], Dataset]) -> Dataset:
    """What `build` returns, from the cache where that is sound, else built and kept.

    Args:
      name: of the data and of the way they are read; another name, another cache.
      sources: the files that `build` reads; a change of any makes the cache stale.
      build: parses them.
    """
    signature = [known_by(path) for path in sources]
    paths = json.dumps([row[0] for row in signature]).encode()
    file = f"{name}-{hashlib.sha256(paths).hexdigest()[:12]}.safetensors"
    path = places.cache_folder() / "parsed" / file
    sweep(path.parent)  # of builds that were killed
    found = _read(path, signature)
    if found is not None:
        return found
    dataset = build()
    try:
        _write(path, dataset, signature)
    except (OSError, RunError) as error:
        log.warning("%s cannot be kept and is parsed again each time: %s", name, error)
    return dataset


def known_by(path: Path) -> list[Any]:
    """What a source file is known by: its place, number, size, times, and a look at its content.

    Times can be set and numbers are given again, so blocks of the file are read: all of a small
    one, and evenly spaced ones of a large one.
    """
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            seen = hashlib.blake2b(digest_size=16)
            last = max(0, about.st_size - _SAMPLE)
            for start in np.linspace(0, last, min(_SAMPLES, 1 + -(-last // _SAMPLE)), dtype=int):
                file.seek(start)
                seen.update(file.read(_SAMPLE))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    times = [about.st_mtime_ns, about.st_ctime_ns]
    return [str(path.resolve()), about.st_ino, about.st_size, *times, seen.hexdigest()]


def _read(path: Path, signature: list[Any]) -> Dataset | None:
    """The dataset in this file, or None where the file is not there or cannot be trusted."""
    if not path.exists():
        return None
    try:
        header, arrays = read_checked(path)
    except RunError as error:
        log.warning("%s It is made anew.", error)
        return None
    if header["version"] != VERSION or header["sources"] != signature:
        return None
    train, test = ({key.removeprefix(split): array for key, array in arrays.items()
                    if key.startswith(split)} for split in ("train.", "test."))  # fmt: skip
    return Dataset(tuple(header["names"]), train, arrays["rows"], test or None,
                   header["left_out"], header["counts"], arrays.get("whose"))  # fmt: skip


def _write(path: Path, dataset: Dataset, signature: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"train.{key}": array for key, array in dataset.train.items()} | {
        f"test.{key}": array for key, array in (dataset.test or {}).items()
    }
    if dataset.test_clients is not None:
        arrays["whose"] = dataset.test_clients
    header = {
        "version": VERSION,
        "sources": signature,
        "names": dataset.names,
        "left_out": dataset.left_out,
        "counts": dataset.counts,
    }
    write_checked(path, header, arrays | {"rows": np.asarray(dataset.rows)})

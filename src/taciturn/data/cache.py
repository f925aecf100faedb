"""Parsed data, kept in the cache folder with a checksum and a description of their source files.

A cache that is damaged, or was made by another version or of other files, is made anew.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data.dataset import Dataset
from taciturn.data.sources import cache_folder
from taciturn.errors import DataError, RunError
from taciturn.runs import read_checked, write_checked

log = logging.getLogger("taciturn")

VERSION = 9
_SAMPLES, _SAMPLE = 16, 1 << 20  # blocks of a large file that are hashed, and bytes of each


def cached(name: str, sources: Sequence[Path], build: Callable[[], Dataset]) -> Dataset:
    """The dataset that `build` makes of the files `sources`, from the cache where it is current.

    `name` stands for the data and for the way they are read: another name has another cache.
    """
    known = [known_by(path) for path in sources]
    places = json.dumps([place for place, *_ in known]).encode()
    file = f"{name}-{hashlib.sha256(places).hexdigest()[:12]}.safetensors"
    path, signature = cache_folder() / "parsed" / file, [VERSION, *known]
    if (found := _read(path, signature)) is not None:
        return found
    dataset = build()
    header = {"sources": signature, "names": dataset.names, "left_out": dataset.left_out,
              "counts": dataset.counts, "about": dataset.about}  # fmt: skip
    arrays = {f"train.{key}": array for key, array in dataset.train.items()}
    arrays |= {f"test.{key}": array for key, array in (dataset.test or {}).items()}
    if dataset.test_clients is not None:
        arrays["whose"] = dataset.test_clients
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_checked(path, header, arrays | {"rows": np.asarray(dataset.rows)})
    except (OSError, RunError) as error:
        log.warning("%s cannot be kept and is parsed again each time: %s", name, error)
    return dataset


def known_by(path: Path) -> list[Any]:
    """What tells a source file from another: place, inode, size, times, and a hash of its content.

    Times can be set and inodes are used again, so the content counts too: all of a small file, and
    evenly spaced blocks of a large one.
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
    """The dataset in this file, or None where the file is missing, damaged or out of date."""
    if not path.exists():
        return None
    try:
        header, arrays = read_checked(path)
    except RunError as error:
        log.warning("%s It is made anew.", error)
        return None
    if header.pop("sources") != signature:
        return None
    train, test = ({key.removeprefix(split): array for key, array in arrays.items()
                    if key.startswith(split)} for split in ("train.", "test."))  # fmt: skip
    names, whose = tuple(header.pop("names")), arrays.get("whose")
    return Dataset(names, train, arrays["rows"], test or None, test_clients=whose, **header)

"""Parsed data, kept: a file of arrays, mapped into memory, and a header that vouches for them.

The first line is a checksum of all that follows. The header is a line of JSON. It names the version
of this layout, the source files with what they are known by, and every array with its form; the
arrays follow in that order. What an interrupted run, another version, other source files or a
failing disk left is noticed and made anew.
"""

import hashlib
import json
import logging
import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import places
from taciturn.data.dataset import Dataset
from taciturn.errors import DataError
from taciturn.files import atomic_write, sweep

log = logging.getLogger("taciturn")

VERSION = 5
_ALIGN = 64  # bytes; every array begins at a multiple
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
    file = f"{name}-{hashlib.sha256(paths).hexdigest()[:12]}.arrays"
    path = places.cache_folder() / "parsed" / file
    sweep(path.parent)  # of builds that were killed
    found = _read(path, signature)
    if found is not None:
        return found
    dataset = build()
    try:
        _write(path, dataset, signature)
    except OSError as error:
        log.warning("%s cannot be kept in %s (%s): it is parsed again each time.",
                    name, path.parent, error.strerror)  # fmt: skip
        return dataset
    return _read(path, signature) or dataset


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
            steps = min(_SAMPLES, -(-about.st_size // _SAMPLE)) - 1
            for i in range(steps + 1):
                file.seek(last * i // max(1, steps))
                seen.update(file.read(_SAMPLE))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    times = [about.st_mtime_ns, about.st_ctime_ns]
    return [str(path.resolve()), about.st_ino, about.st_size, *times, seen.hexdigest()]


def _read(path: Path, signature: list[Any]) -> Dataset | None:
    """The dataset in this file, or None where the file cannot be trusted."""
    try:
        with open(path, "rb") as file:
            checksum = int(file.readline(), 16)
            start = file.tell()
            header = json.loads(file.readline())
            if header["version"] != VERSION or header["sources"] != signature:
                return None
            arrays: dict[str, np.ndarray] = {}
            end = file.tell()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if zlib.crc32(memoryview(content)[start:]) != checksum:
                    log.warning("%s has changed since it was written: it is made anew.", path)
                    return None
            for key, (dtype, shape) in header["arrays"].items():
                # Mapped, not read: a page comes in when it is touched.
                start = end + -end % _ALIGN
                arrays[key] = np.memmap(file, np.dtype(dtype), "r", start, tuple(shape))
                end = start + arrays[key].nbytes
        if path.stat().st_size != end:
            return None
        return Dataset(
            tuple(header["names"]),
            {key.removeprefix("train."): arrays[key] for key in arrays if key.startswith("train.")},
            np.array(header["rows"]),
            {key.removeprefix("test."): arrays[key] for key in arrays if key.startswith("test.")}
            or None,
            header["left_out"],
            header["counts"],
            arrays.get("test_clients"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, dataset: Dataset, signature: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"train.{key}": array for key, array in dataset.train.items()}
    arrays |= {f"test.{key}": array for key, array in (dataset.test or {}).items()}
    if dataset.test_clients is not None:
        arrays["test_clients"] = dataset.test_clients
    header = {
        "version": VERSION,
        "sources": signature,
        "arrays": {key: [array.dtype.str, array.shape] for key, array in arrays.items()},
        "names": dataset.names,
        "rows": dataset.rows.tolist(),
        "left_out": dataset.left_out,
        "counts": dataset.counts,
    }
    with atomic_write(path, "wb") as file:
        checksum = 0

        def write(part: Any) -> None:
            nonlocal checksum
            checksum = zlib.crc32(part, checksum)
            file.write(part)

        file.write(b"00000000\n")
        write(json.dumps(header).encode() + b"\n")
        for array in arrays.values():
            write(bytes(-file.tell() % _ALIGN))
            write(np.ascontiguousarray(array).data)
        file.seek(0)
        file.write(f"{checksum:08x}".encode())

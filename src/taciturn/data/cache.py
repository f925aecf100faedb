"""Parsed data, kept: a file of arrays, mapped into memory, and a header that vouches for them.

The header is a line of JSON. It names the version of this layout, the source files with their sizes
and times, and every array with its form; the arrays follow in that order. What an interrupted run,
another version or other source files left is noticed and made anew.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import places
from taciturn.data.dataset import Dataset
from taciturn.files import replacing

log = logging.getLogger("taciturn")

VERSION = 3
_ALIGN = 64  # bytes; every array begins at a multiple


def cached(name: str, sources: Sequence[Path], build: Callable[[], Dataset]) -> Dataset:
    """What `build` returns, from the cache where that is sound, else built and kept.

    Args:
      name: of the data and of the way they are read; another name, another cache.
      sources: the files that `build` reads; a change of any makes the cache stale.
      build: parses them.
    """
    signature = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in sources]
    paths = json.dumps([row[0] for row in signature]).encode()
    file = f"{name}-{hashlib.sha256(paths).hexdigest()[:12]}.arrays"
    path = places.cache_folder() / "parsed" / file
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


def _read(path: Path, signature: list[Any]) -> Dataset | None:
    """The dataset in this file, or None where the file cannot be trusted."""
    try:
        with open(path, "rb") as file:
            header = json.loads(file.readline())
            if header["version"] != VERSION or header["sources"] != signature:
                return None
            arrays: dict[str, np.ndarray] = {}
            end = file.tell()
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
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, dataset: Dataset, signature: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"train.{key}": array for key, array in dataset.train.items()}
    arrays |= {f"test.{key}": array for key, array in (dataset.test or {}).items()}
    header = {
        "version": VERSION,
        "sources": signature,
        "arrays": {key: [array.dtype.str, array.shape] for key, array in arrays.items()},
        "names": dataset.names,
        "rows": dataset.rows.tolist(),
        "left_out": dataset.left_out,
        "counts": dataset.counts,
    }
    with replacing(path, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        for array in arrays.values():
            file.write(bytes(-file.tell() % _ALIGN))
            file.write(np.ascontiguousarray(array).data)

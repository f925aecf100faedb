"""Parsed data, kept: flat arrays that are mapped into memory, and a header that vouches for them.

A cache is a folder of `.npy` files and `header.json`, which names the version of this layout, the
source files with their sizes and times, and the form of every array. The folder is written under
another name and renamed when it is whole; what an interrupted run, another version or other source
files left is noticed and made anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import places
from taciturn.data.dataset import Dataset

log = logging.getLogger("taciturn")

VERSION = 2


def cached(name: str, sources: Sequence[Path], build: Callable[[], Dataset]) -> Dataset:
    """What `build` returns, from the cache where that is sound, else built and kept.

    Args:
      name: of the data and of the way they are read; another name, another cache.
      sources: the files that `build` reads; a change of any makes the cache stale.
      build: parses them.
    """
    signature = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in sources]
    paths = json.dumps([row[0] for row in signature]).encode()
    folder = places.cache_folder() / "parsed" / f"{name}-{hashlib.sha256(paths).hexdigest()[:12]}"
    found = _read(folder, signature)
    if found is not None:
        return found
    dataset = build()
    try:
        _write(folder, dataset, signature)
    except OSError as error:
        log.warning("%s cannot be kept in %s (%s): it is parsed again each time.",
                    name, folder, error.strerror)  # fmt: skip
        return dataset
    return _read(folder, signature) or dataset


def _read(folder: Path, signature: list[Any]) -> Dataset | None:
    """The dataset in this folder, or None where the folder cannot be trusted."""
    try:
        header = json.loads((folder / "header.json").read_text("utf-8"))
        if header["version"] != VERSION or header["sources"] != signature:
            return None
        arrays = {}
        for key, (dtype, shape) in header["arrays"].items():
            # Mapped, not read: a page comes in when it is touched. A file that was cut short is
            # refused here, because the map would reach beyond its end.
            array = np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False)
            if str(array.dtype) != dtype or list(array.shape) != shape:
                return None
            arrays[key] = array
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


def _write(folder: Path, dataset: Dataset, signature: list[Any]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"train.{key}": array for key, array in dataset.train.items()}
    arrays |= {f"test.{key}": array for key, array in (dataset.test or {}).items()}
    header = {
        "version": VERSION,
        "sources": signature,
        "arrays": {key: [str(array.dtype), list(array.shape)] for key, array in arrays.items()},
        "names": list(dataset.names),
        "rows": dataset.rows.tolist(),
        "left_out": dataset.left_out,
        "counts": dataset.counts,
    }
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for key, array in arrays.items():
            with open(beside / f"{key}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        (beside / "header.json").write_text(json.dumps(header), "utf-8")
        if folder.exists():  # a rename does not replace a folder that has something in it
            shutil.rmtree(folder)
        os.replace(beside, folder)
    except OSError:
        # Another process may have been first: then its cache is as good.
        if _read(folder, signature) is None:
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)

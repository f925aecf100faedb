"""Data that people have themselves: one `npz` file, or a folder of arrays for every client."""

import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data.dataset import (
    Dataset,
    Examples,
    check_inputs,
    check_labels,
    collect,
    count_classes,
    grouped,
)  # fmt: skip
from taciturn.errors import DataError


def read_npz(path: Path) -> Dataset:
    """The examples of an `npz` file, grouped by client in the order of their names."""
    arrays = _npz_arrays(path)
    for key in ("x", "y", "client"):
        if key not in arrays:
            raise DataError(f"{path} has no array `{key}`; it has {', '.join(arrays) or 'none'}.")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{path} has only one of `x_test` and `y_test`: a test set needs both.")
    everyone = _examples(path, arrays["x"], arrays["y"])
    whose = _whose(path, "client", arrays, "x")
    classes = count_classes(path, everyone["y"])
    dataset = grouped(path, everyone, whose, {"classes": classes})
    if "x_test" not in arrays:
        return dataset
    x, y = arrays["x_test"], arrays["y_test"]
    test = _examples(f"{path}, test set", x, y, classes, like=everyone)
    if not len(y):
        raise DataError(f"{path}: `x_test` and `y_test` have no examples.")
    tested = None  # numbers of clients, also of one that has no examples to train on
    if "client_test" in arrays:
        names = _whose(path, "client_test", arrays, "y_test")
        tested = np.unique(names, return_inverse=True)[1].astype(np.int32)
    return replace(dataset, test=dict(test), test_clients=tested)


def _whose(path: Path, key: str, arrays: dict[str, np.ndarray], of: str) -> np.ndarray:
    """The client of each example, a number or a name."""
    whose = arrays[key]
    if whose.ndim != 1 or whose.dtype.kind not in "iuSU":
        raise DataError(
            f"{path}: `{key}` must be a number or a name for each example, got {whose.dtype} of "
            f"shape {whose.shape}."
        )
    if len(whose) != len(arrays[of]):
        raise DataError(f"{path} has {len(arrays[of])} `{of}` and the clients of {len(whose)}.")
    return whose


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `npz` file without pickles."""
    try:
        with zipfile.ZipFile(path) as packed:
            whole = sum(part.file_size for part in packed.infolist())
        check_unpacked(path, path.stat().st_size, whole)
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except DataError:
        raise
    except Exception as error:  # of NumPy, zipfile and zlib
        raise DataError(f"{path} is no whole npz file without pickles: {error}.") from None


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Raises if a file would unpack to more than 1 GiB and more than 100 times its size."""
    if unpacked > max(1 << 30, 100 * packed):
        raise DataError(
            f"{path} is refused: its {packed / 1e6:.3g} MB unpack to {unpacked / 1e9:.3g} GB, more "
            f"than 100 times as much."
        )


def read_folder(root: Path) -> Dataset:
    """The clients of a folder of folders, of which there is one at least, by name."""
    train: dict[str, Examples] = {}
    test: dict[str, Examples] = {}
    for place in sorted(path for path in root.iterdir() if path.is_dir()):
        for split, suffix in ((train, ""), (test, "_test")):
            files = [place / f"{key}{suffix}.npy" for key in ("x", "y")]
            if split is train or any(file.exists() for file in files):
                x, y = map(_load, files)
                first = next(iter(train.values()), None)
                split[place.name] = _examples(place, x, y, like=first)
    classes = count_classes(root, np.concatenate([examples["y"] for examples in train.values()]))
    for name, examples in test.items():
        check_labels(root / name, examples["y"], classes)
    return collect(root, train.items(), test.items() if test else None, {"classes": classes})


def _load(path: Path) -> np.ndarray:
    try:
        # Without pickles, and mapped: a header cannot ask for more memory than the file has.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # of NumPy
        raise DataError(f"{path} cannot be read: {error}.") from None


def _examples(
    where: Any,
    x: np.ndarray,
    y: np.ndarray,
    classes: int | None = None,
    like: Examples | None = None,
) -> Examples:
    """Inputs and labels, checked; inputs have the dtype and the shape of those of `like`."""
    if x.ndim < 1 or x.dtype.kind not in "uif":
        seen = f"{x.dtype} of shape {x.shape}"
        raise DataError(f"{where}: `x` must be numbers, one entry per example, got {seen}.")
    if not math.prod(x.shape[1:]):
        raise DataError(f"{where}: `x` of shape {x.shape} has no numbers.")
    labels = check_labels(where, y, classes)
    if len(x) != len(labels):
        raise DataError(f"{where}: {len(x)} `x` and {len(labels)} `y`.")
    examples = {"x": check_inputs(f"{where}: `x`", x), "y": labels}
    seen, wanted = (f"{e['x'].dtype} of {e['x'].shape[1:]}" for e in (examples, like or examples))
    if seen != wanted:
        raise DataError(f"{where}: `x` is {seen}, that of others {wanted}.")
    return examples

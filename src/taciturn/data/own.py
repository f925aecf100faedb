"""Data that people have themselves: one `npz` file, or a folder of arrays for every client."""

import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from taciturn.data.dataset import Dataset, Examples, check_labels, collect
from taciturn.errors import DataError


def read_npz(path: Path) -> Dataset:
    """The examples of an `npz` file, grouped by client in the order of their names."""
    arrays = npz_arrays(path)
    for key in ("x", "y", "client"):
        if key not in arrays:
            raise DataError(f"{path} has no array `{key}`; it has {', '.join(arrays) or 'none'}.")
    alone = {"x_test", "y_test"} & arrays.keys()
    if len(alone) == 1:
        other = "y_test" if "x_test" in alone else "x_test"
        raise DataError(f"{path} has `{alone.pop()}` and no `{other}`: a test set needs both.")
    whose = _whose(path, "client", arrays)
    everyone = _examples(path, "all", arrays["x"], arrays["y"])
    if len(whose) != len(everyone["x"]):
        raise DataError(f"{path} has {len(everyone['x'])} `x` and the clients of {len(whose)}.")
    dataset = grouped(path, everyone, whose, classes_of(path, everyone["y"]))
    if not alone:
        return dataset
    test = _examples(path, "x_test", arrays["x_test"], arrays["y_test"], dataset.counts["classes"])
    if not len(test["y"]):
        raise DataError(f"{path}: `x_test` and `y_test` have no examples.")
    _check_alike(path, "x_test", test, everyone)
    return replace(dataset, test=dict(test), test_clients=_test_clients(path, arrays, test["y"]))


def _whose(path: Path, key: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    whose = arrays[key]
    if whose.ndim != 1 or whose.dtype.kind not in "iuSU":
        raise DataError(
            f"{path}: `{key}` must be a number or a name for each example, got {whose.dtype} of "
            f"shape {whose.shape}."
        )
    return whose


def _test_clients(
    path: Path, arrays: dict[str, np.ndarray], labels: np.ndarray
) -> np.ndarray | None:
    """Whose the test examples are, also where somebody has no examples to train on."""
    if "client_test" not in arrays:
        return None
    whose = _whose(path, "client_test", arrays)
    if len(whose) != len(labels):
        raise DataError(f"{path} has {len(labels)} `y_test` and the clients of {len(whose)}.")
    return np.unique(whose, return_inverse=True)[1].astype(np.int32)


def grouped(place: Any, everyone: Examples, whose: np.ndarray, counts: dict[str, int]) -> Dataset:
    """Examples by client, in the order of the clients' names; `whose` names one for each."""
    names, owners = np.unique(whose, return_inverse=True)
    if not len(names):
        raise DataError(f"{place} has no client with a training example.")
    order, rows = np.argsort(owners, kind="stable"), np.bincount(owners)
    train = {key: array[order] for key, array in everyone.items()}
    return Dataset(tuple(map(str, names.tolist())), train, rows, None, 0, counts)


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `npz` file, when their headers are in order."""
    try:
        with open(path, "rb") as raw, zipfile.ZipFile(raw) as archive:
            whole = sum(part.file_size for part in archive.infolist())
            check_unpacked(path, path.stat().st_size, whole)
            found = {}
            for part in archive.infolist():
                with archive.open(part) as file:
                    found[part.filename.removesuffix(".npy")] = _array(path, file, part.file_size)
            return found
    except (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no whole npz file without pickles: {error}.") from None


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Raises if a file would unpack to far more than data ever do."""
    if unpacked > max(1 << 30, 100 * packed):
        raise DataError(
            f"{path} is refused: its {packed / 1e6:.3g} MB unpack to {unpacked / 1e9:.3g} GB, more "
            f"than 100 times as much."
        )


def _array(path: Path, file: IO[bytes], size: int) -> np.ndarray:
    """An array in NumPy's format, if a header says what is there."""
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    if version[0] not in read:
        raise ValueError(f"version {version[0]} of NumPy's format is not known")
    shape, by_column, dtype = read[version[0]](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    count = math.prod(shape)
    if file.tell() + count * dtype.itemsize != size or len(shape) > 32:
        raise ValueError(f"its header says {dtype} of {shape}, its size is {size} bytes")
    flat = np.frombuffer(file.read(), dtype)
    return flat.reshape(shape, order="F" if by_column else "C")


def read_folder(root: Path) -> Dataset:
    """The clients of a folder of folders, by name."""
    train: dict[str, Examples] = {}
    test: dict[str, Examples] = {}
    for place in sorted(path for path in root.iterdir() if path.is_dir()):
        for split, suffix in ((train, ""), (test, "_test")):
            files = [place / f"{key}{suffix}.npy" for key in ("x", "y")]
            if suffix and not any(file.exists() for file in files):
                continue
            split[place.name] = _examples(place, place.name, _load(files[0]), _load(files[1]))
    first = next(iter(train.values()), None)
    if first is None:
        raise DataError(f"{root} has no folders with x.npy and y.npy, one per client.")
    for name, examples in [*train.items(), *test.items()]:
        _check_alike(root / name, name, examples, first)
    counts = classes_of(root, np.concatenate([examples["y"] for examples in train.values()]))
    for name, examples in test.items():
        check_labels(root / name, name, examples["y"], counts["classes"])
    return collect(root, train, test or None, counts)


def _load(path: Path) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            return _array(path, file, path.stat().st_size)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None


def _examples(
    place: Path, client: str, x: np.ndarray, y: np.ndarray, classes: int = 2**31 - 1
) -> Examples:
    if x.ndim < 1 or x.dtype.kind not in "uif":
        raise DataError(
            f"{place}, client `{client}`: `x` must be numbers, one entry per example, "
            f"got {x.dtype} of shape {x.shape}."
        )
    if not math.prod(x.shape[1:]):
        raise DataError(f"{place}, client `{client}`: `x` of shape {x.shape} has no numbers.")
    labels = check_labels(place, client, y, classes)
    if len(x) != len(labels):
        raise DataError(f"{place}, client `{client}`: {len(x)} `x` and {len(labels)} `y`.")
    # Bytes stay bytes, a quarter of the memory; all else is computed with in float32.
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        raise DataError(f"{place}, client `{client}`: `x` must be finite.")
    return {"x": x, "y": labels}


def _check_alike(place: Path, client: str, examples: Examples, first: Examples) -> None:
    seen, wanted = examples["x"], first["x"]
    if seen.shape[1:] != wanted.shape[1:] or seen.dtype != wanted.dtype:
        raise DataError(
            f"{place}, client `{client}`: `x` is {seen.dtype} of {seen.shape[1:]}, that of others "
            f"{wanted.dtype} of {wanted.shape[1:]}."
        )


def classes_of(place: Any, labels: np.ndarray) -> dict[str, int]:
    """How many classes there are: one more than the largest label."""
    classes = int(labels.max()) + 1 if labels.size else 1
    if classes > max(1_000, len(labels)):
        raise DataError(
            f"{place} has {len(labels)} examples and labels up to {classes - 1}: number the "
            f"classes from 0, one after another."
        )
    return {"classes": classes}

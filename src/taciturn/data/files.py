"""Data that people have themselves: an `npz` file, a folder for every client, MNIST's idx files."""

import gzip
import math
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from taciturn.data import dataset
from taciturn.data.dataset import Dataset, Examples, naming
from taciturn.errors import DataError

_IDX_PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_npz(path: Path) -> Dataset:
    """The examples of an `npz` file, grouped by client in the order of their names."""
    arrays = _npz_arrays(path)
    for key in ("x", "y", "client"):
        if key not in arrays:
            raise DataError(f"{path} has no array `{key}`; it has {', '.join(arrays) or 'none'}.")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{path} has only one of `x_test` and `y_test`: a test set needs both.")
    with naming(path):
        everyone = _examples(arrays["x"], arrays["y"])
        classes = dataset.count_classes(everyone["y"])
        whose = _whose(arrays, "client", "x")
    found = dataset.grouped(path, everyone, whose, {"classes": classes})
    if "x_test" not in arrays:
        return found
    with naming(f"{path}, test set"):
        test = _examples(arrays["x_test"], arrays["y_test"], classes, like=everyone)
        if not len(test["y"]):
            raise DataError("`x_test` and `y_test` have no examples.")
        tested = None  # numbers of clients, also of one that has no examples to train on
        if "client_test" in arrays:
            names = _whose(arrays, "client_test", "y_test")
            tested = np.unique(names, return_inverse=True)[1].astype(np.int32)
    return replace(found, test=dict(test), test_clients=tested)


def _whose(arrays: dict[str, np.ndarray], key: str, of: str) -> np.ndarray:
    """The client of each example, a number or a name."""
    whose = arrays[key]
    if whose.ndim != 1 or whose.dtype.kind not in "iuSU":
        seen = f"{whose.dtype} of shape {whose.shape}"
        raise DataError(f"`{key}` must be a number or a name for each example, got {seen}.")
    if len(whose) != len(arrays[of]):
        raise DataError(f"`{of}` has {len(arrays[of])} entries and `{key}` {len(whose)}.")
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
        much = f"{packed / 1e6:.3g} MB unpack to {unpacked / 1e9:.3g} GB"
        raise DataError(f"{path} is refused: its {much}, more than 100 times as much.")


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
                with naming(place):
                    split[place.name] = _examples(x, y, like=first)
    found = dataset.collect(root, train.items(), test.items() if test else None)
    with naming(root):
        classes = dataset.count_classes(found.train["y"])
    for name, examples in test.items():
        with naming(root / name):
            dataset.check_labels(examples["y"], classes)
    return replace(found, counts={"classes": classes})


def _load(path: Path) -> np.ndarray:
    try:
        # Without pickles, and mapped: a header cannot ask for more memory than the file has.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # of NumPy
        raise DataError(f"{path} cannot be read: {error}.") from None


def _examples(
    x: np.ndarray, y: np.ndarray, classes: int | None = None, like: Examples | None = None
) -> Examples:
    """Inputs and labels, checked; inputs have the dtype and the shape of those of `like`."""
    if x.ndim < 1 or x.dtype.kind not in "uif":
        seen = f"{x.dtype} of shape {x.shape}"
        raise DataError(f"`x` must be numbers, one entry per example, got {seen}.")
    if not math.prod(x.shape[1:]):
        raise DataError(f"`x` of shape {x.shape} has no numbers.")
    labels = dataset.check_labels(y, classes)
    if len(x) != len(labels):
        raise DataError(f"{len(x)} `x` and {len(labels)} `y`.")
    examples = {"x": dataset.check_inputs("`x`", x), "y": labels}
    seen, wanted = (f"{e['x'].dtype} of {e['x'].shape[1:]}" for e in (examples, like or examples))
    if seen != wanted:
        raise DataError(f"`x` is {seen}, that of others {wanted}.")
    return examples


def find_idx(folder: Path) -> list[Path]:
    """The four files of an idx set, packed with gzip or not; `t10k` may be called `test`."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = []
    for part in _IDX_PARTS:
        words = (part, part.replace("t10k", "test"))
        own = next(filter(None, ([f for f in files if word in f.name] for word in words)), [])
        if not own:
            raise DataError(f"{folder} has no file called *{part}*, which an idx set needs.")
        if len(own) > 1:
            raise DataError(f"{folder} has several files of {part}: {own[0].name}, …")
        found.append(own[0])
    return found


def read_idx(files: list[Path], classes: int | None = None) -> Dataset:
    """Training images and labels, and test images and labels, as one client that has all of them.

    Without `classes`, there is one more than the largest label for training.
    """
    splits = []
    for images_file, labels_file in (files[:2], files[2:]):
        images, labels = idx_array(images_file), idx_array(labels_file)
        if images.ndim < 2 or images.dtype != np.uint8:
            seen = f"{images.dtype} of {images.shape}"
            raise DataError(f"{images_file} must hold images of bytes, got {seen}.")
        if not len(images) or labels.shape[:1] != images.shape[:1]:
            seen = f"labels of shape {labels.shape} for the {len(images)} images"
            raise DataError(f"{labels_file} has {seen} of {images_file}.")
        with naming(labels_file):
            labels = dataset.check_labels(labels, classes)
            classes = classes or dataset.count_classes(labels)
        splits.append({"x": images, "y": labels})
    train, test = splits
    if train["x"].shape[1:] != test["x"].shape[1:]:
        raise DataError(f"The images of {files[0]} and {files[2]} differ in size.")
    rows = np.array([len(train["y"])])
    return Dataset(("all",), train, rows, test, counts={"classes": classes or 0})


def idx_array(path: Path) -> np.ndarray:
    """The array of an idx file: two zero bytes, type, rank, big-endian lengths, and the numbers."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(4)
            if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES:
                seen = start.hex() or "nothing"
                raise DataError(f"{path} is no idx file: it begins with {seen}.")
            dtype, rank = np.dtype(_IDX_TYPES[start[2]]), start[3]
            lengths = file.read(4 * rank)
            if len(lengths) < 4 * rank or rank > 32:
                raise DataError(f"{path} is cut short: no lengths for its rank of {rank}.")
            shape = tuple(np.frombuffer(lengths, ">u4").tolist())
            expected = math.prod(shape) * dtype.itemsize
            if path.suffix == ".gz":
                check_unpacked(path, path.stat().st_size, expected)
            content = file.read(expected + 1 if path.suffix == ".gz" else -1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if (got := len(content)) != expected:
        raise DataError(f"{path} must have {expected} bytes for the shape {shape}, got {got}.")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))

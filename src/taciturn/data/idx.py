"""MNIST's idx layout: four files, packed with gzip or not."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from taciturn.data.dataset import Dataset, check_labels, count_classes
from taciturn.data.files import check_unpacked
from taciturn.errors import DataError

PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read(files: list[Path], classes: int | None = None) -> Dataset:
    """Training images and labels, and test images and labels, as one client that has all of them.

    Without `classes`, there is one more than the largest label for training.
    """
    splits = []
    for images_file, labels_file in (files[:2], files[2:]):
        images, labels = read_idx(images_file), read_idx(labels_file)
        if images.ndim < 2 or images.dtype != np.uint8:
            seen = f"{images.dtype} of {images.shape}"
            raise DataError(f"{images_file} must hold images of bytes, got {seen}.")
        if not len(images) or len(labels) != len(images):
            seen = f"{len(labels)} labels for the {len(images)} images"
            raise DataError(f"{labels_file} has {seen} of {images_file}.")
        labels = check_labels(labels_file, labels, classes)
        classes = classes or count_classes(labels_file, labels)
        splits.append({"x": images, "y": labels})
    train, test = splits
    if train["x"].shape[1:] != test["x"].shape[1:]:
        raise DataError(f"The images of {files[0]} and {files[2]} differ in size.")
    rows = np.array([len(train["y"])])
    return Dataset(("all",), train, rows, test, counts={"classes": classes or 0})


def read_idx(path: Path) -> np.ndarray:
    """The array of an idx file: two zero bytes, type, rank, big-endian lengths, and the numbers."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(4)
            if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _DTYPES:
                seen = start.hex() or "nothing"
                raise DataError(f"{path} is no idx file: it begins with {seen}.")
            dtype, rank = np.dtype(_DTYPES[start[2]]), start[3]
            lengths = file.read(4 * rank)
            if len(lengths) < 4 * rank or rank > 32:
                raise DataError(f"{path} is cut short: no lengths for its rank of {rank}.")
            shape = struct.unpack(f">{rank}I", lengths)
            expected = math.prod(shape) * dtype.itemsize
            if path.suffix == ".gz":
                check_unpacked(path, path.stat().st_size, expected)
            content = file.read(expected + 1 if path.suffix == ".gz" else -1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if (got := len(content)) != expected:
        raise DataError(f"{path} must have {expected} bytes for the shape {shape}, got {got}.")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def find(folder: Path, part: str) -> Path:
    """The file of this part; test files are called `t10k` or `test`."""
    for word in (part, part.replace("t10k", "test")):
        found = sorted(p for p in folder.glob(f"*{word}*") if p.is_file())
        if len(found) > 1:
            raise DataError(f"{folder} has several files of {word}: {found[0].name}, …")
        if found:
            return found[0]
    raise DataError(f"{folder} has no file called *{part}*, which an idx set needs.")

"""MNIST's idx layout: four files, packed with gzip or not."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from taciturn.data.dataset import Dataset, check_labels
from taciturn.errors import DataError

PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read(files: list[Path], classes: int | None = None) -> Dataset:
    """The four files as one client that has everything.

    Args:
      files: training images and labels, test images and labels.
      classes: how many labels there are; by default one more than the largest for training.
    """
    arrays = [read_idx(file) for file in files]
    if classes is None:
        classes = int(arrays[1].max()) + 1 if arrays[1].size else 1
    parts = []
    for (images_file, labels_file), images, labels in zip(
        (files[:2], files[2:]), arrays[::2], arrays[1::2], strict=True
    ):
        if images.ndim < 2 or images.dtype != np.uint8:
            raise DataError(
                f"{images_file} must hold images of bytes, got {images.dtype} of {images.shape}."
            )
        if not len(images) or len(labels) != len(images):
            raise DataError(
                f"{labels_file} has {len(labels)} labels for the {len(images)} images of "
                f"{images_file}."
            )
        parts.append({"x": images, "y": check_labels(labels_file, "all", labels, classes)})
    if parts[0]["x"].shape[1:] != parts[1]["x"].shape[1:]:
        raise DataError(f"The images of {files[0]} and {files[2]} differ in size.")
    return Dataset(
        ("all",), parts[0], np.array([len(arrays[0])]), parts[1], 0, {"classes": classes}
    )


def read_idx(path: Path) -> np.ndarray:
    """The array of an idx file: two zero bytes, type, rank, big-endian lengths, and the numbers."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise DataError(f"{path} is no idx file: it begins with {content[:4].hex() or 'nothing'}.")
    dtype, rank = np.dtype(_DTYPES[content[2]]), content[3]
    if len(content) < 4 + 4 * rank:
        raise DataError(f"{path} is cut short: {len(content)} bytes do not hold its header.")
    shape = struct.unpack_from(f">{rank}I", content, 4)
    expected = 4 + 4 * rank + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise DataError(
            f"{path} must have {expected} bytes for the shape {shape}, got {len(content)}."
        )
    return (
        np.frombuffer(content, dtype, offset=4 + 4 * rank)
        .reshape(shape)
        .astype(dtype.newbyteorder("="))
    )


def find(folder: Path, part: str) -> Path:
    """The file of this part, however the set spells it."""
    for word in (part, part.replace("t10k", "test")):
        found = sorted(p for p in folder.glob(f"*{word}*") if p.is_file())
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise DataError(f"{folder} has several files of {word}: {found[0].name}, …")
    raise DataError(f"{folder} has no file called *{part}*, which an idx set needs.")

"""EMNIST by writer: TFF's files, LEAF's JSON or the Hugging Face Hub, read."""

from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice
from taciturn.data import layouts, sources
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, check_labels, collect
from taciturn.errors import DataError

CLASSES = 62
FEATURES = ("pixels", "label")  # in TFF's files


def read(data: str | Path | None = None, source: str = "files") -> Dataset:
    """The images and labels of every writer; uint8 with white as 255, as published."""
    if choice("source", source, ("files", "huggingface")) == "huggingface":
        columns = ("writer_id", "image", "character")
        return layouts.read_hub("emnist", data, columns, _from_images)
    if not sources.find("emnist", data):
        folders = sources.folders("emnist", data)
        if leaf := layouts.read_leaf("emnist-leaf", folders, _from_lists):
            return leaf
    files = sources.find_or_fetch("emnist", data)
    return cached("emnist", files, lambda: read_tff(*files))


def read_tff(train: Path, test: Path) -> Dataset:
    """The writers of TFF's two files."""
    first, second = (layouts.read_tff(path, FEATURES, as_examples) for path in (train, test))
    return collect(train, first, second)


def _from_lists(x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.array(x, np.float32).reshape(len(x), 28, 28)
        labels = np.array(y) if y else np.zeros(0, np.int32)
    except (ValueError, TypeError):
        what = "every `x` must be 784 numbers, 28 × 28 pixels, and every `y` one."
        raise DataError(what) from None
    return as_examples(pixels, labels)


def _from_images(x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.stack([np.asarray(image.convert("L"), np.float32) for image in x]) / 255
    except (AttributeError, ValueError):
        raise DataError("`image` must be images of one size.") from None
    return as_examples(pixels, np.array(y))


def as_examples(pixels: np.ndarray, labels: np.ndarray) -> Examples:
    """Images and labels of one writer, with pixels in [0, 1] as bytes.

    The published files hold k / 255 in float32, which uint8 keeps without loss in a quarter of the
    memory: all of EMNIST is 0.5 GB on a device and not 2.1.
    """
    if pixels.ndim != 3 or pixels.shape[1:] != (28, 28):
        raise DataError(f"pixels must have the shape n × 28 × 28, got {pixels.shape}.")
    if not np.issubdtype(pixels.dtype, np.floating):
        raise DataError(f"pixels must be floating-point numbers, got {pixels.dtype}.")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):  # also false for NaN
        raise DataError(f"pixels must be in [0, 1], got {pixels.min()} to {pixels.max()}.")
    return {"x": np.rint(pixels * 255).astype(np.uint8), "y": check_labels(labels, CLASSES)}

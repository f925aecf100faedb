"""EMNIST by writer: TFF's files, LEAF's JSON or the Hugging Face Hub, read."""

from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice
from taciturn.data import hugging_face, leaf, sources, tff
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, check_labels, collect, wrong

CLASSES = 62
FEATURES = ("pixels", "label")  # in TFF's files


def read(data: str | Path | None = None, source: str = "files") -> Dataset:
    """The images and labels of every writer; uint8 with white as 255, as published."""
    if choice("source", source, ("files", "huggingface")) == "huggingface":
        name = sources.HUGGING_FACE["emnist"] if data is None else str(data)
        return hugging_face.load(name, ("writer_id", "image", "character"), _from_table)
    leaves = leaf.find(sources.folders("emnist", data))
    if leaves and not sources.find("emnist", data):
        return leaf.load("emnist-leaf", leaves, _from_leaf)
    files = sources.find_or_fetch("emnist", data)
    return cached("emnist", files, lambda: read_tff(*files))


def read_tff(train: Path, test: Path) -> Dataset:
    """The writers of TFF's two files."""
    return collect(train, tff.read(train, FEATURES, from_tff), tff.read(test, FEATURES, from_tff))


def from_tff(path: Path, client: str, arrays: dict[str, np.ndarray]) -> Examples:
    return _checked(path, client, arrays["pixels"], arrays["label"])


def _from_leaf(path: Path, client: str, x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.array(x, np.float32).reshape(len(x), 28, 28)
        labels = np.array(y) if y else np.zeros(0, np.int32)
    except (ValueError, TypeError):
        what = "every `x` must be 784 numbers, 28 × 28 pixels, and every `y` one"
        raise wrong(path, client, what) from None
    return _checked(path, client, pixels, labels)


def _from_table(name: str, client: str, x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.stack([np.asarray(image.convert("L"), np.float32) for image in x]) / 255
    except (AttributeError, ValueError):
        raise wrong(name, client, "`image` must be images of one size") from None
    return _checked(name, client, pixels, np.array(y))


def _checked(place: Any, client: str, pixels: np.ndarray, labels: np.ndarray) -> Examples:
    """Images and labels of one client, pixels in [0, 1] as bytes.

    The published files hold k / 255 in float32, which uint8 keeps without loss in a quarter of the
    memory: all of EMNIST is 0.5 GB on a device and not 2.1.
    """
    if pixels.ndim != 3 or pixels.shape[1:] != (28, 28):
        raise wrong(place, client, f"pixels must have the shape n × 28 × 28, got {pixels.shape}")
    if not np.issubdtype(pixels.dtype, np.floating):
        raise wrong(place, client, f"pixels must be floating-point numbers, got {pixels.dtype}")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):  # also false for NaN
        seen = f"{pixels.min()} to {pixels.max()}"
        raise wrong(place, client, f"pixels must be in [0, 1], got {seen}")
    levels = np.rint(pixels * 255).astype(np.uint8)
    return {"x": levels, "y": check_labels(place, client, labels, CLASSES)}

"""EMNIST by writer: TFF's files, LEAF's JSON or the Hugging Face Hub, read."""

from pathlib import Path
from typing import Any

import numpy as np

from taciturn.checks import choice
from taciturn.data import hugging_face, leaf, places, tff
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset, Examples, check_labels, check_pixels, collect
from taciturn.errors import DataError

CLASSES = 62


def read(data: str | Path | None = None, source: str = "files") -> Dataset:
    """The images and labels of every writer; uint8 with white as 255, as published."""
    if choice("source", source, ("files", "huggingface")) == "huggingface":
        name = places.HUGGING_FACE["emnist"] if data is None else str(data)
        return hugging_face.load(name, ("writer_id", "image", "character"), _from_table)
    found = places.find("emnist", data)
    leaves = None if found else leaf.find(places.folders("emnist", data))
    if leaves:
        return cached("emnist-leaf", leaves[0] + leaves[1], lambda: leaf.read(*leaves, _from_leaf))
    files = found or places.find_or_fetch("emnist", data)
    return cached("emnist", files, lambda: read_tff(*files))


def read_tff(train: Path, test: Path) -> Dataset:
    """The writers of TFF's two files."""
    features = ("pixels", "label")
    return collect(train, tff.read(train, features, _from_tff), tff.read(test, features, _from_tff))


def _from_tff(path: Path, client: str, arrays: dict[str, np.ndarray]) -> Examples:
    return {
        "x": check_pixels(path, client, arrays["pixels"]),
        "y": check_labels(path, client, arrays["label"], CLASSES),
    }


def _from_leaf(path: Path, client: str, x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.array(x, np.float32).reshape(len(x), 28, 28)
        labels = np.array(y) if y else np.zeros(0, np.int32)
    except (ValueError, TypeError):
        raise DataError(
            f"{path}, client `{client}`: every `x` must be 784 numbers, 28 × 28 pixels, and every "
            f"`y` one."
        ) from None
    return {
        "x": check_pixels(path, client, pixels),
        "y": check_labels(path, client, labels, CLASSES),
    }


def _from_table(name: str, client: str, x: list[Any], y: list[Any]) -> Examples:
    try:
        pixels = np.stack([np.asarray(image.convert("L"), np.float32) for image in x]) / 255
    except (AttributeError, ValueError):
        raise DataError(f"{name}, client `{client}`: `image` must be images of one size.") from None
    return {
        "x": check_pixels(name, client, pixels),
        "y": check_labels(name, client, np.array(y), CLASSES),
    }

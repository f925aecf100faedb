"""Fashion-MNIST and other sets in MNIST's idx layout, split over clients evenly or by label."""

from __future__ import annotations

import gzip
import logging
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from taciturn.core.parts import number
from taciturn.errors import DataError, InputError
from taciturn.tasks import places
from taciturn.tasks.cache import cached
from taciturn.tasks.dataset import Dataset, check_labels
from taciturn.tasks.emnist import unit
from taciturn.tasks.models import MLP
from taciturn.tasks.options import choice, whole
from taciturn.tasks.task import Stored, Task, classification

log = logging.getLogger("taciturn")

_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_PARTS = ("train-images", "train-labels", "t10k-images", "t10k-labels")


def fashion(
    data: str | Path | None = None,
    split: str = "iid",
    alpha: float = 0.3,
    clients: int = 100,
    seed: int = 0,
) -> Task:
    """Fashion-MNIST, 10 classes of clothing, with a 784-128-10 network.

    Args:
      data: the folder of the four idx files; by default TACITURN_DATA, the user's cache folder, or
        a download.
      split: `iid`, even and at random, or `dirichlet`: each label's examples are shared out by a
        draw of Dir(alpha).
      alpha: small means that clients have few labels.
      clients: how many clients there are; those who get nothing are left out.
      seed: of the split.
    """
    files = places.find_or_fetch("fashion", data)
    dataset = cached("fashion", files, lambda: read(files, classes=10))
    return _task("fashion", dataset, split, alpha, clients, seed)


def idx(
    data: str | Path | None = None,
    split: str = "iid",
    alpha: float = 0.3,
    clients: int = 100,
    seed: int = 0,
) -> Task:
    """Any images and labels in MNIST's idx layout (`--data`), with a one-layer network.

    Args:
      data: the folder of `train-images…`, `train-labels…`, `t10k-images…` and `t10k-labels…`
        (or `test-…`), packed with gzip or not.
      split, alpha, clients, seed: as for `fashion`.
    """
    if data is None:
        raise InputError("The task `idx` needs `data`, the folder of the four idx files.")
    files = [_find(Path(data), part) for part in _PARTS]
    dataset = cached("idx", files, lambda: read(files))
    return _task("idx", dataset, split, alpha, clients, seed)


def _task(name: str, dataset: Dataset, split: str, alpha: float, clients: int, seed: int) -> Task:
    clients, seed = whole("clients", clients), whole("seed", seed, 0)
    labels = np.asarray(dataset.train["y"])
    if clients > len(labels):
        raise InputError(f"`clients` must be at most {len(labels)} examples, got {clients}.")
    rng = np.random.default_rng(seed)
    if choice("split", split, ("iid", "dirichlet")) == "iid":
        owners = rng.permutation(np.arange(len(labels)) % clients)
    else:
        owners = dirichlet(labels, clients, alpha, rng)
    sizes = np.bincount(owners, minlength=clients)
    if (sizes == 0).any():
        log.warning("%s: %d of %d clients got no examples and are left out.",
                    name, (sizes == 0).sum(), clients)  # fmt: skip
    order = np.argsort(owners, kind="stable")
    loss, metrics = classification(lambda model, x, key: model(unit(x), key))
    inputs, classes = math.prod(dataset.train["x"].shape[1:]), dataset.counts["classes"]
    return Task(
        name,
        Stored.of({"x": dataset.train["x"][order], "y": labels[order]}, sizes[sizes > 0]),
        init=lambda key: MLP(key, inputs, 128, classes),
        loss=loss,
        metrics=metrics,
        test=dataset.test,
    )


def dirichlet(
    labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Who gets each example: every label is cut into shares drawn from Dir(alpha).

    References:
      Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution, 2019.
    """
    alpha = number("alpha", alpha, 1e-6, math.inf, "(0, inf)")
    owners = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        owners[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return owners


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


def _find(folder: Path, part: str) -> Path:
    """The file of this part, however the set spells it."""
    for word in (part, part.replace("t10k", "test")):
        found = sorted(p for p in folder.glob(f"*{word}*") if p.is_file())
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise DataError(f"{folder} has several files of {word}: {found[0].name}, …")
    raise DataError(f"{folder} has no file called *{part}*, which an idx set needs.")

"""What all sides of the peers benchmark share: the setting, the data, the command line, the report.

NumPy alone, since every side runs in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

COHORT = 10
LR = 0.1
CLIP = 1.0
EPOCHS = 1
BATCH = {"cnn": 20, "lstm": 4}
UNIT = {"cnn": "images", "lstm": "sequences"}

CLIENTS = 405
IMAGES = 200  # of every client
CLASSES = 62
TEST_IMAGES = 2_000

ROLES = 715
VOCABULARY = 90
LENGTH = 80
TEST_SEQUENCES = 200
# Sequences of 80 characters that a role of Shakespeare has in TFF's files, at most 128, by decile.
SPREAD = (1, 2, 4, 7, 10, 17, 26, 43, 78, 128, 128)


@dataclass(frozen=True)
class Data:
    """The clients' examples one after another, and a test set."""

    x: np.ndarray
    y: np.ndarray
    sizes: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])


def make_data(folder: Path, source: str | None) -> None:
    """Writes the data files of both tasks.

    Args:
      folder: where to.
      source: a folder with TFF's `emnist/fed_emnist_train.h5` and `..._test.h5`; without it the
        images are a synthetic stand-in of the same shape. The text is always synthetic, for work
        that does not depend on the letters; its clients have the sizes of Shakespeare's roles.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    real = Path(source or "", "emnist", "fed_emnist_train.h5")
    images = _emnist(real.parent) if source and real.exists() else _drawn(rng)
    np.savez_compressed(folder / "cnn.npz", **images)
    np.savez_compressed(folder / "lstm.npz", **_text(rng))


def load_data(folder: Path, task: str) -> Data:
    """The task's data: images (n, 28, 28) as float32 in [0, 1], or tokens (n, 80) as int32."""
    with np.load(folder / f"{task}.npz") as file:
        stored = dict(file)
    if task == "lstm":
        text, test = (stored[name].astype(np.int32) for name in ("tokens", "test_tokens"))
        return Data(text[:, :-1], text[:, 1:], stored["sizes"], test[:, :-1], test[:, 1:])
    rows = stored["rows"]
    pixels = stored["pixels"].astype(np.float32) / np.float32(255)
    return Data(
        pixels[rows.ravel()],
        stored["labels"].astype(np.int32)[rows.ravel()],
        np.full(len(rows), rows.shape[1]),
        stored["test_pixels"].astype(np.float32) / np.float32(255),
        stored["test_labels"].astype(np.int32),
    )


def _emnist(folder: Path) -> dict[str, np.ndarray]:
    import h5py

    pixels, labels, rows, total = [], [], [], 0
    with h5py.File(folder / "fed_emnist_train.h5") as file:
        for writer in list(file["examples"])[:CLIENTS]:
            # Every client has 200 images, so that all rounds are the same work: most have fewer,
            # and see theirs again.
            one = file["examples"][writer]
            n = min(IMAGES, len(one["label"]))
            pixels.append(np.round(255 * one["pixels"][:n]).astype(np.uint8))
            labels.append(one["label"][:n])
            rows.append(total + np.arange(IMAGES) % n)
            total += n
    with h5py.File(folder / "fed_emnist_test.h5") as file:
        writers = list(file["examples"])
        test_pixels = np.concatenate([file["examples"][w]["pixels"][:8] for w in writers])
        test_labels = np.concatenate([file["examples"][w]["label"][:8] for w in writers])
    return {
        "origin": np.array("EMNIST by writer"),
        "pixels": np.concatenate(pixels),
        "labels": np.concatenate(labels).astype(np.uint8),
        "rows": np.stack(rows).astype(np.int32),
        "test_pixels": np.round(255 * test_pixels[:TEST_IMAGES]).astype(np.uint8),
        "test_labels": test_labels[:TEST_IMAGES].astype(np.uint8),
    }


def _drawn(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """62 shapes of dark ink on white paper, shifted and worn: the stand-in for EMNIST."""
    coarse = rng.random((CLASSES, 7, 7)) < 0.35
    shapes = np.kron(coarse, np.ones((4, 4), bool))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, CLASSES, n).astype(np.uint8)
        shifts = rng.integers(-2, 3, (n, 2))
        pixels = np.empty((n, 28, 28), np.uint8)
        for i, (label, shift) in enumerate(zip(labels, shifts, strict=True)):
            pixels[i] = np.where(np.roll(shapes[label], shift, (0, 1)), 0, 255)
        worn = rng.random(pixels.shape) < 0.1
        return np.where(worn, 128, pixels).astype(np.uint8), labels

    pixels, labels = draw(CLIENTS * 100)
    test_pixels, test_labels = draw(TEST_IMAGES)
    rows = np.arange(CLIENTS)[:, None] * 100 + np.arange(IMAGES) % 100
    return {
        "origin": np.array("synthetic stand-in for EMNIST"),
        "pixels": pixels,
        "labels": labels,
        "rows": rows.astype(np.int32),
        "test_pixels": test_pixels,
        "test_labels": test_labels,
    }


def _text(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = np.round(np.interp(rng.random(ROLES), np.linspace(0, 1, len(SPREAD)), SPREAD))
    # Every letter has eight that may follow it, the first of them half of the time.
    following = rng.integers(1, VOCABULARY, (VOCABULARY, 8))
    total = int(sizes.sum()) + TEST_SEQUENCES
    tokens = np.empty((total, LENGTH + 1), np.uint8)
    tokens[:, 0] = rng.integers(1, VOCABULARY, total)
    for t in range(LENGTH):
        choice = np.where(rng.random(total) < 0.5, 0, rng.integers(0, 8, total))
        tokens[:, t + 1] = following[tokens[:, t], choice]
    return {
        "origin": np.array("synthetic text, client sizes of Shakespeare's roles"),
        "tokens": tokens[:-TEST_SEQUENCES],
        "sizes": sizes.astype(np.int32),
        "test_tokens": tokens[-TEST_SEQUENCES:],
    }


@dataclass(frozen=True)
class Plan:
    """What Taciturn draws for a seed: first weights, and who trains when on what in which order.

    Attributes:
      weights: Taciturn's arrays by name.
      cohorts: (rounds, cohort), the clients of each round.
      orders: (rounds, cohort, longest), a client's examples in the order in which it sees them.
    """

    weights: dict[str, np.ndarray]
    cohorts: np.ndarray
    orders: np.ndarray

    def order(self, round: int, slot: int, size: int) -> np.ndarray:
        return self.orders[round, slot, :size].astype(np.int64)


def plan_file(folder: Path, task: str, seed: int) -> Path:
    return folder / f"plan-{task}-{seed}.npz"


def save_plan(path: Path, plan: Plan) -> None:
    weights = {f"weights.{name}": array for name, array in plan.weights.items()}
    np.savez(path, cohorts=plan.cohorts, orders=plan.orders, **weights)


def load_plan(path: Path) -> Plan:
    with np.load(path) as file:
        stored = dict(file)
    weights = {
        name.removeprefix("weights."): array
        for name, array in stored.items()
        if name.startswith("weights.")
    }
    return Plan(weights, stored["cohorts"], stored["orders"])


def arguments(description: str, **more: Callable[[argparse.ArgumentParser], Any]) -> Any:
    """The command line of a side."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data files")
    parser.add_argument("--plan", type=Path, required=True, help="folder of the plans")
    parser.add_argument("--out", type=Path, help="where the report goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=1, help="rounds before the timed ones")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-dropout", action="store_true")
    for add in more.values():
        add(parser)
    return parser.parse_args()


class Laps:
    """The seconds between marks; on a GPU a mark waits for the device."""

    def __init__(self, wait: Callable[[], Any] = lambda: None) -> None:
        self._wait = wait
        self._marks: list[float] = []

    def mark(self) -> None:
        self._wait()
        self._marks.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return np.diff(self._marks).tolist()


def examples_of(data: Data, plan: Plan, rounds: range) -> list[int]:
    """How many examples the cohort of each of these rounds has."""
    return [int(data.sizes[plan.cohorts[t]].sum()) for t in rounds]


def versions(*packages: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def report(out: Path | None, **entries: Any) -> None:
    """Writes a side's report as JSON, to `out` or to the terminal."""
    text = json.dumps(entries, indent=1)
    if out is None:
        print(text)
    else:
        out.write_text(text + "\n")


def processor() -> str:
    """The CPU's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"

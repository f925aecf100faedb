"""Run folders as arrays: all that pictures and pages are drawn from.

Folders of simulations and of Flower federations alike, also while they are being written.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.errors import RunError
from taciturn.summary import summarise

_NEEDED = ("spoke", "bytes_up", "overhead_up", "accuracy")
_OTHERS = ("asked", "rejected", "threshold", "norm_mean", "norm_std", "bytes_up_full", "bytes_down",
           "overhead_down", "bytes_down_full", "loss", "worst_tenth")  # fmt: skip
_LAST = "worst_tenth"  # of the columns that every simulation has


@dataclass(frozen=True)
class Series:
    """One arm of a run; arrays are (seeds, rounds). NaN where something was not measured.

    Attributes:
      arm: its name in the folder.
      seeds: one per run.
      accuracy, worst_tenth: on the test set, of all clients and of the tenth that fares worst.
      asked, spoke, rejected: how many clients.
      threshold, norm_mean, norm_std: of the rule, and of the clients' updates.
      bytes_up, overhead_up: payload of the updates, and what is around it.
      bytes_up_full: both, if all had spoken in float32.
      bytes_down, overhead_down, bytes_down_full: the same from the server to the clients.
      loss: on the test set.
      metrics: the task's own, by name.
      ended: the arm's figures in `summary.json`; empty until the run is complete.
    """

    arm: str
    seeds: tuple[int, ...]
    accuracy: np.ndarray
    worst_tenth: np.ndarray
    asked: np.ndarray
    spoke: np.ndarray
    rejected: np.ndarray
    threshold: np.ndarray
    norm_mean: np.ndarray
    norm_std: np.ndarray
    bytes_up: np.ndarray
    overhead_up: np.ndarray
    bytes_up_full: np.ndarray
    bytes_down: np.ndarray
    overhead_down: np.ndarray
    bytes_down_full: np.ndarray
    loss: np.ndarray
    metrics: Any = field(default_factory=dict)
    ended: Any = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return self.spoke.shape[1]

    @property
    def uploaded(self) -> np.ndarray:
        """Bytes since the start, payload and overhead."""
        return (self.bytes_up + self.overhead_up).cumsum(1)

    def summary(self) -> dict[str, Any]:
        """What a table shows; percentages are of 100."""
        columns = {key: getattr(self, key) for key in (*_NEEDED, *_OTHERS)}
        partly = (*_NEEDED, "threshold", "worst_tenth", "loss")  # may be missing in some rounds
        known = {key: column for key, column in columns.items()
                 if key in partly or np.isfinite(column).all()}  # fmt: skip
        # What needs more than the rounds of one arm was written when the run ended.
        ended = {key: self.ended[key] for key in ("difference", "noise_floor") if key in self.ended}
        return {"rounds": self.rounds, "seeds": list(self.seeds)} | summarise(known) | ended


def read(folder: Path) -> dict[str, Series]:
    """The arms of a run folder."""
    path = folder / "metrics.csv"
    if not path.exists():
        raise RunError(f"{folder} has no metrics.csv: it is not the folder of a run.")
    try:
        names, table = _table(path.read_bytes())
    except (OSError, KeyError, ValueError) as error:
        raise RunError(f"{path} cannot be read as a run's metrics: {_text(error)}.") from None
    if not names:
        raise RunError(f"{path} has no rounds yet.")
    for name in ("spoke", "bytes_up", "overhead_up"):
        if not np.isfinite(table[name]).all():
            row = int(np.argmin(np.isfinite(table[name])))
            raise RunError(f"{path} has no `{name}` in row {row + 1}: it was cut.")
    cohort = config(folder).get("cohort", np.nan)
    table.setdefault("asked", np.full(len(table["arm"]), cohort, float))
    # Rows of arms and seeds may alternate; within one they are in the order of the rounds.
    order = np.lexsort((table["seed"], table["arm"]))
    runs_of_rows = np.stack([table["arm"][order], table["seed"][order]])
    starts = 1 + np.flatnonzero(np.diff(runs_of_rows).any(0))
    parts: dict[int, list[np.ndarray]] = {}
    for part in np.split(order, starts):
        parts.setdefault(int(table["arm"][part[0]]), []).append(part)
    # What all is compared with stands at the top.
    in_order = sorted(enumerate(names), key=lambda one: one[1] != "full")
    ended = summary(folder).get("arms")
    ended = ended if isinstance(ended, dict) else {}
    found = {name: _series(name, parts[i], table) for i, name in in_order}
    return {name: replace(one, ended=ended.get(name) or {}) for name, one in found.items()}


def _series(name: str, parts: list[np.ndarray], table: dict[str, np.ndarray]) -> Series:
    """The rounds that all seeds have; without seeds that are far behind, which run after others."""
    longest = max(map(len, parts))
    parts = [part for part in parts if len(part) >= longest / 2]
    rows = np.stack([part[: min(map(len, parts))] for part in parts])
    nothing = np.full(rows.shape, np.nan)
    known = (*_NEEDED, *_OTHERS)
    columns = {key: table[key][rows] if key in table else nothing for key in known}
    own = {key: column[rows] for key, column in table.items() if key not in ("arm", "seed", *known)}
    seeds = tuple(table["seed"][rows[:, 0]].astype(int).tolist())
    return Series(name, seeds, **columns, metrics=own)


def _table(data: bytes) -> tuple[list[str], dict[str, np.ndarray]]:
    """The arms' names, and the columns; an arm is its place among the names.

    NumPy's reader takes a fifth of the time of Python's and float: a long run has a million rows.
    """
    text = b"".join(data.rpartition(b"\n")[:2]).decode()  # the last line may be being written
    head, _, body = text.partition("\n")
    columns = next(csv.reader([head]), [])
    start = body.rfind("\n", 0, -1) + 1
    if len(next(csv.reader([body[start:]]), [])) != len(columns):  # half a row, written over
        body = body[:start]
    for name in ("arm", "seed", *_NEEDED):
        if name not in columns:
            raise ValueError(f"no column {name!r}")
    used = {name: columns.index(name) for name in ("arm", "seed", *_NEEDED)}
    # A task's own metrics are the last columns.
    own = columns[columns.index(_LAST) + 1 :] if _LAST in columns else []
    used |= {name: columns.index(name) for name in (*_OTHERS, *own) if name in columns}
    if not body.strip():
        return [], {}
    for _ in range(2):  # twice, because what is found does not overlap
        body = body.replace(",,", ",nan,")
    body = body.replace(",\n", ",nan\n")
    numbers: dict[str, int] = {}
    rows = np.loadtxt(
        io.StringIO(body),
        delimiter=",",
        quotechar='"',
        comments=None,
        ndmin=2,
        usecols=list(used.values()),
        converters={used["arm"]: lambda name: numbers.setdefault(name, len(numbers))},
    )
    return list(numbers), dict(zip(used, rows.T.copy(), strict=True))


def read_all(folders: Sequence[Path]) -> dict[str, Series]:
    """The arms of several folders, named after their folder where there is more than one."""
    found = {}
    for folder, label in zip(folders, labels(folders), strict=True):
        for arm, series in read(folder).items():
            found[arm if len(folders) == 1 else f"{label}: {arm}"] = series
    return found


def expand(folders: Sequence[Path]) -> list[Path]:
    """The folders, and for that of a sweep those that lie in it."""
    found: list[Path] = []
    for folder in folders:
        below = [] if (folder / "metrics.csv").exists() else sorted(folder.glob("*/metrics.csv"))
        found += [path.parent for path in below] or [folder]
    return found


def labels(folders: Sequence[Path]) -> list[str]:
    """Short names of folders that tell them apart."""
    names = [folder.resolve().name for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]


def config(folder: Path) -> dict[str, Any]:
    """The settings of a run; nothing where a folder has none, as a federation's."""
    path = folder / "config.toml"
    try:
        return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def summary(folder: Path) -> dict[str, Any]:
    """What a run has written at its end; nothing while it goes on."""
    path = folder / "summary.json"
    found = runs.read_json(path) if path.exists() else {}
    return found if isinstance(found, dict) else {}


def _text(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)

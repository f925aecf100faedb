"""Run folders as arrays: what pictures and pages are drawn from.

Folders of simulations and of Flower federations alike, also while they are being written.
"""

import csv
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.errors import RunError
from taciturn.summary import FULL, summarise

_COUNTS = ("spoke", "asked", "rejected", "bytes_up", "overhead_up", "bytes_up_full", "bytes_down",
           "overhead_down", "bytes_down_full")  # fmt: skip
_NEEDED = (*_COUNTS, "threshold", "norm_mean", "accuracy", "loss")
_LAST = "worst_tenth"  # of the columns that every simulation has; the task's own metrics follow


@dataclass(frozen=True)
class Series:
    """One arm of a run; `series["accuracy"]` is a column of its table, (seeds, rounds)."""

    arm: str  # its name in the folder
    seeds: tuple[int, ...]  # one per run
    columns: Mapping[str, np.ndarray]  # of `metrics.csv`; NaN where something was not measured
    metrics: Sequence[str]  # those of the task's own
    ended: Mapping[str, Any]  # the figures in `summary.json`; empty until the run is complete

    def __getitem__(self, name: str) -> np.ndarray:
        found = self.columns.get(name)
        return np.full(self.columns["spoke"].shape, np.nan) if found is None else found

    @property
    def rounds(self) -> int:
        return self["spoke"].shape[1]

    @property
    def uploaded(self) -> np.ndarray:
        """Bytes since the start, payload and overhead."""
        return (self["bytes_up"] + self["overhead_up"]).cumsum(1)

    def summary(self) -> dict[str, Any]:
        """The figures of a table; percentages are of 100."""
        # What needs more than the rounds of one arm was written when the run ended.
        ended = {key: self.ended[key] for key in ("difference", "noise_floor") if key in self.ended}
        return {"rounds": self.rounds, "seeds": list(self.seeds)} | summarise(self.columns) | ended


def read(folder: Path) -> dict[str, Series]:
    """The arms of a run folder, full communication first."""
    path = folder / "metrics.csv"
    if not path.exists():
        raise RunError(f"{folder} has no metrics.csv: it is not the folder of a run.")
    try:
        names, table = _table(runs.whole_rows(path))
    except (KeyError, ValueError) as error:
        raise RunError(f"{path} cannot be read as a run's metrics: {error}.") from None
    if not names:
        raise RunError(f"{path} has no rounds yet.")
    for name in _COUNTS:
        if not np.isfinite(table[name]).all():
            row = int(np.argmin(np.isfinite(table[name])))
            raise RunError(f"{path} has no `{name}` in row {row + 1}: it was cut.")
    ended = summary(folder).get("arms", {})
    found = {name: _series(name, table["arm"] == i, table, ended.get(name, {}))
             for i, name in enumerate(names)}  # fmt: skip
    return dict(sorted(found.items(), key=lambda one: one[0] != FULL))


def _series(
    name: str, own: np.ndarray, table: Mapping[str, np.ndarray], ended: Mapping[str, Any]
) -> Series:
    """The rounds that all seeds have, but for seeds far behind, which run after the others."""
    seeds = {int(seed): np.flatnonzero(own & (table["seed"] == seed))
             for seed in np.unique(table["seed"][own])}  # fmt: skip
    longest = max(map(len, seeds.values()))
    seeds = {seed: rows for seed, rows in seeds.items() if len(rows) >= longest / 2}
    rounds = min(map(len, seeds.values()))
    rows = np.stack([rows[:rounds] for rows in seeds.values()])
    columns = {key: column[rows] for key, column in table.items() if key not in ("arm", "seed")}
    metrics = [key for key in columns if key not in (*_NEEDED, _LAST)]
    return Series(name, tuple(seeds), columns, metrics, ended)


def _table(text: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """The arms' names, and the columns; an arm is its place among the names.

    NumPy's reader takes a fifth of the time of Python's and float: a long run has a million rows.
    """
    head, _, body = text.partition("\n")
    columns = next(csv.reader([head]), [])
    needed = ("arm", "seed", *_NEEDED)
    for name in needed:
        if name not in columns:
            raise ValueError(f"no column {name!r}")
    if not body.strip():
        return [], {}
    own = columns[columns.index(_LAST) + 1 :] if _LAST in columns else []
    used = {name: columns.index(name) for name in (*needed, _LAST, *own) if name in columns}
    numbers: dict[str, int] = {}
    rows = np.loadtxt(
        io.StringIO(re.sub(r",(?=[,\n])", ",nan", body)), delimiter=",", quotechar='"',
        comments=None, ndmin=2, usecols=list(used.values()),
        converters={used["arm"]: lambda name: numbers.setdefault(name, len(numbers))},
    )  # fmt: skip
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
    """Names of the folders; paths where two have one name."""
    names = [folder.resolve().name for folder in folders]
    return [name if names.count(name) == 1 else str(folder)
            for name, folder in zip(names, folders, strict=True)]  # fmt: skip


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

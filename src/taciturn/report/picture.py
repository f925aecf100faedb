"""A picture of run folders: what was learned, and what was uploaded for it.

Folders of simulations and of Flower runs alike: all that is read is `metrics.csv`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import files, runs
from taciturn.errors import RunError, require
from taciturn.summary import summarise

_COLOURS = ("#0072B2", "#4D4D4D", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Series(NamedTuple):
    """One arm of a run: columns of `metrics.csv`, (seeds, rounds) each. NaN was not measured."""

    seeds: tuple[str, ...]
    columns: Mapping[str, np.ndarray]

    @property
    def rounds(self) -> int:
        return self.columns["spoke"].shape[1]

    @property
    def uploaded(self) -> np.ndarray:
        """Bytes of updates, the payload, since the start."""
        return self.columns["bytes_up"].cumsum(1)

    def summary(self) -> dict[str, Any]:
        """What a table shows; percentages are of 100."""
        return {"rounds": self.rounds, "seeds": list(self.seeds)} | summarise(self.columns)


_NEEDED = ("accuracy", "spoke", "threshold", "bytes_up", "overhead_up")
_NEWER = ("asked", "bytes_up_full", "rejected", "loss")


def read(folder: Path) -> dict[str, Series]:
    """The arms of a run folder."""
    path = folder / "metrics.csv"
    try:
        by_arm: dict[str, dict[str, list[dict[str, str]]]] = {}
        for row in runs.read_csv(path):
            by_arm.setdefault(row["arm"], {}).setdefault(row["seed"], []).append(row)
        found = {arm: _series(seeds) for arm, seeds in by_arm.items()}
    except (KeyError, ValueError) as error:
        what = f"no column {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} cannot be read as a run's metrics: {what}.") from None
    if not found:
        raise RunError(f"{path} has no rounds yet.")
    return found


def _series(seeds: Mapping[str, list[dict[str, str]]]) -> Series:
    rounds = min(len(rows) for rows in seeds.values())
    known = next(iter(seeds.values()))[0]
    names = (*_NEEDED, *(name for name in _NEWER if name in known))
    columns = {
        name: np.array([[float(row[name] or "nan") for row in rows[:rounds]]
                        for rows in seeds.values()])
        for name in names
    }  # fmt: skip
    for name in ("spoke", "bytes_up", "overhead_up"):
        if not np.isfinite(columns[name]).all():
            seed, t = np.argwhere(~np.isfinite(columns[name]))[0]
            row = list(seeds.values())[seed][t]
            raise ValueError(f"no `{name}` in round {row.get('round')} of seed {row.get('seed')}")
    return Series(tuple(seeds), columns)


def read_all(folders: Sequence[Path]) -> dict[str, Series]:
    """The arms of several folders, named after their folder where there is more than one."""
    names = [folder.name for folder in folders]
    found = {}
    for folder in folders:
        label = folder.name if names.count(folder.name) == 1 else str(folder)
        for arm, series in read(folder).items():
            found[arm if len(folders) == 1 else f"{label}: {arm}"] = series
    return found


def draw(arms: Mapping[str, Series], path: Path, title: str = "") -> Path:
    """Writes a PNG: accuracy by round and by upload, thresholds, and who spoke."""
    figure = require("matplotlib.figure", "report").Figure(figsize=(11, 7), layout="constrained")
    (by_round, by_upload), (threshold, spoke) = figure.subplots(2, 2)
    figure.suptitle(title)
    totals = [series.uploaded[:, -1].mean() for series in arms.values()]
    unit, name = _unit(max(totals))
    if max(totals) > 20 * min(totals) > 0:  # a codec's curve would be a line on the axis
        by_upload.set_xscale("log")
    for i, (arm, series) in enumerate(arms.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        rounds = np.arange(1, series.rounds + 1)
        tested = ~np.isnan(series.columns["accuracy"]).any(0)
        accuracy = 100 * series.columns["accuracy"][:, tested]
        line(by_round, rounds[tested], accuracy, colour, arm)
        by_upload.plot(series.uploaded.mean(0)[tested] / unit, accuracy.mean(0), color=colour)
        if not np.isnan(series.columns["threshold"]).all():
            line(threshold, rounds, series.columns["threshold"], colour, arm)
        line(spoke, rounds, series.columns["spoke"], colour, arm)
    by_round.set(xlabel="round", ylabel="test accuracy, %")
    by_upload.set(xlabel=f"payload uploaded, {name}", ylabel="test accuracy, %")
    threshold.set(xlabel="round", ylabel="threshold")
    spoke.set(xlabel="round", ylabel="clients that spoke", ylim=(0, None))
    for axes in (by_round, by_upload, threshold, spoke):
        axes.grid(alpha=0.25)
    for axes in (by_round, threshold, spoke):
        axes.xaxis.get_major_locator().set_params(integer=True)
    by_round.legend(fontsize=9)
    try:
        with files.replacing(path, "wb") as file:
            figure.savefig(file, dpi=110, format="png", metadata={"Software": None})
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}.") from None
    return path


def line(
    axes: Any, x: np.ndarray, y: np.ndarray, colour: str, label: str, style: Any = "-"
) -> None:
    """The mean over seeds, and a shade from the lowest to the highest; `y` is (seeds, …)."""
    axes.plot(x, y.mean(0), color=colour, ls=style, lw=1.4, label=label)
    if len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.12, lw=0)


def _unit(size: float) -> tuple[float, str]:
    """Bytes of the largest binary unit that is not larger, and its name."""
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return 1024.0**power, name
    return 1.0, "B"

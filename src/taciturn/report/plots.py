"""A picture of run folders: what was learned, and what was uploaded for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import files
from taciturn.errors import require
from taciturn.report.colours import styles
from taciturn.report.series import Series
from taciturn.report.units import unit

_STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def draw(arms: Mapping[str, Series], path: Path, title: str = "") -> Path:
    """Writes a PNG: accuracy by round and by upload, thresholds, and who spoke; losses and norms
    where there are none of the first and third."""
    figure = require("matplotlib.figure", "report").Figure(figsize=(11, 7), layout="constrained")
    (by_round, by_upload), (threshold, spoke) = figure.subplots(2, 2)
    figure.suptitle(title)
    totals = [series["bytes_up"].sum(1).mean() for series in arms.values()]
    size, name = unit(max(totals))
    if max(totals) > 20 * min(totals) > 0:  # a codec's curve would be a line on the axis
        by_upload.set_xscale("log")
    # Where numbers are predicted there is no accuracy, and not every rule has a threshold.
    accurate, thresholds = (any(np.isfinite(series[name]).any() for series in arms.values())
                            for name in ("accuracy", "threshold"))  # fmt: skip
    looks = styles([series.arm for series in arms.values()])
    for (arm, series), (colour, dash) in zip(arms.items(), looks, strict=True):
        look = {"color": colour, "ls": _STYLES[dash], "label": arm}
        rounds = np.arange(1, series.rounds + 1)
        scores = 100 * series["accuracy"] if accurate else series["loss"]
        tested = ~np.isnan(scores).any(0)
        _line(by_round, rounds[tested], scores[:, tested], **look)
        sent = series["bytes_up"].cumsum(1).mean(0)[tested] / size
        by_upload.plot(sent, scores[:, tested].mean(0), **look)
        norms = series["threshold" if thresholds else "norm_mean"]
        if not np.isnan(norms).all():
            _line(threshold, rounds, norms, **look)
        _line(spoke, rounds, series["spoke"], **look)
    score = "test accuracy, %" if accurate else "test loss"
    by_round.set(xlabel="round", ylabel=score)
    by_upload.set(xlabel=f"payload uploaded, {name}", ylabel=score)
    threshold.set(xlabel="round", ylabel="threshold" if thresholds else "mean norm of updates")
    spoke.set(xlabel="round", ylabel="clients that spoke", ylim=(0, None))
    for axes in (by_round, by_upload, threshold, spoke):
        axes.grid(alpha=0.25)
        if axes is not by_upload:
            axes.xaxis.get_major_locator().set_params(integer=True)
    by_round.legend(fontsize=9)
    with files.atomic_write(path, "wb") as file:
        figure.savefig(file, dpi=110, format="png", metadata={"Software": None})
    return path


def _line(axes: Any, x: np.ndarray, y: np.ndarray, color: str, **look: Any) -> None:
    """The mean over seeds, and a shade from the lowest to the highest; `y` is (seeds, …)."""
    axes.plot(x, y.mean(0), color=color, lw=1.4, **look)
    if len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=color, alpha=0.12, lw=0)

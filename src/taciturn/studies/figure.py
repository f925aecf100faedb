"""What figures share: panels, a legend below them, and files without a time in them."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from taciturn import files


def panels(count: int, label: str, width: float = 3.2, share: bool = True) -> tuple[Figure, Any]:
    """A figure, and its axes side by side."""
    figure = Figure(figsize=(width * count, 4.2), layout="constrained")
    side_by_side = figure.subplots(1, count, sharey=share, squeeze=False)[0]
    for axes in side_by_side:
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
    return figure, side_by_side


def rounds(array: np.ndarray) -> np.ndarray:
    """The numbers of the rounds of a (seeds, rounds) array, counted from 1."""
    return np.arange(1, array.shape[1] + 1)


def legend(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, below them."""
    lines, labels = axes.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=5, fontsize=9, frameon=False)


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """PNG and PDF, without the time at which they were made."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    for path, when in zip(paths, ({"Software": None}, {"CreationDate": None}), strict=True):
        with files.replacing(path, "wb") as file:
            figure.savefig(file, dpi=130, format=path.suffix[1:], metadata=when)
    return paths

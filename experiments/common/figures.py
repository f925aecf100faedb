"""What the figures of studies share: panels, curves over seeds, and a legend below them."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SHADE, SEEDS = "shade", "seeds"  # what is drawn around a median


def legend(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, below them, with as many columns as there is room for."""
    lines, labels = axes.get_legend_handles_labels()
    room = figure.get_figwidth() / (0.075 * max(map(len, labels), default=1) + 0.6)
    columns = max(1, min(len(labels), int(room)))
    figure.legend(
        lines, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False
    )


def curves(
    axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str, style: Any = "-",
    around: str | None = None,
) -> None:  # fmt: skip
    """The median over seeds; around it a shade from the lowest to the highest, every seed as a
    thin line, or nothing."""
    axes.plot(x, np.median(y, axis=0), color=colour, ls=style, lw=1.7, label=label, zorder=3)
    if around == SEEDS and len(y) > 1:
        axes.plot(x, y.T, color=colour, ls=style, lw=0.6, alpha=0.45, zorder=2)
    elif around == SHADE and len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.15, lw=0)


def round_axis(axes: Axes, last: int) -> None:
    """Five steps to the last round, which has a tick of its own."""
    axes.set_xticks(np.unique(np.round(np.linspace(0, last, 6)).astype(int)))
    axes.set_xlim(0, last)
    axes.grid(alpha=0.25)

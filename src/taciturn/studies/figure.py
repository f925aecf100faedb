"""What figures share: panels, a legend below them, and files without a time in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from taciturn import files

# What each kind of file would say of when, or with what, it was made.
_WHEN = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
# Where a name may stand beside its point, in points: right and left, near and then further away.
_PLACES = [(8.0, 0.0), (-8.0, 0.0)] + [
    (side * 8.0, sign * 7.0 * step) for step in range(1, 25) for sign in (1, -1) for side in (1, -1)
]


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


def write(
    figure: Figure, folder: Path, name: str, endings: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """A file for each ending, without the time at which it was made."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in endings]
    for path, ending in zip(paths, endings, strict=True):
        with files.replacing(path, "wb") as file, rc_context({"svg.hashsalt": name}):
            figure.savefig(file, dpi=130, format=ending, metadata={_WHEN[ending]: None})
    return paths


class Label(NamedTuple):
    """A name, and the point that it belongs to."""

    text: str
    x: float
    y: float
    bold: bool = False


def place_labels(axes: Axes, labels: Sequence[Label], size: float = 9) -> None:
    """Writes names beside their points, so that none covers another or a point.

    Places near a point are tried first; a thin line leads to one that is further away. All ranges
    of the axes must be set before.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    point = figure.dpi / 72  # pixels
    dots = axes.transData.transform([(label.x, label.y) for label in labels])
    taken = [Bbox.from_bounds(x - 5 * point, y - 5 * point, 10 * point, 10 * point)
             for x, y in dots]  # fmt: skip
    room = axes.get_window_extent(renderer)
    for label, (x, y) in zip(labels, dots, strict=True):
        weight = "bold" if label.bold else "normal"
        text = axes.annotate(
            label.text, (label.x, label.y), xytext=(0, 0), textcoords="offset points",
            fontsize=size, fontweight=weight, va="center", zorder=5,
        )  # fmt: skip
        extent = text.get_window_extent(renderer)
        for dx, dy in _PLACES:
            left = x + dx * point - (extent.width if dx < 0 else 0)
            box = Bbox.from_bounds(left, y + dy * point - extent.height / 2, extent.width,
                                   extent.height)  # fmt: skip
            inside = (
                room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 <= box.y1 <= room.y1
            )
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
        text.set_position(((box.x0 - x) / point, dy))
        if abs(dy) > 14:
            end = box.x0 if dx > 0 else box.x1
            axes.annotate(
                "", (label.x, label.y), xytext=((end - x) / point, dy), textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.6, "shrinkB": 4},
            )  # fmt: skip

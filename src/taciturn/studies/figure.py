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
# Where a name may stand, in points from its point: sides (right, left, in the middle) and heights.
_PLACES = [(1, 0.0), (0, 13.0), (0, -13.0), (-1, 0.0)] + [
    (side, sign * height)
    for height in np.arange(13.0, 150.0, 6.0)
    for sign in (1, -1)
    for side in (0, 1, -1)
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
    """One legend for all panels, below them, with as many columns as there is room for."""
    lines, labels = axes.get_legend_handles_labels()
    room = figure.get_figwidth() / (0.075 * max(map(len, labels), default=1) + 0.6)
    columns = max(1, min(len(labels), int(room)))
    figure.legend(
        lines, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False
    )


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
    """A name, the point that it belongs to, and how it is written."""

    text: str
    x: float
    y: float
    colour: str = "black"
    bold: bool = False


def place_labels(axes: Axes, labels: Sequence[Label], size: float = 9) -> None:
    """Writes names beside their points, so that none covers another or a point.

    Places near a point are tried first; a thin line leads to one that is further away. All ranges
    of the axes must be set before.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    point = figure.dpi / 72  # pixels
    dots = axes.transData.transform([(label.x, label.y) for label in labels])
    taken = [Bbox.from_extents(*(dot - 5 * point), *(dot + 5 * point)) for dot in dots]
    room = axes.get_window_extent(renderer)
    for label, (x, y) in zip(labels, dots, strict=True):
        text = axes.annotate(
            label.text, (label.x, label.y), xytext=(0, 0), textcoords="offset points", va="center",
            color=label.colour, fontsize=size, fontweight="bold" if label.bold else "normal",
            zorder=5, bbox={"boxstyle": "square,pad=0", "fc": "white", "ec": "none", "alpha": 0.9},
        )  # fmt: skip
        extent = text.get_window_extent(renderer)
        box, height = _free_place(x, y, extent.width, extent.height, point, room, taken)
        taken.append(box)
        text.set_position(((box.x0 - x) / point, height))
        if abs(height) > 13:
            end = (min(max(x, box.x0), box.x1) - x) / point
            axes.annotate(
                "", (label.x, label.y), xytext=(end, height), textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": label.colour, "lw": 0.6, "shrinkA": 6},
            )  # fmt: skip


def _free_place(
    x: float, y: float, width: float, height: float, point: float, room: Bbox, taken: list[Bbox]
) -> tuple[Bbox, float]:
    """The first place that is inside and free, or else the last; and its height in points."""
    for side, up in _PLACES:
        left = x + side * 10 * point - (1 - side) / 2 * width
        box = Bbox.from_bounds(left, y + up * point - height / 2, width, height)
        inside = room.contains(box.x0, box.y0) and room.contains(box.x1, box.y1)
        if inside and not any(box.overlaps(other) for other in taken):
            break
    return box, up

"""What figures share: files without a time in them, and names beside points."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from taciturn import files


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """A PNG and an SVG file, without the time at which they were made."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, when in zip(paths, ("Software", "Date"), strict=True):
        with files.atomic_write(path, "wb") as file, rc_context({"svg.hashsalt": name}):
            figure.savefig(file, dpi=130, format=path.suffix[1:], metadata={when: None})
    return paths


class Label(NamedTuple):
    """A name, the point that it belongs to, and how it is written."""

    text: str
    x: float
    y: float
    colour: str
    bold: bool = False


def place_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Writes names beside their points, so that none covers another or a point.

    Places near a point are tried first. All ranges of the axes must be set before.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    pixels = figure.dpi / 72  # of a point
    dots = axes.transData.transform([(label.x, label.y) for label in labels])
    taken = [Bbox.from_extents(*(dot - 5 * pixels), *(dot + 5 * pixels)) for dot in dots]
    room = axes.get_window_extent(renderer)
    for label, (x, y) in zip(labels, dots, strict=True):
        text = axes.annotate(
            label.text, (label.x, label.y), xytext=(0, 0), textcoords="offset points", va="center",
            color=label.colour, fontsize=9, fontweight="bold" if label.bold else "normal",
            zorder=5, bbox={"boxstyle": "square,pad=0", "fc": "white", "ec": "none", "alpha": 0.9},
        )  # fmt: skip
        size = text.get_window_extent(renderer)
        for right, up in _offsets(size.width / pixels):
            left, below = x + right * pixels, y + up * pixels - size.height / 2
            box = Bbox.from_bounds(left, below, size.width, size.height)
            inside = room.contains(box.x0, box.y0) and room.contains(box.x1, box.y1)
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
        text.set_position((right, up))


def _offsets(width: float) -> Iterator[tuple[float, float]]:
    """Where a name of this width may begin, in points from its point: near ones first."""
    right, middle, left = 10.0, -width / 2, -10.0 - width
    yield from ((right, 0), (middle, 13), (middle, -13), (left, 0))
    for height in range(13, 70, 6):
        for up in (height, -height):
            yield from ((middle, up), (right, up), (left, up))

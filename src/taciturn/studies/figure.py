"""What figures share: files without a time in them, and names beside points."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from taciturn import files

# Where a name may stand, in points from its point, and which end of it is there: near ones first.
_PLACES = [((10, 0), "left"), ((0, 13), "center"), ((0, -13), "center"), ((-10, 0), "right")]
_PLACES += [((right, up), end) for height in range(13, 70, 6) for up in (height, -height)
            for right, end in ((0, "center"), (10, "left"), (-10, "right"))]  # fmt: skip


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """A PNG and an SVG file, without the time at which they were made."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path, when in zip(paths, ("Software", "Date"), strict=True):
        with files.atomic_write(path, "wb") as file, rc_context({"svg.hashsalt": name}):
            figure.savefig(file, dpi=130, format=path.suffix[1:], metadata={when: None})
    return paths


def place_names(axes: Axes, names: Sequence[Annotation]) -> None:
    """Moves names beside the points that they annotate, so that none covers another or a point.

    All ranges of the axes must be set before.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    points = axes.transData.transform([name.xy for name in names])
    taken = [Bbox([point, point]).padded(5 * figure.dpi / 72) for point in points]
    for name in names:
        for offset, end in _PLACES:
            name.set(position=offset, horizontalalignment=end)
            box = name.get_window_extent()
            inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
            if inside and not box.count_overlaps(taken):
                break
        taken.append(box)

"""The picture of the frontier: accuracy against uploaded bytes."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from taciturn.frontier.front import Frontier, Point, points
from taciturn.report.colours import colours
from taciturn.report.plots import log_ticks
from taciturn.report.units import byte_axis
from taciturn.summary import FULL, MARGIN, RECOMMENDED

_MOST_BELOW = 3.0  # points below full communication that are shown, or as many as above
_MOST = 10  # policies that a picture has: with more, names do not find room
_PAPER = {"boxstyle": "square,pad=0", "fc": "white", "ec": "none", "alpha": 0.9}  # below names
# Where a name may stand, in points from its point, and which end of it is there: near ones first.
_PLACES = [((10, 0), "left"), ((0, 13), "center"), ((0, -13), "center"), ((-10, 0), "right")]
_PLACES += [((right, up), end) for height in range(13, 70, 6) for up in (height, -height)
            for right, end in ((0, "center"), (10, "left"), (-10, "right"))]  # fmt: skip


def draw(frontier: Frontier, trails: bool = False) -> Figure:
    """Where policies end, each with its name; with `trails`, how they got there.

    What ends far below the others is a triangle at the lower edge with its score. Of more policies
    than can be read, those of the front are shown, and then the best ones.
    """
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")  # for a phone as well
    axes = figure.subplots()
    all_of = points(frontier)
    all_of.sort(key=lambda p: (p.name not in (FULL, RECOMMENDED), not p.on_front, -p.score))
    found = all_of[:_MOST]
    tones = colours([point.name for point in found])
    level = float(frontier.arms[FULL].score[:, -1].mean())
    lowest = _zoom(axes, found, level)
    names = []
    for point in found:
        arm, tone, is_low = frontier.arms[point.name], tones[point.name], point.score < lowest
        is_star = point.name == RECOMMENDED and not is_low
        at = point.uploaded, max(point.score, lowest)
        if trails:
            axes.plot(arm.uploaded.mean(0), arm.score.mean(0), color=tone, lw=0.9, alpha=0.35)
        axes.plot(*at, marker="v" if is_low else "*" if is_star else "o", ms=17 if is_star else 7,
                  color=tone, mec="white", mew=0.8, ls="", zorder=4)  # fmt: skip
        names.append(axes.annotate(
            f"{point.name}: {point.score:.1f} %" if is_low else point.name, at, xytext=(0, 0),
            textcoords="offset points", va="center", color=tone, size=9, zorder=5, bbox=_PAPER,
            weight="bold" if is_star else "normal", in_layout=False,
        ))  # fmt: skip
    front = sorted((p.uploaded, p.score) for p in found if p.on_front)
    front.append((axes.get_xlim()[1], front[-1][1]))  # more bytes give no more
    axes.plot(*zip(*front, strict=True), color="0.45", lw=1, ls="--", zorder=2,
              drawstyle="steps-post", label="Pareto front")  # fmt: skip
    axes.axhspan(level - MARGIN, level, color="0.5", alpha=0.13, lw=0,
                 label=f"{MARGIN:g} points below full")  # fmt: skip
    axes.set(xlabel="uploaded by all clients", ylabel=f"{frontier.measure}, %")
    some = f", {len(found)} of {len(all_of)} policies" * (len(found) < len(all_of))
    axes.set_title(f"{frontier.title}{some}")
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    _place(axes, names)
    return figure


def _zoom(axes: Axes, found: list[Point], level: float) -> float:
    """Shows the zone that decides, as far below full communication as above; where it ends."""
    ends, sent = ([getattr(point, what) for point in found] for what in ("score", "uploaded"))
    lowest = max(level - max(_MOST_BELOW, max(ends) - level), min(*ends, level - 2 * MARGIN))
    height = max(ends) - lowest
    axes.set_ylim(lowest - 0.05 * height, max(ends) + 0.15 * height)
    ticks = byte_axis(min(sent) / 4, max(sent) * 4)
    log_ticks(axes, list(ticks), list(ticks.values()))
    axes.set_xlim(min(sent) / 4, max(sent) * 4)
    return lowest


def _place(axes: Axes, names: Sequence[Annotation]) -> None:
    """Moves names beside the points that they annotate, so that none covers another or a point."""
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

"""The picture of the frontier: accuracy against uploaded bytes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.frontier.front import Frontier, Point, points
from taciturn.frontier.policies import FULL, RECOMMENDED
from taciturn.report.colours import colours
from taciturn.report.units import byte_axis
from taciturn.studies.difference import MARGIN
from taciturn.studies.figure import Label, place_labels

_MOST_BELOW = 3.0  # points below full communication that are shown, or as many as above
_MOST = 10  # policies that a picture has: with more, names do not find room


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
    labels = []
    for point in found:
        arm, tone, end = frontier.arms[point.name], tones[point.name], point.score
        mark = "v" if end < lowest else "*" if point.name == RECOMMENDED else "o"
        if trails:
            axes.plot(arm.uploaded.mean(0), arm.score.mean(0), color=tone, lw=0.9, alpha=0.35)
        axes.plot(
            point.uploaded, max(end, lowest), marker=mark, ms=17 if mark == "*" else 7,
            color=tone, mec="white", mew=0.8, ls="", zorder=4,
        )  # fmt: skip
        name = f"{point.name}: {end:.1f} %" if end < lowest else point.name
        labels.append(Label(name, point.uploaded, max(end, lowest), tone, mark == "*"))
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
    place_labels(axes, labels)
    return figure


def _zoom(axes: Axes, found: list[Point], level: float) -> float:
    """Shows the zone that decides, as far below full communication as above; where it ends."""
    ends = [point.score for point in found]
    sent = [point.uploaded for point in found]
    lowest = max(level - max(_MOST_BELOW, max(ends) - level), min(*ends, level - 2 * MARGIN))
    height = max(ends) - lowest
    axes.set_ylim(lowest - 0.05 * height, max(ends) + 0.15 * height)
    axes.set_xscale("log")
    ticks = byte_axis(min(sent) / 4, max(sent) * 4)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    axes.set_xlim(min(sent) / 4, max(sent) * 4)
    return lowest

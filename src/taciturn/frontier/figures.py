"""The picture of the frontier: accuracy against uploaded bytes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.frontier.front import FULL, SAME, Point, points, recommended
from taciturn.report.colours import colours
from taciturn.report.units import byte_axis
from taciturn.studies.figure import Label, place_labels
from taciturn.studies.results import Results


def frontier(result: Results) -> Figure:
    """Where every policy ends, with its name, and the way there; the front is a line.

    The band is what is at most half a point below full communication.
    """
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots()
    found = points(result)
    best = recommended(found)
    own = result.experiment.own  # arms with settings of their own share a policy with others
    shown = {point.name: point.name if point.name in own else point.policy for point in found}
    tones = colours(list(shown.values()))
    for point in found:
        arm = result.arms[point.name]
        sent, tone = arm.uploaded.mean(0), tones[shown[point.name]]
        axes.plot(sent, arm.accuracy.mean(0), color=tone, lw=0.9, alpha=0.35, zorder=1)
        chosen = point is best
        axes.plot(
            point.uploaded, point.accuracy.mean(), marker="*" if chosen else "o",
            ms=17 if chosen else 7, color=tone, mec="white", mew=0.8, ls="", zorder=4,
        )  # fmt: skip
    _draw_front(axes, found)
    level = float(result.arms[FULL].at().mean())
    axes.axhspan(level - SAME, level, color="0.5", alpha=0.13, lw=0, zorder=0)
    axes.set_xscale("log")
    axes.set(xlabel="uploaded by all clients", ylabel=f"{result.measure}, %")
    axes.set_title(result.experiment.title)
    axes.grid(alpha=0.25)
    _look_closer(axes, found)
    place_labels(
        axes,
        [
            Label(
                point.name,
                point.uploaded,
                float(point.accuracy.mean()),
                tones[shown[point.name]],
                point is best,
            )
            for point in found
        ],
    )
    return figure


def _draw_front(axes: Axes, found: list[Point]) -> None:
    front = sorted((p.uploaded, p.accuracy.mean()) for p in found if p.on_front)
    axes.plot(
        [x for x, _ in front], [y for _, y in front], color="0.45", lw=1, ls="--", zorder=2,
        drawstyle="steps-post",
    )  # fmt: skip


def _look_closer(axes: Axes, found: list[Point]) -> None:
    """The ends are what matters: the beginning of the curves may be cut off."""
    ends = [float(point.accuracy.mean()) for point in found]
    sent = [point.uploaded for point in found]
    room = max(max(ends) - min(ends), 3.0)
    axes.set_ylim(min(ends) - 0.15 * room, max(ends) + 0.25 * room)
    least, most = min(sent) / 4, max(sent) * 4
    ticks = byte_axis(least, most)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    axes.set_xlim(least, most)

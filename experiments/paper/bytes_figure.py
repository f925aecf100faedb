"""Accuracy against bytes, and bytes to a share of the accuracy of full communication."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.paper.comparing import collapsed, common
from experiments.paper.curves import COLOURS
from experiments.paper.experiments import UNWEIGHTED
from experiments.paper.measures import ROUNDS, TARGET, bytes_to
from taciturn.report.colours import GREY
from taciturn.studies.results import Results

_MARKS = {
    "full": "D",
    "adaptive": "o",
    "random": "s",
    f"adaptive{UNWEIGHTED}": "^",
    f"random{UNWEIGHTED}": "v",
}


def against_bytes(results: Mapping[str, Results]) -> Figure:
    """Accuracy against upload, and upload to a share of full communication's accuracy."""
    figure = Figure(figsize=(4.8 * len(results) + 1.8, 9.2), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False, height_ratios=(1.15, 1))
    names = list(dict.fromkeys(name for result in results.values() for name in result.arms))
    for column, result in enumerate(results.values()):
        points, bars = grid[:, column]
        points.set_title(result.experiment.title)
        _points(points, result)
        _arrows(points, result)
        _bars(bars, result, names)
        bars.set_yticks(range(len(names)), names[::-1] if column == 0 else [], fontsize=8)
        bars.tick_params(axis="y", length=0)
    grid[0, 0].set_ylabel(f"accuracy after {ROUNDS} rounds, %")
    _legend(figure)
    return figure


def _points(axes: Axes, result: Results) -> None:
    """Every seed, and the medians of all arms; the range is that of runs that did not collapse."""
    low, high = _range(result)
    axes.set_ylim(low, high)
    axes.grid(alpha=0.25)
    axes.set_xlabel("uploaded, GiB")
    seen = []
    for name, arm in result.arms.items():
        mark, colour = _look(name)
        sent, right = result.gib(name, ROUNDS), arm.at(ROUNDS)
        axes.scatter(sent, right, 11, colour, marker=mark, alpha=0.35, lw=0)
        axes.scatter(
            np.median(sent), np.median(right), 60, colour, marker=mark, ec="white", lw=0.7,
            label=name, zorder=3,
        )  # fmt: skip
        seen += [*sent[right >= low], np.median(sent)]
    room = 0.06 * float(np.ptp(seen)) or 0.1
    axes.set_xlim(min(seen) - room, max(seen) + room)


def _range(result: Results) -> tuple[float, float]:
    """Where the runs end that did not collapse, and a little more."""
    ends = np.concatenate(
        [arm.at(ROUNDS)[own][~fallen] for name, arm in result.arms.items()
         for own, fallen in [(common(result, name, "full")[0], collapsed(result, name, ROUNDS))]]
    )  # fmt: skip
    room = max(0.3, 0.12 * float(np.ptp(ends)))
    return float(ends.min()) - room, float(ends.max()) + room


def _arrows(axes: Axes, result: Results) -> None:
    """Name and accuracy of every median below the lower edge, with an arrow to its place there.

    Names stand one above another in the widest gap between uploads, where no points are.
    """
    low, high = axes.get_ylim()
    medians = {name: float(np.median(result.gib(name, ROUNDS))) for name in result.arms}
    sent = np.sort([*medians.values(), axes.get_xlim()[1]])
    gap = int(np.argmax(np.diff(sent)))
    left = sent[gap] + 0.2 * (sent[gap + 1] - sent[gap])
    ends = {name: float(np.median(arm.at(ROUNDS))) for name, arm in result.arms.items()}
    below = sorted((name for name in ends if ends[name] < low), key=lambda name: -medians[name])
    for place, name in enumerate(below):
        colour, height = _look(name)[1], low + (0.04 + 0.045 * place) * (high - low)
        axes.annotate(
            f"{name} {ends[name]:.1f} %", (medians[name], low), xytext=(left, height),
            color=colour, fontsize=8.5, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 0.9, "relpos": (0, 0.5),
                        "shrinkA": 2, "shrinkB": 0},
        )  # fmt: skip


def _bars(axes: Axes, result: Results, names: Sequence[str]) -> None:
    """GiB until the median over seeds has the target, the first name on top."""
    goal = TARGET * np.median(result.arms["full"].at(ROUNDS))
    for place, name in enumerate(reversed(names)):
        sent = bytes_to(result, name, float(goal))
        if sent is None:
            word = "never" if name in result.arms else "not run"
            axes.text(0, place, f" {word}", va="center", fontsize=8, color="0.4")
        else:
            hatch = "////" if name.startswith("random") else None
            axes.barh(place, sent / 2**30, color=_look(name)[1], hatch=hatch, ec="white", lw=0)
    axes.set(xlabel=f"GiB to {goal:.1f} % accuracy", ylim=(-0.6, len(names) - 0.4))
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def _look(name: str) -> tuple[str, str]:
    """Marker and colour of an arm."""
    if name == "full":
        return _MARKS[name], GREY
    weighting = UNWEIGHTED if UNWEIGHTED in name else ""
    rule = name.partition(" ")[0] + weighting
    return _MARKS[rule], COLOURS[name.removeprefix(rule).strip()]


def _legend(figure: Figure) -> None:
    """Marks are rules, in the first row, and colours stand-ins, in the second."""
    marks = [
        Line2D([], [], marker=mark, ls="", ms=7, color=GREY if rule == "full" else "0.25",
               label=rule)
        for rule, mark in _MARKS.items()
    ]  # fmt: skip
    tones = [Line2D([], [], color=colour, lw=6, label=name) for name, colour in COLOURS.items()]
    by_column = [line for pair in zip_longest(marks, tones) for line in pair if line is not None]
    figure.legend(
        handles=by_column, loc="outside lower center", ncols=len(marks), fontsize=9, frameon=False
    )

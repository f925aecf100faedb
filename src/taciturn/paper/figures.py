"""The paper's figures, and accuracy against bytes; as PNG and SVG."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from taciturn.paper.comparing import collapsed
from taciturn.paper.experiments import FIXED, MAIN, STAND_INS, SYNTHETIC, THRESHOLDS, UNWEIGHTED
from taciturn.paper.tables import ROUNDS, TARGET, bytes_to
from taciturn.report.colours import GREY, colours
from taciturn.studies.figure import legend, panels, rounds
from taciturn.studies.results import Arm, Recipe, Results

_TONES = colours([f"adaptive+{text}" for text in STAND_INS.values()])
_COLOURS = {name: _TONES[f"adaptive+{text}"] for name, text in STAND_INS.items()}
_STYLES = {"adaptive": "-", "random": (0, (1.2, 1.2))}
_MARKS = {"adaptive": "o", "random": "s", "adaptive unweighted": "^", "random unweighted": "v"}
_WIDTH = 4.3  # of a panel, in inches


def fixed_accuracy(results: Mapping[str, Results]) -> Figure:
    """Accuracy by round under fixed thresholds, a panel each."""
    return _by_threshold(results, lambda arm: (arm.tested, arm.accuracy), "test accuracy, %")


def fixed_upload(results: Mapping[str, Results]) -> Figure:
    """Clients that speak in a round under fixed thresholds, a panel each."""
    (result,) = results.values()
    figure = _by_threshold(
        results,
        lambda arm: (rounds(arm.spoke), arm.spoke),
        f"clients that upload, of {result.cohort}",
    )
    for axes in figure.axes:
        axes.set_ylim(-0.3, result.cohort + 0.3)
    return figure


def _by_threshold(
    results: Mapping[str, Results],
    curve: Callable[[Arm], tuple[np.ndarray, np.ndarray]],
    label: str,
) -> Figure:
    (result,) = results.values()
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    grid = figure.subplots(2, -(-len(THRESHOLDS) // 2), sharex=True, sharey=True)
    for axes, threshold in zip(grid.flat, THRESHOLDS, strict=True):
        axes.set_title(f"τ = {threshold:g}")
        axes.grid(alpha=0.25)
        round_ticks(axes, result.rounds)
        for name, colour in _COLOURS.items():
            arm = result.arms.get(f"{threshold} {name}")
            if arm is not None:
                curves(axes, *curve(arm), colour, name, seeds=True)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    for axes in grid[:, 0]:
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def accuracy(results: Mapping[str, Results]) -> Figure:
    """Accuracy by round of all arms, and below the zone that decides."""
    figure = Figure(figsize=(_WIDTH * len(results), 7.6), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False)
    for (whole, zoom), result in zip(grid.T, results.values(), strict=True):
        whole.set_title(result.experiment.title)
        for axes in (whole, zoom):
            axes.grid(alpha=0.25)
            round_ticks(axes, min(ROUNDS, result.rounds))
            axes.set(xlabel="round", ylabel="test accuracy, %")
            for name, colour, style, arm in _arms(result):
                shown = arm.tested <= ROUNDS
                fallen = bool(collapsed(result, name, ROUNDS).any())
                curves(axes, arm.tested[shown], arm.accuracy[:, shown], colour, name, style,
                       seeds=fallen)  # fmt: skip
        last = min(ROUNDS, result.rounds)
        zoom.set(xlim=(0.6 * last, last), ylim=_zone(result))
    legend(figure, grid[0, 0])
    return figure


def _zone(result: Results) -> tuple[float, float]:
    """Where the arms end that have not collapsed, and a little more."""
    ends = [
        np.median(arm.accuracy[:, i])
        for name, _, _, arm in _arms(result)
        if not collapsed(result, name, ROUNDS).any()
        for i in (arm.test(int(0.8 * ROUNDS)), arm.test(ROUNDS))
    ] or [float(result.arms["full"].at(ROUNDS).mean())]
    room = max(0.5, 0.15 * (max(ends) - min(ends)))
    return float(min(ends) - room), float(max(ends) + room)


def upload(results: Mapping[str, Results]) -> Figure:
    """Cumulative upload of all arms."""
    figure, axes_of = panels(len(results), "round", width=_WIDTH, share=False)
    for axes, result in zip(axes_of, results.values(), strict=True):
        axes.set_title(result.experiment.title)
        round_ticks(axes, min(ROUNDS, result.rounds))
        for name, colour, style, arm in _arms(result):
            shown = arm.tested <= ROUNDS
            curves(axes, arm.tested[shown], arm.uploaded[:, shown] / 2**30, colour, name, style)
    axes_of[0].set_ylabel("uploaded since the start, GiB")
    legend(figure, axes_of[0])
    return figure


def thresholds(results: Mapping[str, Results]) -> Figure:
    """The threshold by round of the adaptive arms, on a logarithmic axis."""
    figure, axes_of = panels(len(results), "round", width=_WIDTH, share=False)
    for axes, result in zip(axes_of, results.values(), strict=True):
        axes.set_title(result.experiment.title)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 7)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        round_ticks(axes, min(ROUNDS, result.rounds))
        for name, colour in _COLOURS.items():
            arm = result.arms.get(f"adaptive {name}")
            if arm is not None:
                path = np.where(arm.threshold[:, 1:ROUNDS] > 0, arm.threshold[:, 1:ROUNDS], np.nan)
                curves(axes, 1 + rounds(path), path, colour, name)
    axes_of[0].set_ylabel("threshold τ")
    legend(figure, axes_of[0])
    return figure


def against_bytes(results: Mapping[str, Results]) -> Figure:
    """Accuracy against upload, and upload to 90 % of full communication's accuracy."""
    figure = Figure(figsize=(_WIDTH * len(results) + 1.5, 8.4), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False, height_ratios=(1, 1.15))
    names = list(dict.fromkeys(name for result in results.values() for name in result.arms))
    for column, result in enumerate(results.values()):
        points, bars = grid[:, column]
        points.set_title(result.experiment.title)
        points.grid(alpha=0.25)
        points.set(xlabel="uploaded, GiB", ylim=_ends(result))
        for name, arm in result.arms.items():
            mark, colour = _look(name)
            sent, right = result.gib(name, ROUNDS), arm.at(ROUNDS)
            points.scatter(sent, right, 9, colour, marker=mark, alpha=0.35, lw=0)
            points.scatter(
                np.median(sent), np.median(right), 55, colour, marker=mark, ec="white", lw=0.6,
                label=name, zorder=3,
            )  # fmt: skip
        _bars(bars, result, names)
        bars.set_yticks(range(len(names)), names[::-1] if column == 0 else [], fontsize=8)
    grid[0, 0].set_ylabel(f"accuracy after {ROUNDS} rounds, %")
    legend(figure, max(grid[0], key=lambda axes: len(axes.get_legend_handles_labels()[1])))
    return figure


def _ends(result: Results) -> tuple[float, float]:
    """Where the runs end that have not collapsed, and a little more."""
    ends = np.concatenate(
        [arm.at(ROUNDS)[: len(fallen)][~fallen] for name, arm in result.arms.items()
         for fallen in [collapsed(result, name, ROUNDS)]]
    )  # fmt: skip
    room = max(0.3, 0.08 * float(np.ptp(ends)))
    return float(ends.min()) - room, float(ends.max()) + room


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


def _look(name: str) -> tuple[str, str]:
    """Marker and colour of an arm."""
    if name == "full":
        return "D", GREY
    weighting = UNWEIGHTED if UNWEIGHTED in name else ""
    rule = name.partition(" ")[0] + weighting
    return _MARKS[rule], _COLOURS[name.removeprefix(rule).strip()]


def paths(found: Mapping[str, Any]) -> Figure:
    """Paths of weights, and their increments beside a normal distribution."""
    drawn = found["drawn"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
    tones = dict(zip(dict.fromkeys(drawn["names"]), _COLOURS.values(), strict=False))
    named: set[str] = set()
    for name, path in zip(drawn["names"], drawn["paths"], strict=True):
        label = None if name in named else name
        left.plot(drawn["steps"], path, color=tones[name], lw=0.8, label=label)
        named.add(name)
    left.set(
        xlabel="step", ylabel="weight − its start", title="Paths of weights, a colour per array"
    )
    left.legend(fontsize=8)
    edges = np.array(drawn["edges"])
    middle.stairs(drawn["density"], edges, fill=True, color="0.75", label="increments")
    fine = np.linspace(edges[0], edges[-1], 201)
    middle.plot(fine, stats.norm.pdf(fine), color="k", lw=1, label="normal")
    middle.set(xlabel="increment / its deviation", ylabel="density")
    middle.set(title="Increments of the last epoch", yscale="log", ylim=(1e-5, 1))
    middle.legend(fontsize=8)
    right.plot(stats.norm.ppf(drawn["shares"]), drawn["quantiles"], ".", ms=4, color=_COLOURS["ou"])
    right.plot([-4, 4], [-4, 4], color="k", lw=1)
    right.set(xlabel="quantile of a normal", ylabel="quantile of the increments", title="Q–Q")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure


def _arms(result: Results) -> Iterator[tuple[str, str, Any, Arm]]:
    """Name, colour, style and runs of the arms that curves are drawn of."""
    if "full" in result.arms:
        yield "full", GREY, (0, (5, 2)), result.arms["full"]
    for rule, style in _STYLES.items():
        for name, colour in _COLOURS.items():
            arm = result.arms.get(f"{rule} {name}")
            if arm is not None:
                yield f"{rule} {name}", colour, style, arm


def curves(
    axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str, style: Any = "-",
    seeds: bool = False,
) -> None:  # fmt: skip
    """The median over seeds; around it a shade from the lowest to the highest, or every seed."""
    axes.plot(x, np.median(y, axis=0), color=colour, ls=style, lw=1.6, label=label, zorder=3)
    if seeds and len(y) > 1:
        axes.plot(x, y.T, color=colour, ls=style, lw=0.6, alpha=0.6, zorder=2)
    elif len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.12, lw=0)


def round_ticks(axes: Axes, last: int) -> None:
    """Five steps to the last round, which has a tick of its own."""
    axes.set_xticks(np.unique(np.round(np.linspace(0, last, 6)).astype(int)))
    axes.set_xlim(0, last)


# By names; the first five and `paths` are the paper's figures 1 to 6.
FIGURES = {
    "fixed-accuracy": Recipe(fixed_accuracy, (FIXED,)),
    "fixed-upload": Recipe(fixed_upload, (FIXED,)),
    "accuracy": Recipe(accuracy, (*MAIN, SYNTHETIC)),
    "upload": Recipe(upload, MAIN),
    "thresholds": Recipe(thresholds, MAIN),
    "bytes": Recipe(against_bytes, MAIN),
}

"""The paper's figures."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from experiments.paper.bytes_figure import against_bytes
from experiments.paper.comparing import collapsed
from experiments.paper.curves import COLOURS, SEEDS, SHADE, arms_of, curves, round_ticks
from experiments.paper.experiments import FIXED, MAIN, SYNTHETIC, THRESHOLDS
from experiments.paper.measures import ROUNDS
from taciturn.studies.figure import legend, panels, rounds
from taciturn.studies.results import Arm, Recipe, Results

_WIDTH = 4.6  # of a panel, in inches
_FIRST = 0.1  # of the rounds, in which so few messages are counted that shares jump
_LATE = 0.6  # of the rounds; after that, it is decided


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
        for name, colour in COLOURS.items():
            arm = result.arms.get(f"{threshold} {name}")
            if arm is not None:
                curves(axes, *curve(arm), colour, name, around=SEEDS)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    for axes in grid[:, 0]:
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def accuracy(results: Mapping[str, Results]) -> Figure:
    """Accuracy by round of all arms, and beside it the zone that decides; a row per data set."""
    figure = Figure(figsize=(10.4, 3.4 * len(results) + 0.7), layout="constrained")
    grid = figure.subplots(len(results), 2, squeeze=False)
    for (whole, zoom), result in zip(grid, results.values(), strict=True):
        last = min(ROUNDS, result.rounds)
        whole.set(title=result.experiment.title, ylabel="test accuracy, %")
        zoom.set_title(f"{result.experiment.title}, from round {round(_LATE * last)} on")
        for axes in (whole, zoom):
            axes.grid(alpha=0.25)
            round_ticks(axes, last)
            for name, colour, style, arm in arms_of(result):
                shown = arm.tested <= ROUNDS
                curves(axes, arm.tested[shown], arm.accuracy[:, shown], colour, name, style,
                       _around(result, name))  # fmt: skip
        zoom.set(xlim=(_LATE * last, last), ylim=_zone(result))
    for axes in grid[-1]:
        axes.set_xlabel("round")
    legend(figure, grid[0, 0])
    return figure


def _around(result: Results, name: str) -> str | None:
    """What is drawn around a median: seeds where runs collapsed, and a shade for `full` alone,
    since shades that lie on each other hide the lines."""
    if collapsed(result, name, ROUNDS).any():
        return SEEDS
    return SHADE if name == "full" else None


def _zone(result: Results) -> tuple[float, float]:
    """Where the arms end that have not collapsed, and a little more."""
    ends = [
        np.median(arm.accuracy[:, i])
        for name, _, _, arm in arms_of(result)
        if not collapsed(result, name, ROUNDS).any()
        for i in (arm.test(int(0.8 * ROUNDS)), arm.test(ROUNDS))
    ] or [float(result.arms["full"].at(ROUNDS).mean())]
    room = max(0.5, 0.15 * (max(ends) - min(ends)))
    return float(min(ends) - room), float(max(ends) + room)


def upload(results: Mapping[str, Results]) -> Figure:
    """Cumulative upload of all arms, and the same in % of full communication."""
    figure = Figure(figsize=(_WIDTH * len(results), 7.2), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False)
    for (total, share), result in zip(grid.T, results.values(), strict=True):
        total.set_title(result.experiment.title)
        medians = []
        for axes in (total, share):
            axes.grid(alpha=0.25)
            round_ticks(axes, min(ROUNDS, result.rounds))
        for name, colour, style, arm in arms_of(result):
            shown = arm.tested <= ROUNDS
            x, sent = arm.tested[shown], arm.uploaded[:, shown]
            seeds = SEEDS if collapsed(result, name, ROUNDS).any() else None
            curves(total, x, sent / 2**30, colour, name, style, seeds)
            if name != "full":
                percent = 100 * sent / [result.full_bytes(int(last)) for last in x]
                curves(share, x, percent, colour, name, style)
                medians.append(np.median(percent, axis=0)[x > _FIRST * x[-1]])
        if medians:
            room = 0.06 * float(np.ptp(medians)) or 1.0
            share.set_ylim(float(np.min(medians)) - room, float(np.max(medians)) + room)
        share.set_xlabel("round")
    grid[0, 0].set_ylabel("uploaded since the start, GiB")
    grid[1, 0].set_ylabel("the same, % of full communication")
    legend(figure, grid[0, 0])
    return figure


def thresholds(results: Mapping[str, Results]) -> Figure:
    """The threshold by round of the adaptive arms, on a logarithmic axis."""
    figure, axes_of = panels(len(results), "round", width=_WIDTH, share=False)
    for axes, result in zip(axes_of, results.values(), strict=True):
        axes.set_title(result.experiment.title)
        axes.set_yscale("log", nonpositive="clip")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 7)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        round_ticks(axes, min(ROUNDS, result.rounds))
        seen = []
        for name, colour in COLOURS.items():
            arm = result.arms.get(f"adaptive {name}")
            if arm is not None:
                path = arm.threshold[:, 1:ROUNDS]
                fallen = bool(collapsed(result, f"adaptive {name}", ROUNDS).any())
                curves(axes, 1 + rounds(path), path, colour, name,
                       around=SEEDS if fallen else SHADE)  # fmt: skip
                seen.append(np.median(path, axis=0) if fallen else path)
        # A run that diverged has no threshold above 0, or one that would widen the axis: it leaves.
        positive = np.concatenate([part[part > 0] for part in seen]) if seen else np.ones(1)
        axes.set_ylim(0.8 * positive.min(), 1.25 * positive.max())
    axes_of[0].set_ylabel("threshold τ")
    legend(figure, axes_of[0])
    return figure


def paths(found: Mapping[str, Any]) -> Figure:
    """Paths of weights, and their increments beside a normal distribution."""
    drawn = found["drawn"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
    tones = dict(zip(dict.fromkeys(drawn["names"]), COLOURS.values(), strict=False))
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
    right.plot(stats.norm.ppf(drawn["shares"]), drawn["quantiles"], ".", ms=4, color=COLOURS["ou"])
    right.plot([-4, 4], [-4, 4], color="k", lw=1)
    right.set(xlabel="quantile of a normal", ylabel="quantile of the increments", title="Q–Q")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure


# By names; all but `bytes` are the paper's, and so is `paths`, which is no experiment.
FIGURES = {
    "fixed-accuracy": Recipe(fixed_accuracy, (FIXED,)),
    "fixed-upload": Recipe(fixed_upload, (FIXED,)),
    "accuracy": Recipe(accuracy, (*MAIN, SYNTHETIC)),
    "upload": Recipe(upload, MAIN),
    "thresholds": Recipe(thresholds, MAIN),
    "bytes": Recipe(against_bytes, MAIN),
}

"""The paper's figures."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from experiments.common.command import Found
from experiments.common.figures import SEEDS, SHADE, curves, legend, round_axis
from experiments.common.results import Arm, Results
from experiments.paper.experiments import FIXED, MAIN, STAND_INS, SYNTHETIC, THRESHOLDS
from experiments.paper.measures import ROUNDS, collapsed, thresholds
from experiments.paper.paths import NAME as PATHS
from experiments.paper.tables import joined, label
from taciturn.report.figures import GREY, colours

_TONES = colours([f"adaptive+{text}" for text in STAND_INS.values()])
COLOURS = {name: _TONES[f"adaptive+{text}"] for name, text in STAND_INS.items()}
_STYLES = {"adaptive": "-", "random": (0, (1.2, 1.2))}
_WIDTH = 4.6  # of a panel, in inches
_FIRST = 0.1  # of the rounds, in which so few messages are counted that shares jump
_LATE = 0.6  # of the rounds; after that, it is decided


def _arms(result: Results) -> Iterator[tuple[str, str, Any, Arm]]:
    """Name, colour, style and runs of the arms that curves are drawn of."""
    if "full" in result.arms:
        yield "full", GREY, (0, (5, 2)), result.arms["full"]
    for rule, style in _STYLES.items():
        for name, colour in COLOURS.items():
            if (arm := result.arms.get(f"{rule} {name}")) is not None:
                yield f"{rule} {name}", colour, style, arm


def fixed_accuracy(found: Found) -> Figure | None:
    """Accuracy by round under fixed thresholds, a panel each."""
    return _by_threshold(found, lambda arm: (arm.tested, arm.accuracy), "test accuracy, %")


def fixed_upload(found: Found) -> Figure | None:
    """Clients that speak in a round under fixed thresholds, a panel each."""

    def speakers(arm: Arm) -> tuple[np.ndarray, np.ndarray]:
        spoke = np.array([run["spoke"] for run in arm.runs])
        return 1 + np.arange(spoke.shape[1]), spoke

    return _by_threshold(found, speakers, "clients that upload")


def _by_threshold(
    found: Found, curve: Callable[[Arm], tuple[np.ndarray, np.ndarray]], what: str
) -> Figure | None:
    result = found.get(FIXED.name)
    if result is None:
        return None
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, len(THRESHOLDS), sharey=True)
    for axes, threshold in zip(panels, THRESHOLDS, strict=True):
        axes.set(title=f"τ = {threshold:g}", xlabel="round")
        round_axis(axes, result.rounds)
        for name, colour in COLOURS.items():
            if (arm := result.arms.get(f"{threshold} {name}")) is not None:
                curves(axes, *curve(arm), colour, label(f"τ {name}")[2:], around=SEEDS)
    panels[0].set_ylabel(what)
    legend(figure, panels[0])
    return figure


def accuracy(found: Found) -> Figure | None:
    """Accuracy by round of all arms, and beside it the zone that decides; a row per data set."""
    results = joined(found, (*MAIN, SYNTHETIC))
    if not results:
        return None
    figure = Figure(figsize=(10.4, 3.4 * len(results) + 0.7), layout="constrained")
    grid = figure.subplots(len(results), 2, squeeze=False)
    for (whole, zoom), result in zip(grid, results.values(), strict=True):
        last = min(ROUNDS, result.rounds)
        whole.set(title=result.experiment.title, ylabel="test accuracy, %")
        zoom.set_title(f"{result.experiment.title}, from round {round(_LATE * last)} on")
        for axes in (whole, zoom):
            round_axis(axes, last)
            for name, colour, style, arm in _arms(result):
                shown = arm.tested <= ROUNDS
                # Shades that lie on each other hide the lines.
                plain = SHADE if name == "full" else None
                around = SEEDS if collapsed(result, name).any() else plain
                curves(axes, arm.tested[shown], arm.accuracy[:, shown], colour, label(name), style,
                       around)  # fmt: skip
        zoom.set(xlim=(_LATE * last, last), ylim=_zone(result))
    for axes in grid[-1]:
        axes.set_xlabel("round")
    legend(figure, grid[0, 0])
    return figure


def _zone(result: Results) -> tuple[float, float]:
    """Where the arms end that have not collapsed, and a little more."""
    ends = [
        np.median(arm.accuracy[:, i])
        for name, _, _, arm in _arms(result)
        if not collapsed(result, name).any()
        for i in (arm.test(int(0.8 * ROUNDS)), arm.test(ROUNDS))
    ]
    room = max(0.5, 0.15 * float(np.ptp(ends)))
    return float(min(ends) - room), float(max(ends) + room)


def upload(found: Found) -> Figure | None:
    """Cumulative upload of all arms, and the same in % of full communication."""
    results = joined(found, MAIN)
    if not results:
        return None
    figure = Figure(figsize=(_WIDTH * len(results), 7.2), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False)
    for (total, share), result in zip(grid.T, results.values(), strict=True):
        total.set_title(result.experiment.title)
        medians = []
        for axes in (total, share):
            round_axis(axes, min(ROUNDS, result.rounds))
        for name, colour, style, arm in _arms(result):
            shown = arm.tested <= ROUNDS
            x, sent = arm.tested[shown], arm.uploaded[:, shown]
            seeds = SEEDS if collapsed(result, name).any() else None
            curves(total, x, sent / 2**30, colour, label(name), style, seeds)
            if name != "full":
                percent = 100 * sent / [result.full_bytes(int(last)) for last in x]
                curves(share, x, percent, colour, label(name), style)
                medians.append(np.median(percent, axis=0)[x > _FIRST * x[-1]])
        if medians:
            seen = np.concatenate(medians)
            room = 0.06 * float(np.ptp(seen)) or 1.0
            share.set_ylim(float(seen.min()) - room, float(seen.max()) + room)
        share.set_xlabel("round")
    grid[0, 0].set_ylabel("uploaded since the start, GiB")
    grid[1, 0].set_ylabel("the same, % of full communication")
    legend(figure, grid[0, 0])
    return figure


def by_round(found: Found) -> Figure | None:
    """The threshold by round of the adaptive arms, on a logarithmic axis."""
    results = joined(found, MAIN)
    if not results:
        return None
    figure = Figure(figsize=(_WIDTH * len(results), 4.2), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, result in zip(panels, results.values(), strict=True):
        axes.set(title=result.experiment.title, xlabel="round")
        axes.set_yscale("log", nonpositive="clip")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 7)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        round_axis(axes, min(ROUNDS, result.rounds))
        seen = []
        for name, colour in COLOURS.items():
            if (arm := result.arms.get(f"adaptive {name}")) is not None:
                path = thresholds(arm)[:, 1:ROUNDS]
                fallen = bool(collapsed(result, f"adaptive {name}").any())
                x = 2 + np.arange(path.shape[1])
                curves(axes, x, path, colour, label(f"adaptive {name}"),
                       around=SEEDS if fallen else SHADE)  # fmt: skip
                seen.append(np.median(path, axis=0) if fallen else path)
        # A run that diverged has no threshold above 0, or one that would widen the axis: it leaves.
        positive = np.concatenate([part[part > 0] for part in seen])
        axes.set_ylim(0.8 * positive.min(), 1.25 * positive.max())
    panels[0].set_ylabel("threshold τ")
    legend(figure, panels[0])
    return figure


def paths(found: Found) -> Figure | None:
    """Paths of weights, and their increments beside a normal distribution."""
    return None if PATHS not in found else _paths(found[PATHS]["drawn"])


def _paths(drawn: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
    tones = dict(zip(dict.fromkeys(drawn["names"]), COLOURS.values(), strict=False))
    named: set[str] = set()
    for name, path in zip(drawn["names"], drawn["paths"], strict=True):
        text = None if name in named else name
        left.plot(drawn["steps"], path, color=tones[name], lw=0.8, label=text)
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


FIGURES = {
    "fixed-accuracy": fixed_accuracy,
    "fixed-upload": fixed_upload,
    "accuracy": accuracy,
    "upload": upload,
    "thresholds": by_round,
    "paths": paths,
}

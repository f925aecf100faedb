"""The paper's figures, as PDF and PNG."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from taciturn.paper.experiments import EMNIST, FIXED, SHAKESPEARE, STAND_INS, THRESHOLDS
from taciturn.paper.paths import SETTINGS as PATH_SETTINGS
from taciturn.paper.paths import Paths
from taciturn.paper.tables import ROUNDS
from taciturn.report import picture
from taciturn.report.colours import GREY, colours
from taciturn.studies.figure import legend, panels, rounds
from taciturn.studies.results import Arm, Recipe, Results

# The rule is the line's style here. The last often lies on `zero`, which shows through its gaps.
_TONES = colours([f"adaptive+{text}" for text in STAND_INS.values()])
_DRAWN = ("ou", "zero", "ignore", "ou constrained")
_COLOURS = {name: _TONES[f"adaptive+{STAND_INS[name]}"] for name in _DRAWN}
_STYLES = {"adaptive": "-", "random": ":"}
_GAPS = {"-": (0, (5, 3)), ":": (0, (1, 3))}


def fixed_accuracy(results: Mapping[str, Results]) -> Figure:
    """Accuracy by round under fixed thresholds, a panel each."""
    figure, axes_of = panels(len(THRESHOLDS), "round")
    (result,) = results.values()
    for axes, threshold in zip(axes_of, THRESHOLDS, strict=True):
        axes.set_title(f"τ = {threshold:g}")
        for name in _COLOURS:
            arm = result.arms[f"{threshold} {name}"]
            _band(axes, arm.tested, arm.accuracy, _COLOURS[name], "-", name)
    axes_of[0].set_ylabel("test accuracy, %")
    legend(figure, axes_of[0])
    return figure


def fixed_upload(results: Mapping[str, Results]) -> Figure:
    """Clients that speak in a round under fixed thresholds, a panel each."""
    figure, axes_of = panels(len(THRESHOLDS), "round")
    (result,) = results.values()
    for axes, threshold in zip(axes_of, THRESHOLDS, strict=True):
        axes.set_title(f"τ = {threshold:g}")
        axes.set_ylim(-0.3, result.cohort + 0.3)
        for name in _COLOURS:
            spoke = result.arms[f"{threshold} {name}"].spoke
            _band(axes, rounds(spoke), spoke, _COLOURS[name], "-", name)
    axes_of[0].set_ylabel(f"clients that upload, of {result.cohort}")
    legend(figure, axes_of[0])
    return figure


def accuracy(results: Mapping[str, Results]) -> Figure:
    """Accuracy by round of all arms."""

    def draw(axes: Axes, arm: Arm, colour: str, style: str, name: str) -> None:
        shown = arm.tested <= ROUNDS
        _band(axes, arm.tested[shown], arm.accuracy[:, shown], colour, style, name)

    return _all_arms(results, draw, "test accuracy, %")


def upload(results: Mapping[str, Results]) -> Figure:
    """Cumulative upload of all arms."""

    def draw(axes: Axes, arm: Arm, colour: str, style: str, name: str) -> None:
        shown = arm.tested <= ROUNDS
        _band(axes, arm.tested[shown], arm.uploaded[:, shown] / 2**30, colour, style, name)

    return _all_arms(results, draw, "uploaded since the start, GiB")


def thresholds(results: Mapping[str, Results]) -> Figure:
    """The threshold by round of the adaptive arms."""
    figure, axes_of = panels(len(results), "round", width=5.5, share=False)
    for axes, result in zip(axes_of, results.values(), strict=True):
        axes.set_title(result.experiment.title)
        for name in _COLOURS:
            path = result.arms[f"adaptive {name}"].threshold[:, 1:ROUNDS]
            _band(axes, 1 + rounds(path), path, _COLOURS[name], "-", name)
    axes_of[0].set_ylabel("threshold")
    legend(figure, axes_of[0])
    return figure


def paths(found: Paths) -> Figure:
    """Paths of weights, and their increments beside a normal distribution."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
    drawn = PATH_SETTINGS["drawn"].value
    names = list(dict.fromkeys(found.names))
    for name, colour in zip(names, _COLOURS.values(), strict=False):
        own = np.flatnonzero(found.names == name)
        for i, which in enumerate(own[:: max(1, len(own) // drawn)][:drawn]):
            label = name if i == 0 else None
            left.plot(found.paths[:, which], color=colour, lw=0.8, label=label)
    left.set(
        xlabel="step", ylabel="weight − its start", title="Paths of weights, a colour per array"
    )
    left.legend(fontsize=8)
    epoch = (len(found.paths) - 1) // PATH_SETTINGS["epochs"].value
    late = np.diff(found.paths[-epoch - 1 :], axis=0)
    late = late[:, late.std(0) > 0]
    standard = np.sort(((late - late.mean(0)) / late.std(0)).reshape(-1))
    grid = np.linspace(-5, 5, 201)
    middle.hist(standard, bins=grid[::4], density=True, color="0.75", label="increments")
    middle.plot(grid, stats.norm.pdf(grid), color="k", lw=1, label="normal")
    middle.set(xlabel="increment / its deviation", title="Increments of the last epoch")
    middle.set(yscale="log", ylim=(1e-5, None))
    middle.legend(fontsize=8)
    shares = (np.arange(1000) + 0.5) / 1000
    right.plot(
        stats.norm.ppf(shares), np.quantile(standard, shares), ".", ms=3, color=_COLOURS["ou"]
    )
    right.plot([-4, 4], [-4, 4], color="k", lw=1)
    right.set(xlabel="quantile of a normal", ylabel="quantile of the increments", title="Q–Q")
    return figure


def _all_arms(results: Mapping[str, Results], draw: Callable[..., None], label: str) -> Figure:
    figure, axes_of = panels(len(results), "round", width=5.5, share=False)
    for axes, result in zip(axes_of, results.values(), strict=True):
        axes.set_title(result.experiment.title)
        draw(axes, result.arms["full"], GREY, "--", "full")
        for rule, style in _STYLES.items():
            for name, colour in _COLOURS.items():
                arm = f"{rule} {name}"
                draw(axes, result.arms[arm], colour, style, arm)
    axes_of[0].set_ylabel(label)
    legend(figure, axes_of[0])
    return figure


def _band(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, style: str, label: str) -> None:
    picture.line(axes, x, y, colour, label, _GAPS[style] if "constrained" in label else style)


# In the paper's order, which is also their numbers; the sixth, `paths`, has data of its own.
FIGURES = {
    "fixed-accuracy": Recipe(fixed_accuracy, (FIXED,)),
    "fixed-upload": Recipe(fixed_upload, (FIXED,)),
    "accuracy": Recipe(accuracy, (EMNIST, SHAKESPEARE)),
    "upload": Recipe(upload, (EMNIST, SHAKESPEARE)),
    "thresholds": Recipe(thresholds, (EMNIST, SHAKESPEARE)),
}

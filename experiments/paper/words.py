"""What the results say, in sentences; every number comes from the files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.paper import measures, published
from experiments.paper.comparing import PLATEAU, collapsed, common
from experiments.paper.experiments import EXPERIMENTS, GLYPHS, MAIN, SHAKESPEARE
from experiments.paper.measures import ROUNDS
from experiments.paper.paths import CONTROLS
from experiments.paper.setting_tables import TRIED, title_of
from taciturn.report.units import listed
from taciturn.studies.experiment import MATCHED, partner
from taciturn.studies.results import Results

SHOWN = tuple(name for name in EXPERIMENTS if name != GLYPHS.name)  # those of the page
_POINTS, _RATIO, _SHARE = 2.0, 0.15, 5.0  # how near to a printed figure is near
_PULL = 1.0  # % of clients by which collapsed runs must change a rate to be named


def missing(results: Mapping[str, Results], names: Iterable[str]) -> str:
    """What was not run, or not with all arms, as a sentence; empty where all was."""
    there = {name: result.arms.keys() for name, result in results.items()}
    absent = [name for name in names if EXPERIMENTS[name].arms.keys() - there.get(name, set())]
    return (
        f"Not run, or not with all arms: `taciturn paper run {','.join(absent)}`.\n"
        if absent
        else ""
    )


def apart(results: Mapping[str, Results]) -> str:
    """How far printed accuracies and thresholds are from ours."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        if result is None or not {"full", "adaptive zero"} <= set(result.arms):
            continue
        was = published.MAIN[experiment.task]["full"].accuracy
        tau = published.THRESHOLD[experiment.task]["adaptive zero"].mean
        assert tau is not None
        ours = float(measures.mean_threshold(result, "adaptive zero").mean())
        gap = float(result.arms["full"].at(ROUNDS).mean()) - was
        parts.append(
            f"{experiment.title}: `full` ends {abs(gap):.2f} points "
            f"{'below' if gap < 0 else 'above'} the printed accuracy, and the mean threshold of "
            f"`zero` is {ours / tau:.2f} times the printed one"
        )
    return f"{'; '.join(parts)}.\n" if parts else ""


def plateau(results: Mapping[str, Results]) -> str:
    """What a constant answer reaches, and when arms leave it behind."""
    result = results.get(SHAKESPEARE.name)
    if result is None or "constant" not in result.data:
        return ""
    constant = result.data["constant"]
    left: list[int] = []
    stuck: list[str] = []
    below: list[str] = []
    for name, arm in result.arms.items():
        shown = arm.tested <= ROUNDS
        above = np.flatnonzero(np.median(arm.accuracy[:, shown], axis=0) > constant + PLATEAU)
        if len(above):
            left.append(int(arm.tested[above[0]]))
        else:
            on_it = np.abs(arm.at(ROUNDS) - constant) <= PLATEAU
            (stuck if on_it.all() else below).append(f"`{name}`")
    text = (
        f"A model that always answers with the most frequent character reaches {constant:.2f} % on "
        f"Shakespeare."
    )
    if left:
        text += (
            f" By the median over seeds, {len(left)} of {len(result.arms)} arms leave that plateau "
            f"by {points(PLATEAU)}, after {min(left)} to {max(left)} rounds."
        )
    text += f" Every seed of {listed(stuck)} ends on it." if stuck else ""
    text += f" At least half of the seeds of {listed(below)} end on it or below." if below else ""
    return text + "\n"


def all_silent(results: Mapping[str, Results]) -> str:
    """Rounds in which nobody spoke and nobody was counted."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        if result is not None and "adaptive ignore" in result.arms:
            silent = (result.arms["adaptive ignore"].spoke[:, :ROUNDS] == 0).sum(1)
            parts.append(f"{experiment.title} {silent.mean():.1f} of {ROUNDS}")
    if not parts:
        return ""
    return (
        f"Rounds of `adaptive ignore` in which nobody spoke, so that the model stayed as it was, "
        f"mean over seeds: {'; '.join(parts)}. Rules learn from the norms of every round.\n"
    )


def fits(results: Mapping[str, Results], task: str) -> str:
    """Which settings of a task come near the printed accuracy, threshold and share."""
    tried = [results[e.name] for e in TRIED[task] if e.name in results]
    tried = [r for r in tried if {"full", "adaptive zero"} <= set(r.arms)]
    if not tried:
        return ""
    was, tau = published.MAIN[task], published.THRESHOLD[task]["adaptive zero"].mean
    assert tau is not None
    near: dict[str, list[str]] = {
        f"accuracy (within {_POINTS:g} points)": [],
        f"threshold (within {100 * _RATIO:.0f} %)": [],
        f"share (within {_SHARE:g} points)": [],
    }
    for result in tried:
        accuracy = result.arms["full"].at(ROUNDS).mean() - was["full"].accuracy
        threshold = measures.mean_threshold(result, "adaptive zero").mean() / tau - 1
        share = measures.share(result, "adaptive zero").mean() - was["adaptive zero"].share
        gaps = (abs(accuracy) / _POINTS, abs(threshold) / _RATIO, abs(share) / _SHARE)
        for titles, gap in zip(near.values(), gaps, strict=True):
            titles += [f"*{title_of(result.experiment)}*"] if gap < 1 else []
    together: dict[tuple[str, ...], list[str]] = {}
    for what, titles in near.items():
        together.setdefault(tuple(titles), []).append(what)
    parts = [
        f"{_and(who)} {'come' if len(who) > 1 else 'comes'} near the printed {_and(what)}"
        if who
        else f"none near the printed {_and(what, 'or')}"
        for who, what in sorted(together.items(), key=lambda item: not item[0])  # none comes last
    ]
    count = f"{len(tried)} settings" if len(tried) > 1 else "one setting that has these arms"
    return f"Of {count}, {', '.join(parts)}.\n"


def _and(parts: Sequence[str], word: str = "and") -> str:
    """One after another, the last after a word, whether they have commas or not."""
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


def points(number: float) -> str:
    """So many points of accuracy."""
    return "a point" if number == 1 else f"{number:g} points"


def pulled_down(results: Mapping[str, Results]) -> str:
    """Whether collapsed runs change the rate at which matched random arms speak."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        for name in (arm for arm, text in experiment.arms.items() if MATCHED in text):
            if result is None or partner(name) not in result.arms or "full" not in result.arms:
                continue
            own, _ = common(result, partner(name), "full")
            rates, fallen = (
                measures.rate(result, partner(name))[own],
                collapsed(result, partner(name), ROUNDS),
            )
            if fallen.any() and not fallen.all():
                rest = rates[~fallen].mean()
                if rest - rates.mean() > _PULL:
                    parts.append(
                        f"that of `{name}` on {experiment.title} is {rates.mean():.1f} %, and "
                        f"would be {rest:.1f} % without the runs of `{partner(name)}` that "
                        f"collapsed"
                    )
    return f"Runs that collapse pull such a rate down: {'; '.join(parts)}.\n" if parts else ""


# What was measured of weights' paths, in words, and how it is written.
_MEASURED = {
    "accuracy": ("test accuracy, %", ".2f"),
    "steps": ("steps", ".0f"),
    "weights": ("weights", ".0f"),
    "moved": ("weights that moved", ".0f"),
    "increments_normal_share": ("increments pass for normal, % of weights", ".1f"),
    "increments_of_ten_steps_normal_share": (
        "increments of ten steps pass for normal, % of weights",
        ".1f",
    ),
    "increments_kurtosis_median": ("excess kurtosis of increments, median", ".3f"),
    "increments_kolmogorov_smirnov": (
        "largest distance of the increments' distribution from a normal one",
        ".4f",
    ),
    "reverting_share": ("fitted rate is positive, % of weights", ".1f"),
    "unit_root_rejected_share": ("pull to a mean is significant, % of weights", ".1f"),
    "unit_root_rejected_in_last_epoch_share": ("the same in the last epoch, % of weights", ".1f"),
    "rate_median": ("fitted rate per step, median", ".6f"),
    "half_life_median_steps": ("half-life in steps, median", ".0f"),
    "mean_median_distance": ("distance of the fitted mean from the start, median", ".4f"),
    "volatility_median": ("volatility per √step, median", ".6f"),
    "net_over_total_movement_median": ("net over total movement, median", ".3f"),
}


def paths_table(measured: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """What was measured of weights' paths, and of the controls; means over seeds."""
    rows = []
    for key, (name, form) in _MEASURED.items():
        cells = [np.mean([one[key] for one in measured])]
        cells += [
            np.mean([one[control][key] for one in measured])
            for control in CONTROLS
            if key in measured[0][control]
        ]
        shown = [f"{value:{form}}".replace("-", "−") for value in cells]
        rows.append((name, *shown, *[""] * (1 + len(CONTROLS) - len(shown))))
    return rows

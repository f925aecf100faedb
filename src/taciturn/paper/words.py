"""What the results say, in sentences; every number comes from the files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.frontier import words as frontier
from taciturn.frontier.experiments import MAIN as FRONTIER
from taciturn.frontier.policies import RECOMMENDED
from taciturn.paper import published
from taciturn.paper.checks import FAILS, HOLDS, IN_PART, OPEN, Claim
from taciturn.paper.comparing import accuracies
from taciturn.paper.experiments import EMNIST, EXPERIMENTS, GLYPHS, MAIN, SHAKESPEARE
from taciturn.paper.tables import ROUNDS, thresholds_after_first
from taciturn.report.units import listed
from taciturn.studies.results import Results, read

_COHORT = EMNIST.numbers()["cohort"]
SHOWN = tuple(name for name in EXPERIMENTS if name != GLYPHS.name)  # those of the page
_POINTS, _RATIO, _SHARE = 2.0, 0.15, 5.0  # how near to a printed figure is near


def summary(
    results: Mapping[str, Results],
    found: Sequence[Claim],
    frontier_at: Path,
    paths: Mapping[str, Any],
) -> str:
    """The five sentences that the page begins with; `paths` is the file of the illustration."""
    numbered = (
        _reproduced(results),
        _of_verdicts(found, HOLDS, IN_PART),
        f"{_of_verdicts(found, FAILS, OPEN)}{_random_ignore(results)}",
        _instead(frontier_at),
        _how_long(results, paths),
    )
    return "\n".join(f"{i}. {text}" for i, text in enumerate(numbered, 1)) + "\n"


def _reproduced(results: Mapping[str, Results]) -> str:
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        if result is None or "full" not in result.arms:
            parts.append(f"{experiment.title} (not run)")
            continue
        was = published.MAIN[experiment.task]["full"].accuracy
        full = result.arms["full"].at(ROUNDS)
        parts.append(
            f"{experiment.title} ({whose(result)}), where `full` ends at {full.mean():.2f} % and "
            f"the paper has {was:g}"
        )
    seeds = [len(a.seeds) for e in MAIN if e.name in results for a in results[e.name].arms.values()]
    fewest, most = min(seeds, default=0), max(seeds, default=0)
    span = f"{most}" if fewest == most else f"{fewest} to {most}"
    what = "in part" if missing(results, SHOWN) else "every table and figure"
    return f"**Reproduced**: {what}, over {span} seeds: {listed(parts)}."


def whose(result: Results) -> str:
    """How much of the paper's data a result has."""
    if not result.data:
        return "counts not recorded"
    was = published.DATA_SETS[result.experiment.task]
    return (
        f"{result.data['clients']:,} clients with {result.data['examples']:,} training rows; the "
        f"paper names {was.users} and {was.samples}"
    )


def _of_verdicts(found: Sequence[Claim], first: str, second: str) -> str:
    """The claims of one verdict, and how many have another."""
    texts = [f"{claim.text} ({claim.yes_of_all})" for claim in found if claim.verdict == first]
    others = sum(claim.verdict == second for claim in found)
    return (
        f"**{first.capitalize()}**, of {len(found)} [claims](#claims), with how many of its checks "
        f"say yes: {'; '.join(texts) or 'none'}. {second.capitalize()}: {others}."
    )


def _random_ignore(results: Mapping[str, Results]) -> str:
    """Whether the simplest thing beats the paper's method."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        arms = ("random ignore", "adaptive ou")
        if result is not None and all(arm in result.arms for arm in arms):
            compared = accuracies(result, *arms, ROUNDS)
            parts.append(f"{experiment.title} {compared.word} ({compared.shown})")
    if not parts:
        return ""
    return f" `random ignore` compared with `adaptive ou`: {listed(parts)}."


def _instead(folder: Path) -> str:
    there = [read(e, folder) for e in FRONTIER if (folder / f"{e.name}.json").exists()]
    lines = [frontier.headline(result) for result in there if "full" in result.arms]
    return (
        f"**Instead**, [the frontier](frontier.md) recommends `{RECOMMENDED}`"
        f"{': ' if lines else ', which has not been run.'}{' '.join(lines)}"
    )


def _how_long(results: Mapping[str, Results], paths: Mapping[str, Any]) -> str:
    seconds: dict[str, float] = {}
    for piece in [piece for result in results.values() for piece in result.pieces]:
        seconds[piece.device] = seconds.get(piece.device, 0.0) + piece.seconds
    if paths:
        device = paths["versions"]["device"]
        seconds[device] = seconds.get(device, 0.0) + paths["seconds"]
    longest = max((p.seconds for r in results.values() for p in r.pieces), default=0.0)
    parts = [f"{s:,.0f} s ({s / 60:.0f} minutes) on {device}" for device, s in seconds.items()]
    return (
        f"**It took** {listed(parts)}, compilation included; the longest piece took {longest:.0f} "
        f"s."
    )


def missing(results: Mapping[str, Results], names: Iterable[str]) -> str:
    """What was not run, as a sentence; empty where all was."""
    absent = [name for name in names if name not in results]
    return f"Not run yet: `taciturn paper run {','.join(absent)}`.\n" if absent else ""


def apart(results: Mapping[str, Results]) -> str:
    """How far printed accuracies and thresholds are from ours."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        if result is None or not {"full", "adaptive zero"} <= set(result.arms):
            continue
        was = published.MAIN[experiment.task]["full"].accuracy
        tau = float(published.THRESHOLD[experiment.task]["adaptive zero"].split(" ")[0])
        ours = float(thresholds_after_first(result, "adaptive zero").mean())
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
    constant, left, stuck = result.data["constant"], [], []
    for name, arm in result.arms.items():
        shown = arm.tested <= ROUNDS
        above = np.flatnonzero(np.median(arm.accuracy[:, shown], axis=0) > constant + 1)
        if len(above):
            left.append(int(arm.tested[above[0]]))
        elif np.median(arm.at(ROUNDS)) > constant - 1:
            stuck.append(f"`{name}`")
    text = (
        f"A model that always answers with the most frequent character reaches {constant:.2f} % on "
        f"Shakespeare."
    )
    if left:
        text += f" Arms leave that plateau by a point after {min(left)} to {max(left)} rounds"
        text += f"; {listed(stuck)} end on it." if stuck else "."
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
    """Which settings of a task give the printed accuracy, threshold and share."""
    accuracy, share = (
        published.MAIN[task]["full"].accuracy,
        published.MAIN[task]["adaptive zero"].share,
    )
    tau = float(published.THRESHOLD[task]["adaptive zero"].split(" ")[0])
    given: dict[str, list[str]] = {"accuracy": [], "threshold": [], "share": [], "all three": []}
    tried = [r for r in results.values() if r.experiment.task == task and r.cohort == _COHORT]
    tried = [r for r in tried if {"full", "adaptive zero"} <= set(r.arms)]
    for result in tried:
        ours = float(thresholds_after_first(result, "adaptive zero").mean())
        near = {
            "accuracy": abs(result.arms["full"].at(ROUNDS).mean() - accuracy) < _POINTS,
            "threshold": abs(ours / tau - 1) < _RATIO,
            "share": abs(result.share("adaptive zero", ROUNDS).mean() - share) < _SHARE,
        }
        near["all three"] = all(near.values())
        for what, yes in near.items():
            given[what] += [f"`{result.experiment.name}`"] if yes else []
    if not tried:
        return ""
    parts = [f"{what}: {', '.join(titles) or 'none'}" for what, titles in given.items()]
    return (
        f"Experiments with these arms and N = {_COHORT}: {len(tried)}. Those near the printed "
        f"figures (accuracy of `full` within {_POINTS:g} points; mean threshold of `adaptive zero` "
        f"within {100 * _RATIO:.0f} %; its share within {_SHARE:g} points): {'; '.join(parts)}.\n"
    )


def paths_table(measured: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What was measured of weights' paths, and of the control; means over seeds."""
    rows = []
    for name in [key for key in measured[0] if key not in ("seed", "control")]:
        own = np.mean([one[name] for one in measured])
        control = [one["control"][name] for one in measured if name in one["control"]]
        shown = f"{np.mean(control):.4g}" if control else ""
        rows.append((name.replace("_", " "), f"{own:.4g}", shown))
    return rows

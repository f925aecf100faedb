"""Runs what is missing of a frontier, and makes its table and its picture."""

from collections.abc import Callable
from pathlib import Path

from taciturn.frontier import figures, tables
from taciturn.frontier.experiments import EXPERIMENTS
from taciturn.frontier.policies import ENTRIES, RECOMMENDED
from taciturn.studies import figure, pieces
from taciturn.studies.experiment import Experiment
from taciturn.studies.pieces import Options
from taciturn.studies.results import Results, state
from taciturn.studies.table import Table


def frontier(
    experiment: Experiment, options: Options, say: Callable[[str], None]
) -> tuple[Table, list[Path]]:
    """The table of an experiment, and the files of its table and its picture."""
    result = pieces.run(experiment, options, say)
    return tables.frontier(result), written(result, options.folder)


def written(result: Results, folder: Path) -> list[Path]:
    """Writes table and picture of an experiment."""
    name = result.experiment.name
    made = tables.frontier(result).write(folder, f"table-{name}")
    return [
        *made,
        *figure.write(figures.frontier(result), folder, f"figure-{name}", ("png", "svg")),
    ]


def listing(folder: Path) -> list[str]:
    """The experiments, which of them were run, and the policies."""
    lines = ["experiments"]
    for name, experiment in EXPERIMENTS.items():
        count = len(experiment.arms)
        runs = f"{count} polic{'y' if count == 1 else 'ies'}, seeds: {experiment.seeds}"
        lines.append(f"  {name:<18} {experiment.title}: {runs}, {state(experiment, folder)}")
    lines.append("policies")
    for entry in ENTRIES:
        best = "; recommended" if entry.policy == RECOMMENDED else ""
        lines.append(f"  {entry.name:<30} {entry!s:<42} {entry.reference}{best}")
    return lines

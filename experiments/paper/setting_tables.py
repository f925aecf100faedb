"""Tables of what was set: data sets and models, and settings that the paper leaves open."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper import measures, published
from experiments.paper.experiments import (
    EMNIST,
    EMNIST_SETTINGS,
    SEARCH,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    VARIANTS,
)
from experiments.paper.measures import ROUNDS
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Results
from taciturn.studies.table import Spread, Table, cell

# Of each task, what was taken and what was tried.
TRIED = {
    EMNIST.task: (EMNIST, *EMNIST_SETTINGS),
    SHAKESPEARE.task: (SHAKESPEARE, SHAKESPEARE_FAST, *VARIANTS, *SEARCH),
}


def emnist_settings(results: Mapping[str, Results]) -> Table:
    """Which local work gives EMNIST's printed numbers."""
    return _settings(TRIED[EMNIST.task], results)


def shakespeare_settings(results: Mapping[str, Results]) -> Table:
    """What fits Shakespeare's printed numbers best."""
    return _settings(TRIED[SHAKESPEARE.task], results)


def title_of(experiment: Experiment) -> str:
    """What a setting is called in its table."""
    number = experiment.numbers()
    if experiment is EMNIST:
        return f"E = {number['epochs']}, B = {number['batch']}"
    if experiment is SHAKESPEARE:
        return f"B = {number['batch']}, lr {number['lr']:g}, E = {number['epochs']}"
    return experiment.title.partition(", ")[2]


def _settings(tried: Sequence[Experiment], results: Mapping[str, Results]) -> Table:
    """Printed figures, and those of every setting that was tried, the one that was taken first."""
    columns = ("setting", "seeds", "full accuracy %", "adaptive ou accuracy %",
               "adaptive zero accuracy %", "adaptive zero threshold",
               "adaptive zero share %")  # fmt: skip
    taken = tried[0]
    main = published.MAIN[taken.task]
    rows: list[tuple[Any, ...]] = [
        (
            "printed",
            1,
            *(main[arm].accuracy for arm in ("full", "adaptive ou", "adaptive zero")),
            published.THRESHOLD[taken.task]["adaptive zero"].mean,
            main["adaptive zero"].share,
        )
    ]
    for experiment in tried:
        result = results.get(experiment.name)
        title = title_of(experiment)
        rows.append(
            (
                f"**taken: {title}**" if experiment is taken else title,
                None if result is None else max(len(arm.seeds) for arm in result.arms.values()),
                *(
                    cell(result, arm, lambda r, a: Spread(r.arms[a].at(ROUNDS)))
                    for arm in ("full", "adaptive ou", "adaptive zero")
                ),
                cell(
                    result, "adaptive zero", lambda r, a: Spread(measures.mean_threshold(r, a), 3)
                ),
                cell(result, "adaptive zero", lambda r, a: Spread(measures.share(r, a), 1)),
            )
        )
    return Table(
        f"{taken.title}: settings that the paper leaves open, {ROUNDS} rounds; ± is the standard "
        f"deviation over seeds.",
        columns,
        rows,
    )


def data_sets(results: Mapping[str, Results]) -> Table:
    """Data sets and models beside the paper's."""
    columns = ("data set", "clients", "paper", "training rows", "paper", "test rows", "weights",
               "paper's layers", "paper's total", "sha256")  # fmt: skip
    rows = []
    for result in results.values():
        was, data = published.DATA_SETS[result.experiment.task], result.data
        if not data:
            data = dict.fromkeys(("clients", "examples", "tests", "sha256"), "not recorded")
        rows.append(
            (
                result.experiment.title,
                _number(data["clients"]),
                was.users,
                _number(data["examples"]),
                was.samples,
                _number(data["tests"]),
                _number(result.size),
                _number(sum(was.layers)) if was.layers else None,
                was.total,
                f"`{str(data['sha256'])[:12]}`",
            )
        )
    return Table("Data sets and models (the paper's tables 3 to 5).", columns, rows)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

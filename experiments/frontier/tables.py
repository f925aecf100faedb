"""The frontier's tables: one for each experiment, and two of all of them."""

from typing import Any

from experiments.common.command import Found, only, some
from experiments.common.results import Results
from experiments.frontier.experiments import MAIN
from taciturn.errors import RunError
from taciturn.frontier import front
from taciturn.frontier.front import Frontier, Scores
from taciturn.report.table import Table
from taciturn.summary import FULL

_SETTINGS = ("epochs", "batch", "lr")
# Further forms of a rival: each experiment's own table has them.
_FURTHER = ("EDEN 2 bits", "QSGD 4 bits", "sparse ternary 1 %", "optimal sampling 30 %, OU",
            "optimal sampling 30 %, last")  # fmt: skip


def frontier(result: Results) -> Frontier:
    """Where the arms of an experiment are compared."""
    if FULL not in result.arms:
        raise RunError(f"{result.experiment.name} has no run of full communication yet.")
    arms = {
        name: Scores(arm.seeds, arm.accuracy, arm.uploaded, arm.figure("worst_tenth"))
        for name, arm in result.arms.items()
    }
    return Frontier(result.experiment.title, result.measure, result.cohort, arms)


def settings(found: Found) -> Table:
    """What was run."""
    columns = ("", "clients", "weights", *_SETTINGS, "seeds")
    rows: list[tuple[Any, ...]] = []
    for result in some(found, MAIN).values():
        rows.append((
            result.experiment.title, result.data["clients"], f"{result.size:,}",
            *map(result.settings.get, _SETTINGS), len(result.arms[FULL].seeds),
        ))  # fmt: skip
    return Table("What was run.", columns, rows)


def ends(found: Found) -> Table:
    """Where policies end: accuracy against full communication, and upload."""
    there = some(found, MAIN)
    arms = dict.fromkeys(arm for result in there.values() for arm in result.experiment.arms)
    marks = {name: _ends(result) for name, result in there.items()}
    rows = [(arm, *(own.get(arm) for own in marks.values())) for arm in arms]
    rows = [row for row in rows if any(row[1:]) and row[0] not in _FURTHER]
    columns = ("policy", *(result.experiment.title for result in there.values()))
    return Table("Where policies end.", columns, rows)


def _ends(result: Results) -> dict[str, str]:
    own, found = frontier(result), {}
    for point in front.points(own):
        text = f"{own.gap(point.name)}; {own.share(point.name).mean():.3g} %"
        text = f"{point.score:.2f} %" if point.name == FULL else text
        found[point.name] = text + " ●" * point.on_front
    return found


TABLES = {"experiments": settings, "ends": ends} | {
    one.name: only(one.name, lambda result: front.table(frontier(result))) for one in MAIN
}

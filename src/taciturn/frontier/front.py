"""Accuracy against uploaded bytes: where each policy ends, and which of them are beaten."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from taciturn.errors import RunError
from taciturn.frontier.policies import FULL, GRID, RECOMMENDED
from taciturn.report.page import SHARES
from taciturn.report.units import byte_text
from taciturn.studies.results import Arm, Results
from taciturn.studies.table import Spread, Table


class Point(NamedTuple):
    """Where a policy ends, as means over seeds."""

    name: str  # of the arm
    accuracy: float  # in %
    uploaded: float  # bytes
    on_front: bool  # whether no other has at least its accuracy for at most its bytes
    recommended: bool  # whether it is the policy that Taciturn recommends


def points(result: Results) -> list[Point]:
    """Full communication, and then the other arms, those that upload most first."""
    if FULL not in result.arms:
        raise RunError(f"{result.experiment.name} has no run of full communication yet.")
    ends = {
        name: (float(arm.bytes_at().mean()), float(arm.at().mean()))
        for name, arm in result.arms.items()
    }
    front, recommended = pareto(ends), GRID[RECOMMENDED]
    found = [
        Point(name, accuracy, sent, name in front, result.arms[name].policy == recommended)
        for name, (sent, accuracy) in ends.items()
    ]
    return sorted(found, key=lambda point: (point.name != FULL, -point.uploaded))


def pareto(ends: Mapping[str, tuple[float, float]]) -> set[str]:
    """Those of (bytes, accuracy) that no other beats in one without losing in the other."""

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] >= other[1]

    return {name for name, end in ends.items() if not any(beats(o, end) for o in ends.values())}


def reached(arm: Arm, accuracy: float) -> float | None:
    """Bytes until the first test at which the mean over seeds is at least `accuracy`."""
    found = np.flatnonzero(arm.accuracy.mean(0) >= accuracy)
    return float(arm.uploaded[:, found[0]].mean()) if len(found) else None


def table(result: Results) -> Table:
    """Accuracy and upload of every policy, and the worst tenth of clients where runs have it."""
    found = points(result)
    columns = ("policy", f"{result.measure} %", "− full", "upload %", "bytes", "front",
               *(f"to {100 * share:g} %" for share in SHARES))  # fmt: skip
    rows = [_row(point, result, found[0].accuracy) for point in found]
    worst = [result.arms[point.name].figure("worst_tenth") for point in found]
    if any(tenth is not None for tenth in worst):
        columns = (*columns, "worst tenth %")
        rows = [(*row, None if tenth is None else Spread(tenth))
                for row, tenth in zip(rows, worst, strict=True)]  # fmt: skip
    seeds = max(len(arm.seeds) for arm in result.arms.values())
    title = f"{result.experiment.title}, {result.cohort} clients in a round, {seeds} seed"
    return Table(f"{title}{'s' * (seeds > 1)}.", columns, rows)


def _row(point: Point, result: Results, goal: float) -> tuple[Any, ...]:
    arm, share = result.arms[point.name], result.share(point.name)
    ends = [reached(arm, share * goal) for share in SHARES]
    return (
        f"**{point.name}**" if point.recommended else point.name,
        Spread(arm.at()),
        None if point.name == FULL else str(result.gap(point.name, FULL)),
        Spread(share, 1 if share.mean() >= 10 else 2 if share.mean() >= 1 else 3),
        byte_text(point.uploaded),
        "●" if point.on_front else None,
        *(None if sent is None else byte_text(sent) for sent in ends),
    )

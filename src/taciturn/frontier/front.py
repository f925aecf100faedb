"""Accuracy against uploaded bytes: where each policy ends, and which of them are beaten."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from taciturn.report.page import SHARES
from taciturn.report.table import Spread, Table
from taciturn.report.units import byte_text
from taciturn.summary import FULL, RECOMMENDED, Difference, difference


class Scores(NamedTuple):
    """What the runs of a policy came to; arrays are (seeds, tests)."""

    seeds: tuple[int, ...]
    score: np.ndarray  # in %: accuracy, or how much of the variance is explained
    uploaded: np.ndarray  # bytes since the start, headers included
    worst_tenth: np.ndarray | None = None  # in %, (seeds,)


class Frontier(NamedTuple):
    """What the policies of a task came to, by their names."""

    title: str
    measure: str  # what scores are
    cohort: int
    arms: Mapping[str, Scores]

    def gap(self, name: str) -> Difference:
        """The difference to full communication, over the seeds that both have."""
        own, full = self.arms[name], self.arms[FULL]
        both = [seed for seed in own.seeds if seed in full.seeds]
        one, other = (arm.score[[arm.seeds.index(s) for s in both], -1] for arm in (own, full))
        return difference(one, other)

    def share(self, name: str) -> np.ndarray:
        """Upload in % of that of full communication, (seeds,)."""
        return 100 * self.arms[name].uploaded[:, -1] / self.arms[FULL].uploaded[:, -1].mean()


class Point(NamedTuple):
    """Where a policy ends, as means over seeds."""

    name: str
    score: float  # in %
    uploaded: float  # bytes
    on_front: bool  # whether no other has at least its score for at most its bytes


def points(found: Frontier) -> list[Point]:
    """Full communication, and then the other policies, those that upload most first."""
    ends = {name: (float(arm.uploaded[:, -1].mean()), float(arm.score[:, -1].mean()))
            for name, arm in found.arms.items()}  # fmt: skip
    made = []
    for name, end in ends.items():
        no_worse = [one for one in ends.values() if one[0] <= end[0] and one[1] >= end[1]]
        made.append(Point(name, end[1], end[0], on_front=set(no_worse) == {end}))
    return sorted(made, key=lambda point: (point.name != FULL, -point.uploaded))


def table(found: Frontier) -> Table:
    """Score and upload of every policy, the bytes until shares of what full communication reached,
    and the worst tenth of clients where runs have it."""
    arms, goal = found.arms.values(), found.arms[FULL].score[:, -1].mean()
    goals = [share * goal for share in SHARES if goal > 0]  # 90 % of less than 0 is more
    columns = ("policy", f"{found.measure} %", "− full", "upload %", "bytes", "front",
               *(f"to {100 * share:g} %" for share in SHARES[: len(goals)]),
               *["worst tenth %"] * any(arm.worst_tenth is not None for arm in arms))  # fmt: skip
    rows = [_row(point, found, goals)[: len(columns)] for point in points(found)]
    seeds = max(len(arm.seeds) for arm in arms)
    title = f"{found.title}, {found.cohort} clients in a round, {seeds} seed{'s' * (seeds > 1)}."
    return Table(title, columns, rows)


def _row(point: Point, found: Frontier, goals: list[float]) -> tuple[Any, ...]:
    arm, share = found.arms[point.name], found.share(point.name)
    until = [arm.uploaded[:, arm.score.mean(0) >= goal] for goal in goals]  # (seeds, tests)
    return (
        f"**{point.name}**" if point.name == RECOMMENDED else point.name,
        Spread(arm.score[:, -1]),
        None if point.name == FULL else str(found.gap(point.name)),
        Spread(share, 1 if share.mean() >= 10 else 2 if share.mean() >= 1 else 3),
        byte_text(point.uploaded),
        "●" if point.on_front else None,
        *(byte_text(sent[:, 0].mean()) if sent.size else None for sent in until),
        None if arm.worst_tenth is None else Spread(arm.worst_tenth),
    )

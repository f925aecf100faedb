"""Accuracy against uploaded bytes: what each policy comes to, and which of them are beaten."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from taciturn.errors import RunError
from taciturn.frontier.policies import RECOMMENDED
from taciturn.report.page import SHARES
from taciturn.studies.difference import Difference
from taciturn.studies.results import Arm, Results

FULL = "full"


class Point(NamedTuple):
    """What a policy comes to at the end of an experiment.

    Attributes:
      name, policy: of the arm.
      accuracy: (seeds,), in %.
      gap: the difference to full communication, seed by seed; None for full communication itself.
      share: upload in % of full communication's, (seeds,).
      uploaded: bytes, mean over seeds.
      reached: bytes until shares of full communication's accuracy; None where it never got there.
      on_front: whether no other has at least its accuracy for at most its bytes.
    """

    name: str
    policy: str
    accuracy: np.ndarray
    gap: Difference | None
    share: np.ndarray
    uploaded: float
    reached: Mapping[float, float | None]
    on_front: bool


def points(result: Results) -> list[Point]:
    """Every arm of an experiment, full communication first."""
    if FULL not in result.arms:
        raise RunError(f"{result.experiment.name} has no run of full communication yet.")
    goal = float(result.arms[FULL].at().mean())
    ends = {
        name: (float(arm.bytes_at().mean()), float(arm.at().mean()))
        for name, arm in result.arms.items()
    }
    front = pareto(ends)
    return [
        Point(
            name,
            arm.policy,
            arm.at(),
            None if name == FULL else result.gap(name, FULL),
            result.share(name),
            ends[name][0],
            {share: reached(arm, share * goal) for share in SHARES},
            name in front,
        )
        for name, arm in result.arms.items()
    ]


def pareto(ends: Mapping[str, tuple[float, float]]) -> set[str]:
    """Those of (bytes, accuracy) that no other beats in one without losing in the other."""

    def beaten(name: str) -> bool:
        sent, accuracy = ends[name]
        return any(
            other != ends[name] and other[0] <= sent and other[1] >= accuracy
            for other in ends.values()
        )

    return {name for name in ends if not beaten(name)}


def reached(arm: Arm, accuracy: float) -> float | None:
    """Bytes until the first test after which the mean over seeds is at least `accuracy`."""
    found = np.flatnonzero(arm.accuracy.mean(0) >= accuracy)
    return float(arm.uploaded[:, found[0]].mean()) if len(found) else None


def recommended(found: Iterable[Point]) -> Point | None:
    """The point of the recommended policy; None where it did not run."""
    return next((point for point in found if point.policy == RECOMMENDED), None)

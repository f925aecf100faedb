"""Figures of runs that tables, pictures and claims share; (seeds,) where nothing else is said."""

import numpy as np

from experiments.paper.comparing import common
from taciturn.studies.results import Arm, Results

ROUNDS = 100  # of the main table
TARGET = 0.9  # of the final accuracy of full communication, to which bytes and rounds are counted


def thresholds_after_first(result: Results, arm: str) -> np.ndarray:
    """The thresholds that were learned: in the first round everyone speaks. (seeds, rounds − 1)."""
    return result.arms[arm].threshold[:, 1:ROUNDS]


def mean_threshold(result: Results, arm: str) -> np.ndarray:
    """Over all rounds but the first."""
    return thresholds_after_first(result, arm).mean(1)


def spread(result: Results, arm: str) -> np.ndarray:
    """The deviation of the threshold over all rounds but the first."""
    return thresholds_after_first(result, arm).std(1)


def late_spread(result: Results, arm: str) -> np.ndarray:
    """The deviation of the threshold over the second half of the rounds."""
    last = min(ROUNDS, result.rounds)
    return result.arms[arm].threshold[:, last // 2 : last].std(1)


def swings(result: Results, arm: str) -> np.ndarray:
    """The deviation of accuracy's change from test to test, in the second half of the rounds."""
    last = min(ROUNDS, result.rounds)
    shown = (result.arms[arm].tested > last // 2) & (result.arms[arm].tested <= last)
    return np.diff(result.arms[arm].accuracy[:, shown], axis=1).std(1)


def share(result: Results, arm: str) -> np.ndarray:
    """Upload in % of full communication."""
    return result.share(arm, ROUNDS)


def rate(result: Results, arm: str) -> np.ndarray:
    """How many of the clients that were asked spoke, in %, over all rounds."""
    return 100 * result.arms[arm].spoke.mean(1) / result.cohort


def rounds_to_target(result: Results, arm: str) -> np.ndarray:
    """The first test at which a run has the target, infinite where it never has."""
    own, full = common(result, arm, "full")
    runs, goal = result.arms[arm], TARGET * result.arms["full"].at(ROUNDS)
    found = np.full(len(runs.seeds), np.inf)
    for i, j in zip(own, full, strict=True):
        there = runs.tested[(runs.accuracy[i] >= goal[j]) & (runs.tested <= ROUNDS)]
        found[i] = there[0] if len(there) else np.inf
    return found


def bytes_to_target(result: Results, arm: str) -> np.ndarray:
    """Bytes until a run has the target, infinite where it never has."""
    runs = result.arms[arm]
    return np.array([
        runs.uploaded[i, runs.test(int(last))] if np.isfinite(last) else np.inf
        for i, last in enumerate(rounds_to_target(result, arm))
    ])  # fmt: skip


def first_at(arm: Arm, goal: float) -> int | None:
    """The first test at which the median over seeds has an accuracy; None where it never has."""
    found = np.flatnonzero((np.median(arm.accuracy, axis=0) >= goal) & (arm.tested <= ROUNDS))
    return int(found[0]) if len(found) else None


def bytes_to(result: Results, arm: str, goal: float) -> float | None:
    """Bytes that an arm uploads until then, the median over seeds."""
    place = first_at(result.arms[arm], goal) if arm in result.arms else None
    return None if place is None else float(np.median(result.arms[arm].uploaded[:, place]))

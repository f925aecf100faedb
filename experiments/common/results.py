"""What came out of an experiment: its JSON file as arrays, over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taciturn import runs
from taciturn.core import tally
from taciturn.errors import RunError

if TYPE_CHECKING:
    from experiments.common.experiment import Experiment

ACCURACY, EXPLAINED = "accuracy", "explained variance"


class Arm(NamedTuple):
    """All seeds of an arm; arrays are (seeds, tests)."""

    policy: str
    seeds: tuple[int, ...]
    tested: np.ndarray  # the rounds of the tests, counted from 1, (tests,)
    accuracy: np.ndarray  # in %; of numbers that are predicted, `EXPLAINED`
    uploaded: np.ndarray  # bytes since the start, headers included
    runs: Sequence[Mapping[str, Any]] = ()  # the seeds' entries in the file

    def test(self, round: int | None) -> int:
        """The index of the test after so many rounds, or of the last if there were fewer."""
        last = self.tested[-1]
        return int(np.searchsorted(self.tested, last if round is None else min(round, last)))

    def at(self, round: int | None = None) -> np.ndarray:
        """Accuracy after so many rounds, or after the last; (seeds,)."""
        return self.accuracy[:, self.test(round)]

    def bytes_at(self, round: int | None = None) -> np.ndarray:
        """Bytes uploaded in so many rounds, or in all; (seeds,)."""
        return self.uploaded[:, self.test(round)]

    def figure(self, key: str) -> np.ndarray | None:
        """A figure of the runs by its name in the file, (seeds, …); None if a run lacks it."""
        found = [run.get(key) for run in self.runs]
        return None if not found or None in found else np.array(found, float)


class Results(NamedTuple):
    """What came out of an experiment; `measure` is what `Arm.accuracy` holds."""

    experiment: Experiment
    settings: Mapping[str, Any]
    size: int
    arms: dict[str, Arm]
    pieces: Sequence[Mapping[str, Any]]
    data: Mapping[str, Any]
    measure: str = ACCURACY

    @property
    def rounds(self) -> int:
        return int(self.settings["rounds"])

    @property
    def cohort(self) -> int:
        return int(self.settings["cohort"])

    def share(self, arm: str, rounds: int | None = None) -> np.ndarray:
        """Upload in % of what everyone's update in float32 takes, (seeds,)."""
        own = self.arms[arm]
        return 100 * own.bytes_at(rounds) / self.full_bytes(int(own.tested[own.test(rounds)]))

    def full_bytes(self, rounds: int) -> int:
        """What full communication in float32 uploads in so many rounds."""
        return rounds * self.cohort * (4 * self.size + tally.OVERHEAD)

    def common(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """The indices, in either arm, of the seeds that both have."""
        one, other = self.arms[first].seeds, self.arms[second].seeds
        both = [seed for seed in one if seed in other]
        return [one.index(seed) for seed in both], [other.index(seed) for seed in both]


def content(path: Path) -> dict[str, Any]:
    """What a file holds, if it is one of an experiment."""
    found = runs.read_json(path)
    wanted = {"experiment", "task", "settings", "weights", "pieces", "runs"}
    if not isinstance(found, dict) or not wanted <= set(found):
        raise RunError(f"{path} is not a file of results: it needs {', '.join(sorted(wanted))}.")
    return found


def results_of(experiment: Experiment, content: Mapping[str, Any]) -> Results:
    """The contents of a file as arrays."""
    data, runs = content.get("data", {}), content["runs"]
    explained = bool(runs) and None in runs[0]["accuracy"]
    arms = {}
    for name in experiment.arms:
        own = of_one_policy(run for run in runs if run["arm"] == name)
        if own:
            arms[name] = Arm(
                own[0]["policy"],
                tuple(run["seed"] for run in own),
                np.array(own[0]["tested"]),
                np.array([_explained(r, data) if explained else r["accuracy"] for r in own]),
                np.array([run["uploaded"] for run in own], np.int64),
                own,
            )
    return Results(
        experiment, content["settings"], content["weights"], arms, content["pieces"], data,
        EXPLAINED if explained else ACCURACY,
    )  # fmt: skip


def of_one_policy(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of an arm by seed, without those that were made before its policy changed.

    The first seed is in every request, and so it has the latest policy.
    """

    def made_with(run: Mapping[str, Any]) -> tuple[Any, ...]:
        return run["policy"], run.get("settings", {})

    own = sorted(runs, key=lambda run: int(run["seed"]))
    return [run for run in own if made_with(run) == made_with(own[0])]


def _explained(run: Mapping[str, Any], data: Mapping[str, Any]) -> np.ndarray:
    """How much of the test numbers' variance a model explains, in %."""
    return 100 * (1 - np.array(run["loss"], float) / data["variance"])

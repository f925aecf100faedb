"""What came out of an experiment: its JSON file as arrays, over seeds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import runs
from taciturn.errors import RunError
from taciturn.studies.experiment import Experiment


class Arm(NamedTuple):
    """All seeds of an arm; (seeds, tests) or (seeds, rounds) each."""

    policy: str
    tested: np.ndarray  # the rounds of the tests, counted from 1
    accuracy: np.ndarray  # in %
    spoke: np.ndarray
    threshold: np.ndarray

    def at(self, round: int) -> np.ndarray:
        """Accuracy after so many rounds, or after the last where there were fewer; (seeds,)."""
        return self.accuracy[:, np.searchsorted(self.tested, min(round, self.tested[-1]))]


class Results(NamedTuple):
    """What came out of an experiment."""

    experiment: Experiment
    rounds: int
    cohort: int
    size: int
    arms: dict[str, Arm]
    seconds: float  # of all pieces, compilation included
    made_with: dict[str, Any]

    def share(self, arm: str, rounds: int | None = None) -> np.ndarray:
        """Upload in % of full communication, (seeds,)."""
        return 100 * self.arms[arm].spoke[:, :rounds].mean(1) / self.cohort

    def gib(self, arm: str, rounds: int | None = None) -> np.ndarray:
        """GiB of float32 weights that clients uploaded, (seeds,)."""
        return self.arms[arm].spoke[:, :rounds].sum(1) * self.size * 4 / 2**30


class Recipe(NamedTuple):
    """How a table or a figure is made, and of which experiments."""

    make: Callable[[Mapping[str, Results]], Any]
    needs: tuple[Experiment, ...]


def read(experiment: Experiment, folder: Path, seeds: int | None = None) -> Results:
    """What the experiment's file has, of the first `seeds` seeds or of all; nothing is run."""
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        raise RunError(f"{path} is missing: `taciturn paper all --out {folder}` makes it.")
    return results_of(experiment, content(path), seeds)


def content(path: Path) -> dict[str, Any]:
    """What a file holds, if it is one of an experiment."""
    found = runs.read_json(path)
    wanted = {"experiment", "task", "settings", "weights", "pieces", "runs"}
    if not isinstance(found, dict) or not wanted <= set(found):
        raise RunError(f"{path} is not a file of results: it needs {', '.join(sorted(wanted))}.")
    return found


def results_of(
    experiment: Experiment, content: dict[str, Any], seeds: int | None = None
) -> Results:
    """The contents of a file as arrays, of the first `seeds` seeds or of all."""
    chosen = [run for run in content["runs"] if seeds is None or run["seed"] < seeds]
    arms = {}
    for name in experiment.arms:
        own = sorted((r for r in chosen if r["arm"] == name), key=lambda r: r["seed"])
        if own:
            arms[name] = Arm(
                own[0]["policy"],
                np.array(own[0]["tested"]),
                np.array([r["accuracy"] for r in own]),
                np.array([r["spoke"] for r in own]),
                np.array([r["threshold"] for r in own], float),
            )
    settings = content["settings"]
    return Results(
        experiment,
        settings["rounds"],
        settings["cohort"],
        content["weights"],
        arms,
        sum(piece["seconds"] for piece in content["pieces"]),
        content["pieces"][-1]["versions"] | {"precision": settings["precision"]},
    )

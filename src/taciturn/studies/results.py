"""What came out of an experiment: its JSON file as arrays, over seeds."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import runs
from taciturn.core import messages
from taciturn.core.policy import parse
from taciturn.errors import RunError
from taciturn.studies.difference import Difference, difference
from taciturn.studies.experiment import Experiment

ACCURACY, EXPLAINED = "accuracy", "explained variance"
# Of the clients of a run: the accuracy of the tenth that fares worst at the end, and how often the
# third with the fewest and the third with the most examples was silent; in %.
WHO_PAYS = ("worst_tenth", "silent_small", "silent_large")


class Arm(NamedTuple):
    """All seeds of an arm; (seeds, tests) or (seeds, rounds) each."""

    policy: str
    seeds: tuple[int, ...]
    tested: np.ndarray  # the rounds of the tests, counted from 1
    accuracy: np.ndarray  # at the tests, in %; of numbers that are predicted, `EXPLAINED`
    uploaded: np.ndarray  # at the tests: bytes since the start, headers included
    spoke: np.ndarray  # in every round
    threshold: np.ndarray  # in every round
    who_pays: Mapping[str, np.ndarray] = {}  # figures of `WHO_PAYS` that the runs have, (seeds,)
    rejected: np.ndarray | None = None  # replies that were no good, (seeds,); not in old files

    def test(self, round: int | None) -> int:
        """The place of the test after so many rounds, or of the last where there were fewer."""
        last = self.tested[-1]
        return int(np.searchsorted(self.tested, last if round is None else min(round, last)))

    def at(self, round: int | None = None) -> np.ndarray:
        """Accuracy after so many rounds, or after the last; (seeds,)."""
        return self.accuracy[:, self.test(round)]

    def bytes_at(self, round: int | None = None) -> np.ndarray:
        """Bytes uploaded in so many rounds, or in all; (seeds,)."""
        return self.uploaded[:, self.test(round)]


class Piece(NamedTuple):
    """Runs that went side by side."""

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    seconds: float  # compilation included
    device: str
    versions: Mapping[str, str] = {}


class Results(NamedTuple):
    """What came out of an experiment."""

    experiment: Experiment
    rounds: int
    cohort: int
    size: int
    arms: dict[str, Arm]
    pieces: tuple[Piece, ...]
    made_with: dict[str, Any]
    data: dict[str, Any]
    measure: str = ACCURACY

    @property
    def seconds(self) -> float:
        """Of all pieces, compilation included."""
        return sum(piece.seconds for piece in self.pieces)

    def share(self, arm: str, rounds: int | None = None) -> np.ndarray:
        """Upload in % of what everyone's update in float32 takes, (seeds,)."""
        own = self.arms[arm]
        return 100 * own.bytes_at(rounds) / self.full_bytes(int(own.tested[own.test(rounds)]))

    def full_bytes(self, rounds: int) -> int:
        """What full communication in float32 uploads in so many rounds."""
        return rounds * self.cohort * (4 * self.size + messages.OVERHEAD)

    def gib(self, arm: str, rounds: int | None = None) -> np.ndarray:
        """GiB that clients uploaded, (seeds,)."""
        return self.arms[arm].bytes_at(rounds) / 2**30

    def gap(self, first: str, second: str, rounds: int | None = None) -> Difference:
        """The difference of two arms' accuracies, over the seeds that both have."""
        one, other = self.arms[first], self.arms[second]
        common = [seed for seed in one.seeds if seed in other.seeds]
        return difference(
            one.at(rounds)[[one.seeds.index(seed) for seed in common]],
            other.at(rounds)[[other.seeds.index(seed) for seed in common]],
        )


class Recipe(NamedTuple):
    """How a table or a figure is made, and of which experiments."""

    make: Callable[[Mapping[str, Results]], Any]
    needs: tuple[Experiment, ...]


def read(experiment: Experiment, folder: Path, seeds: int | None = None) -> Results:
    """What the experiment's file has, of the first `seeds` seeds or of all; nothing is run."""
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        raise RunError(f"{path} is missing: the experiment {experiment.name} has not been run.")
    return results_of(experiment, content(path), seeds)


def state(experiment: Experiment, folder: Path) -> str:
    """How much of an experiment was run."""
    path = folder / f"{experiment.name}.json"
    return f"{len(content(path)['runs'])} runs in {path}" if path.exists() else "not run"


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
    settings, size, data = content["settings"], content["weights"], content.get("data", {})
    chosen = [run for run in content["runs"] if seeds is None or run["seed"] < seeds]
    explained = bool(chosen) and None in chosen[0]["accuracy"]
    arms = {}
    for name in experiment.arms:
        own = of_one_policy(run for run in chosen if run["arm"] == name)
        if own:
            spoke = np.array([r["spoke"] for r in own])
            thresholds = [r["threshold"] or [np.nan] * spoke.shape[1] for r in own]
            arms[name] = Arm(
                own[0]["policy"],
                tuple(r["seed"] for r in own),
                np.array(own[0]["tested"]),
                np.array([_explained(r, data) if explained else r["accuracy"] for r in own]),
                np.array([_uploaded(r, settings["cohort"], size) for r in own]),
                spoke,
                np.array(thresholds, float),
                {
                    key: np.array([r[key] for r in own], float)
                    for key in WHO_PAYS
                    if all(r.get(key) is not None for r in own)
                },
                np.array([r["rejected"] for r in own]) if "rejected" in own[0] else None,
            )
    return Results(
        experiment,
        settings["rounds"],
        settings["cohort"],
        size,
        arms,
        tuple(
            Piece(
                tuple(p["arms"]),
                tuple(p["seeds"]),
                p["seconds"],
                p["versions"]["device"],
                p["versions"],
            )
            for p in content["pieces"]
        ),
        content["pieces"][-1]["versions"] | {"precision": settings["precision"]},
        data,
        EXPLAINED if explained else ACCURACY,
    )


def of_one_policy(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of an arm by seed, without those that were made before its policy changed.

    The first seed is in every request, and so it has the latest policy.
    """
    own = sorted(runs, key=lambda run: int(run["seed"]))
    return [run for run in own if _made_with(run) == _made_with(own[0])]


def _made_with(run: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The policy of a run, and the settings that are its own."""
    return run["policy"], run.get("settings", {})


def _explained(run: Mapping[str, Any], data: Mapping[str, Any]) -> np.ndarray:
    """How much of the test numbers' variance a model explains, in %."""
    return 100 * (1 - np.array(run["loss"], float) / data["variance"])


def _uploaded(run: Mapping[str, Any], cohort: int, size: int) -> np.ndarray:
    """Bytes since the start at every test; of files without them, by who spoke."""
    if "uploaded" in run:
        return np.array(run["uploaded"], np.int64)
    sent = np.cumsum(run["spoke"]) * parse(run["policy"]).codec.nbytes(size)
    tested = np.array(run["tested"])
    return sent[tested - 1] + tested * cohort * messages.OVERHEAD

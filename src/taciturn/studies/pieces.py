"""Runs experiments piece by piece; what is there is not run again.

An experiment has one JSON file: its settings, and a run for every arm and seed. It is saved after
every piece, which is as many runs as the device takes at a time; a piece under way has a folder of
its own, with checkpoints. A run is known by its policy and its seed, so that a command that was
stopped goes on where it was. One that asks for other seeds runs what is missing, and the random
arms, whose probability changes with them.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn import files, runs
from taciturn.core.policy import parse
from taciturn.errors import RunError, Stopped
from taciturn.report import terminal
from taciturn.report.versions import versions
from taciturn.settings import Settings
from taciturn.sim import compare
from taciturn.sim.history import History
from taciturn.studies.experiment import MATCHED, Experiment, partner
from taciturn.studies.results import Results, content, results_of
from taciturn.tasks import load
from taciturn.tasks.task import Task


class Options(NamedTuple):
    """What a user may choose.

    Attributes:
      folder: where the files are.
      seeds: how many.
      rounds: how many; the experiment's own by default.
      precision: of matrix products; by default that of the runs that are there, and for new ones
        bfloat16 on a GPU and float32 elsewhere.
      data: where the data lie, see `taciturn.data.places`.
    """

    folder: Path
    seeds: int
    rounds: int | None = None
    precision: str | None = None
    data: Path | None = None


def run(experiment: Experiment, options: Options, say: Callable[[str], None]) -> Results:
    """Runs what is missing of an experiment and gives all of it."""
    file = ResultsFile(experiment, options)
    # `random` needs the rates of the adaptive arms.
    adaptive = {name: text for name, text in experiment.arms.items() if MATCHED not in text}
    matched = [name for name in experiment.arms if name not in adaptive]
    task: Task | None = None
    for phase in (1, 2):
        policies = adaptive if phase == 1 else {
            name: experiment.arms[name].replace(MATCHED, file.rate(adaptive, partner(name)))
            for name in matched
        }  # fmt: skip
        for seeds in _groups(s for s in range(options.seeds) if file.missing(policies, [s])):
            missing = file.missing(policies, seeds)
            if task is None:
                task = load(experiment.task, data=options.data, **experiment.task_options())
                file.check_data(task)
            of = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
            say(f"{experiment.title}: {', '.join(missing)}; {of}")
            folder = file.folder_of(missing, seeds)
            file.add(*_piece(task, missing, seeds, file.settings, folder))
            shutil.rmtree(folder, ignore_errors=True)
    return file.results()


def _piece(
    task: Task,
    policies: dict[str, str],
    seeds: Sequence[int],
    settings: dict[str, Any],
    folder: Path,
) -> tuple[dict[str, History], float]:
    began = time.perf_counter()
    given = settings | {"seeds": tuple(seeds)}
    try:
        with terminal.Live(list(policies), Settings(**given)) as live:
            histories = compare(task, policies, progress=live, folder=folder, **given)
    except Stopped as stopped:
        raise Stopped(f"{stopped} The same command goes on.", stopped.signal) from None
    # Rounds of before it was stopped count too.
    rounds = float(next(iter(histories.values())).seconds.sum())
    return histories, max(time.perf_counter() - began, rounds)


def _groups(seeds: Iterable[int]) -> list[list[int]]:
    """The seeds of each piece: all at a time where they run side by side, or one."""
    seeds = list(seeds)
    return [[seed] for seed in seeds] if jax.default_backend() == "cpu" else [seeds]


class ResultsFile:
    """The file of an experiment."""

    def __init__(self, experiment: Experiment, options: Options) -> None:
        self.experiment, self.seeds = experiment, options.seeds
        self.settings = experiment.numbers()
        if options.rounds is not None:
            self.settings["rounds"] = options.rounds
        self.path = options.folder / f"{experiment.name}.json"
        there = content(self.path) if self.path.exists() else None
        usual = "bfloat16" if jax.default_backend() == "gpu" else "float32"
        usual = there["settings"]["precision"] if there else usual
        self.settings["precision"] = options.precision or usual
        described = {
            "experiment": experiment.name,
            "task": {"name": experiment.task} | experiment.task_options(),
            "settings": self.settings,
        }
        if there is not None:
            self.content = there
            for key, value in described.items():
                found = self.content.get(key)
                if found != value:
                    raise RunError(
                        f"{self.path} was made with {found}, and now it is {value}: choose another "
                        f"`--out`, or remove the file."
                    )
        else:
            self.content = described | {"weights": None, "pieces": [], "runs": []}

    def check_data(self, task: Task) -> None:
        """Raises if the runs that are there were made with other data."""
        clients = task.clients
        rows = np.asarray(clients.rows_of(jnp.arange(clients.population)))
        data = {"clients": clients.population, "examples": int(rows.sum())}
        if self.content.setdefault("data", data) != data:
            raise RunError(
                f"{self.path} was made with {self.content['data']}, and now there are {data}: "
                f"choose another `--out`, or remove the file."
            )

    def missing(self, policies: dict[str, str], seeds: Sequence[int]) -> dict[str, str]:
        """The arms that at least one of the seeds has no run for."""
        there = {(r["arm"], r["policy"], r["seed"]) for r in self.content["runs"]}
        return {
            name: text
            for name, text in policies.items()
            if any((name, str(parse(text)), seed) not in there for seed in seeds)
        }

    def folder_of(self, policies: dict[str, str], seeds: Sequence[int]) -> Path:
        """Where a piece is while it is under way; another piece has another folder."""
        piece = runs.to_json([policies, list(seeds), self.settings])
        digest = hashlib.sha256(piece.encode()).hexdigest()[:12]
        return self.path.with_name(f"{self.experiment.name}-{digest}")

    def rate(self, policies: dict[str, str], arm: str) -> str:
        """The mean rate, over seeds, at which clients speak in an arm."""
        policy = str(parse(policies[arm]))
        spoke = [
            run["spoke"]
            for run in self.content["runs"]
            if run["arm"] == arm and run["policy"] == policy and run["seed"] < self.seeds
        ]
        return f"{np.mean(spoke) / self.settings['cohort']:.4f}"

    def add(self, histories: dict[str, History], seconds: float) -> None:
        """Takes the runs of a piece, which replace those of other policies, and saves."""
        new = [run for name, history in histories.items() for run in _runs(name, history)]
        taken = {(run["arm"], run["seed"]) for run in new}
        policy = {run["arm"]: run["policy"] for run in new}
        kept = [
            run
            for run in self.content["runs"]
            if (run["arm"], run["seed"]) not in taken
            and policy.get(run["arm"], run["policy"]) == run["policy"]
        ]
        self.content["runs"] = kept + new
        self.content["weights"] = next(iter(histories.values())).size
        self.content["pieces"].append(
            {
                "arms": list(histories),
                "seeds": sorted({run["seed"] for run in new}),
                "seconds": round(seconds, 2),
                "versions": versions(),
            }
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(self.path) as file:
            file.write(_lines(self.content))

    def results(self) -> Results:
        """The runs of the seeds that were asked for."""
        return results_of(self.experiment, self.content, self.seeds)


def _runs(arm: str, history: History) -> list[dict[str, Any]]:
    tested = np.flatnonzero(~np.isnan(history.accuracy[0]))
    return [
        {
            "arm": arm,
            "policy": str(history.policy),
            "seed": seed,
            "tested": (tested + 1).tolist(),
            "accuracy": [round(100 * float(a), 4) for a in history.accuracy[i, tested]],
            "spoke": history.spoke[i].tolist(),
            "threshold": [float(f"{t:.5g}") for t in history.threshold[i]],
        }
        for i, seed in enumerate(history.seeds)
    ]


def _lines(content: dict[str, Any]) -> str:
    """JSON with one line per run: short, and a change shows which."""

    def value(item: Any) -> str:
        if not isinstance(item, list) or not item:
            return runs.to_json(item, indent=None)
        return "[\n" + ",\n".join(runs.to_json(part, indent=None) for part in item) + "\n]"

    return "{\n" + ",\n".join(f'"{key}": {value(item)}' for key, item in content.items()) + "\n}\n"

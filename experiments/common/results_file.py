"""The file of an experiment: its settings, its data, and a run for every arm and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.results import content
from taciturn import runs
from taciturn.core.policy import parse
from taciturn.data.shakespeare import PADDING
from taciturn.errors import InputError, RunError
from taciturn.report.versions import versions
from taciturn.sim.history import History
from taciturn.tasks.task import Task, with_test

if TYPE_CHECKING:
    from experiments.common.experiment import Experiment


class ResultsFile:
    """The file of an experiment in a folder.

    `precision` is that of matrix products, where the experiment has none: by default that of the
    runs in the file, and for a new file bfloat16 on a GPU and float32 elsewhere.
    """

    def __init__(self, experiment: Experiment, folder: Path, precision: str | None = None) -> None:
        self.experiment = experiment
        self.path = folder / f"{experiment.name}.json"
        there = content(self.path) if self.path.exists() else {}
        usual = "bfloat16" if jax.default_backend() == "gpu" else "float32"
        usual = there["settings"]["precision"] if there else usual
        self.settings = {"precision": precision or usual} | experiment.values
        described = {
            "experiment": experiment.name,
            "task": {"name": experiment.task} | experiment.task_options,
            "settings": self.settings,
        }
        fresh: dict[str, Any] = {"weights": None, "pieces": [], "runs": []}
        self.content: dict[str, Any] = there or described | fresh
        for key, value in described.items():
            self._compare(self.content[key], value)

    def _compare(self, found: Any, value: Any) -> None:
        """Raises if what the file has is not what is asked for."""
        now = json.loads(runs.to_json(value))
        if found == now:
            return
        if isinstance(found, dict) and isinstance(now, dict):  # what differs is enough
            names = [name for name in {**found, **now} if found.get(name) != now.get(name)]
            found, now = (", ".join(f"{name} = {each.get(name)}" for name in names)
                          for each in (found, now))  # fmt: skip
        where = "choose another `--out`, or remove the file"
        raise RunError(f"{self.path} was made with {found}, and now it is {now}: {where}.")

    def check_data(self, task: Task) -> None:
        """Raises if the runs that are there were made with other data."""
        data = describe(task)
        found = self.content.setdefault("data", data)
        self._compare(found, {key: data.get(key) for key in found})

    def forget(self, arms: Collection[str]) -> None:
        """Leaves the runs of some arms out; the file has them until the first piece is added."""
        there = {run["arm"] for run in self.content["runs"]}
        if unknown := [arm for arm in arms if arm not in there]:
            raise InputError(f"{self.path} has no runs of {', '.join(unknown)} to run again.")
        self.content["runs"] = [run for run in self.content["runs"] if run["arm"] not in arms]

    def missing(self, policies: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, list[int]]:
        """The seeds that each arm lacks, with settings of its own if it has any."""
        there = {
            (run["arm"], run["policy"], run["seed"])
            for run in self.content["runs"]
            if run.get("settings", {}) == own
        }
        seeds = range(self.experiment.seeds)
        lacking = {
            name: [seed for seed in seeds if (name, str(parse(text)), seed) not in there]
            for name, text in policies.items()
        }
        return {name: seeds for name, seeds in lacking.items() if seeds}

    def folder_of(
        self, policies: Mapping[str, str], seeds: Sequence[int], own: Mapping[str, Any]
    ) -> Path:
        """Where a piece is while it is under way; another piece has another folder."""
        piece = runs.to_json([policies, list(seeds), self.settings | dict(own)])
        digest = hashlib.sha256(piece.encode()).hexdigest()[:12]
        return self.path.with_name(f"{self.experiment.name}-{digest}")

    def add(self, histories: Mapping[str, History], seconds: float, own: Mapping[str, Any]) -> None:
        """Saves the runs of a piece, which replace those of the same arms and seeds.

        Runs of other seeds stay, whatever their policy: nobody asked for them to be run again.
        """
        named = {"settings": dict(own)} if own else {}
        new = [run | named for name, history in histories.items() for run in _runs(name, history)]
        taken = {(run["arm"], run["seed"]) for run in new}
        kept = [run for run in self.content["runs"] if (run["arm"], run["seed"]) not in taken]
        self.content["runs"] = kept + new
        first = next(iter(histories.values()))
        self.content["weights"] = first.size
        piece = {
            "arms": list(histories),
            "seeds": sorted({run["seed"] for run in new}),
            "seconds": round(seconds, 2),
            "compilation_left_out": round(float(first.seconds.sum()), 2),
            "versions": versions(),
        }
        self.content["pieces"].append(piece)
        runs.write_text(self.path, _lines(self.content))


def describe(task: Task) -> dict[str, Any]:
    """What tells the data of a task from others: counts, and a hash of all rows.

    Of numbers to predict it also has the variance in the test set, which a loss is compared with;
    of classes, the accuracy in % of always answering with the most frequent one.
    """
    clients = task.clients
    rows = np.asarray(clients.rows_of(jnp.arange(clients.population)))
    _, (test, *_) = with_test(task)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(test)]
    digest = hashlib.sha256()
    for leaf in (rows, *jax.tree.leaves(getattr(clients, "arrays", ())), *leaves):
        digest.update(np.ascontiguousarray(leaf).data)
    found = {
        "clients": clients.population,
        "examples": int(rows.sum()),
        "tests": len(leaves[0]),
        "sha256": digest.hexdigest(),
    }
    labels = np.asarray(test["y"]) if isinstance(test, Mapping) and "y" in test else np.zeros(0)
    if labels.ndim == 1 and labels.size and labels.dtype.kind == "f":
        found["variance"] = float(f"{labels.var(dtype=np.float64):.8g}")
    if labels.size and labels.dtype.kind in "iu":
        answers = labels if labels.ndim == 1 else labels[labels != PADDING]
        found["constant"] = float(f"{100 * np.bincount(answers).max() / answers.size:.6g}")
    return found


def _runs(arm: str, history: History) -> list[dict[str, Any]]:
    """An entry for every seed; `None` where there is nothing to tell a figure from."""
    tested = np.flatnonzero(~np.isnan(history.loss[0]) | ~np.isnan(history.accuracy[0]))
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    found = []
    for i, seed in enumerate(history.seeds):
        threshold = [_rounded(t, ".5g") for t in history.threshold[i]]
        found.append({
            "arm": arm,
            "policy": str(history.policy),
            "seed": seed,
            "tested": (tested + 1).tolist(),
            "accuracy": [_rounded(100 * a) for a in history.accuracy[i, tested]],
            "loss": [_rounded(loss) for loss in history.loss[i, tested]],
            "uploaded": sent[i, tested].tolist(),
            "spoke": history.spoke[i].tolist(),
            "threshold": None if all(t is None for t in threshold) else threshold,
            "rejected": int(history.rejected[i].sum()),
            "worst_tenth": _rounded(100 * history.worst_tenth[i, -1]),
        })  # fmt: skip
    return found


def _rounded(value: float, form: str = ".6g") -> float | None:
    return None if np.isnan(value) else float(f"{value:{form}}")


def _lines(content: Mapping[str, Any]) -> str:
    """JSON with one line per run: short, and a change shows which."""

    def value(item: Any) -> str:
        if not isinstance(item, list) or not item:
            return runs.to_json(item, indent=None)
        return "[\n" + ",\n".join(runs.to_json(part, indent=None) for part in item) + "\n]"

    return "{\n" + ",\n".join(f'"{key}": {value(item)}' for key, item in content.items()) + "\n}\n"

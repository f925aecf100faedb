"""The file of an experiment: its settings, its data, and a run for every arm and seed."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn import files, runs
from taciturn.core.policy import parse
from taciturn.data.shakespeare import PADDING
from taciturn.errors import InputError, RunError
from taciturn.report.versions import versions
from taciturn.sim.history import History
from taciturn.studies.experiment import MATCHED, Experiment, partner
from taciturn.studies.results import Results, content, of_one_policy, results_of
from taciturn.tasks.task import Task, with_test


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """A block in which no other process adds to the file: what two had read, one would lose."""
    lock = path.with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files.hold(lock)
    except OSError as error:
        raise RunError(f"{lock} cannot be made: {error.strerror}.") from None
    if file is None:
        raise RunError(f"{path} is in use: another process is adding to it.")
    with files.held(lock, file):
        yield


class ResultsFile:
    """The file of an experiment.

    Args:
      experiment: whose file it is.
      folder: where it lies.
      seeds: how many are asked for; the experiment's own numbers by default.
      rounds, precision: what takes the place of the experiment's, or of the usual ones.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        seeds: int | None,
        rounds: int | None = None,
        precision: str | None = None,
    ) -> None:
        self.experiment, self.seeds = experiment, seeds
        self.settings = experiment.numbers()
        if rounds is not None:
            self.settings["rounds"] = rounds
        self.path = folder / f"{experiment.name}.json"
        there = content(self.path) if self.path.exists() else None
        usual = "bfloat16" if jax.default_backend() == "gpu" else "float32"
        usual = there["settings"]["precision"] if there else usual
        self.settings.setdefault("precision", precision or usual)
        described = {
            "experiment": experiment.name,
            "task": {"name": experiment.task} | experiment.task_options(),
            "settings": self.settings,
        }
        if there is not None:
            self.content = there
            for key, value in described.items():
                self._compare(self.content.get(key), value)
        else:
            self.content = described | {"weights": None, "pieces": [], "runs": []}

    def _compare(self, found: Any, value: Any) -> None:
        now = json.loads(runs.to_json(value))
        if found == now:
            return
        if isinstance(found, dict) and isinstance(now, dict):  # what differs is enough
            names = [name for name in {**found, **now} if found.get(name) != now.get(name)]
            found, now = ({name: each.get(name) for name in names} for each in (found, now))
        raise RunError(
            f"{self.path} was made with {_listed(found)}, and now it is {_listed(now)}: choose "
            f"another `--out`, or remove the file."
        )

    def check_data(self, task: Task) -> None:
        """Raises if the runs that are there were made with other data."""
        data = describe(task)
        found = self.content.setdefault("data", data)
        self._compare(found, {key: data.get(key) for key in found})

    def seeds_of(self, arm: str) -> int:
        """How many seeds of an arm are asked for."""
        return self.experiment.seeds_of(arm) if self.seeds is None else self.seeds

    def forget(self, arms: Collection[str]) -> None:
        """Leaves the runs of some arms out; the file has them until the first piece is added."""
        runs = self.content["runs"]
        unknown = [arm for arm in arms if arm not in {run["arm"] for run in runs}]
        if unknown:
            raise InputError(f"{self.path} has no runs of {', '.join(unknown)} to run again.")
        self.content["runs"] = [run for run in runs if run["arm"] not in arms]

    def missing(self, policies: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, list[int]]:
        """The seeds that an arm has no run for, with settings of its own, if any, of every arm that
        lacks one."""
        there = {
            (r["arm"], r["policy"], r["seed"])
            for r in self.content["runs"]
            if r.get("settings", {}) == own
        }
        lacking = {
            name: [
                s for s in range(self.seeds_of(name)) if (name, str(parse(text)), s) not in there
            ]
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

    def matched(self, arm: str) -> str:
        """The policy of an arm that speaks as often as its partner: the mean over all seeds of the
        partner that are there.

        An arm that has every seed that is asked for keeps its policy while its partner has fewer
        seeds than it: these tell less of the rate than those that it was matched to.
        """
        texts = self.experiment.arms
        policy = str(parse(texts[partner(arm)]))
        spoke = [
            run["spoke"]
            for run in self.content["runs"]
            if run["arm"] == partner(arm) and run["policy"] == policy
        ]
        rate = f"{np.mean(spoke) / self.settings['cohort']:.4f}"
        now = str(parse(texts[arm].replace(MATCHED, rate)))
        own = of_one_policy(run for run in self.content["runs"] if run["arm"] == arm)
        if {*range(self.seeds_of(arm))} <= {run["seed"] for run in own} and len(spoke) < len(own):
            was = str(own[0]["policy"])
            if was.partition("+")[2] == now.partition("+")[2]:  # but for the rate
                return was
        return now

    def add(self, histories: Mapping[str, History], seconds: float, own: Mapping[str, Any]) -> None:
        """Takes the runs of a piece, which replace those of their arms and seeds, and saves.

        Runs of other seeds stay, whatever their policy: nobody asked for them to be run again.

        Args:
          histories, seconds: of the piece.
          own: settings that its arms have beside those of the experiment.
        """
        named = {"settings": dict(own)} if own else {}
        new = [run | named for name, history in histories.items() for run in _runs(name, history)]
        taken = {(run["arm"], run["seed"]) for run in new}
        kept = [run for run in self.content["runs"] if (run["arm"], run["seed"]) not in taken]
        self.content["runs"] = kept + new
        first = next(iter(histories.values()))
        self.content["weights"] = first.size
        self.content["pieces"].append(
            {
                "arms": list(histories),
                "seeds": sorted({run["seed"] for run in new}),
                "seconds": round(seconds, 2),
                "compilation_left_out": round(float(first.seconds.sum()), 2),
                "versions": versions(),
            }
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(self.path) as file:
            file.write(_lines(self.content))

    def results(self) -> Results:
        """The runs of the seeds that were asked for."""
        return results_of(self.experiment, self.content, self.seeds)


def _listed(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} = {one}" for name, one in value.items())


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
    tested = np.flatnonzero(~np.isnan(history.loss[0]) | ~np.isnan(history.accuracy[0]))
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    return [
        {
            "arm": arm,
            "policy": str(history.policy),
            "seed": seed,
            "tested": (tested + 1).tolist(),
            "accuracy": [_rounded(100 * a, ".6g") for a in history.accuracy[i, tested]],
            "loss": [_rounded(loss, ".6g") for loss in history.loss[i, tested]],
            "uploaded": sent[i, tested].tolist(),
            "spoke": history.spoke[i].tolist(),
            "threshold": _thresholds(history.threshold[i]),
            "rejected": int(history.rejected[i].sum()),
        }
        | _who_pays(history, i)
        for i, seed in enumerate(history.seeds)
    ]


def _who_pays(history: History, i: int) -> dict[str, float | None]:
    """The figures of `results.WHO_PAYS` of a run; None where there is nothing to tell them from."""
    voices = history.voices.of_seed(history.seeds[i])
    return {
        "worst_tenth": _rounded(100 * history.worst_tenth[i, -1], ".6g"),
        "silent_small": voices.silent_share(0),
        "silent_large": voices.silent_share(2),
    }


def _thresholds(path: np.ndarray) -> list[float | None] | None:
    """None where the rule has none."""
    return None if np.isnan(path).all() else [_rounded(t, ".5g") for t in path]


def _rounded(value: float, form: str) -> float | None:
    return None if np.isnan(value) else float(f"{value:{form}}")


def _lines(content: dict[str, Any]) -> str:
    """JSON with one line per run: short, and a change shows which."""

    def value(item: Any) -> str:
        if not isinstance(item, list) or not item:
            return runs.to_json(item, indent=None)
        return "[\n" + ",\n".join(runs.to_json(part, indent=None) for part in item) + "\n]"

    return "{\n" + ",\n".join(f'"{key}": {value(item)}' for key, item in content.items()) + "\n}\n"

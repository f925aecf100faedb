"""The state of a server: saved after every round, and found again by the next start.

`state.json` names the arrays of the last round, `state-<t>.safetensors`: whenever a server dies, it
points at a whole one. The row of the round, and what an engine's own results have of it, were
appended to `results.jsonl` before. `metrics.csv` is for readers alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taciturn import __version__, runs
from taciturn.core.arrays import leaves_of, rebuilt
from taciturn.core.policy import spell
from taciturn.core.server import ServerMemory
from taciturn.errors import RunError
from taciturn.federation.history import Node, Nodes
from taciturn.federation.layout import Arrays
from taciturn.summary import summarise

if TYPE_CHECKING:
    from taciturn.federation.server import Server

_ROW = "row"  # the kind of a round's row in the results; others are an engine's
Results = Mapping[str, dict[int, dict[str, Any]]]  # by kind and round
# What an engine finds: the model, its own arrays and numbers, and what it added to `state.json`.
Found = tuple[Arrays, dict[str, Any], dict[str, Any]]
_LAYOUT = 4  # of the folder


class Store:
    """A run folder with the state of a server in it; `steps` names what takes the step there."""

    def __init__(self, folder: Path, server: "Server", steps: Sequence[str]) -> None:
        self.folder, self._server, self._steps = folder, server, list(steps)
        self._state, self._results = folder / "state.json", folder / "results.jsonl"

    def add(self, round: int, kind: str, figures: Mapping[str, Any]) -> None:
        """Appends figures of a round; of two lines of the same kind, the later one counts."""
        line = {"round": round, "kind": kind, "metrics": dict(figures)}
        with open(self._results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def results(self, last: int) -> Results:
        """The figures up to the round `last`; later lines are cut off."""
        found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        if not self._results.exists():
            return found
        kept, there = "", self._results.read_text("utf-8")
        for text in there.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break  # the server died while it wrote this line
            if line["round"] <= last:
                found[line["kind"]][line["round"]] = line["metrics"]
                kept += text + "\n"
        if kept != there:
            runs.write_text(self._results, kept)
        return found

    def save(self, model: Arrays, own: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Saves everything that the next round needs, and an engine's own beside it."""
        server, last = self._server, self._server.history[-1]
        values = {**_leaves(server.memory), **own}
        file = f"state-{last['round']}.safetensors"
        self.add(last["round"], _ROW, last)
        weights = {f"model/{name}": array for name, array in model.items()}
        runs.write_arrays(self.folder / file, values | weights)
        runs.write_json(self._state, {
            "taciturn": __version__, "layout": _LAYOUT, "task": server.engine.lower(),
            "round": last["round"], "policy": str(server.policy), "steps": self._steps,
            "seed": server.seed, "arrays": file, "model": list(model),
            "nodes": {node: asdict(one) for node, one in sorted(server.nodes.items())},
            # Python's numbers: unlike NumPy's, they do not decide the dtype of a sum.
            "plain": [name for name, value in values.items()
                      if not isinstance(value, np.ndarray | np.generic)],
            **about,
        })  # fmt: skip
        self._tidy(file)

    def note(self) -> None:
        """Writes the row of the last round once more: more is known of it now."""
        last = self._server.history[-1]
        self.add(last["round"], _ROW, last)
        self._write_table()

    def _write_table(self) -> None:
        """Writes all rows to `metrics.csv`, with the columns that any of them has."""
        history = self._server.history
        first = {"arm": str(self._server.policy), "seed": 0}  # as in a simulation's folder
        columns = dict.fromkeys([*first, *(name for row in history for name in row)], "")
        runs.write_csv(self.folder / "metrics.csv", [columns | first | row for row in history])

    def load(self, initial: Arrays) -> tuple[Found | None, Results]:
        """Gives the server its state, and returns the rest of it, if there is one, and the results.
        Raises unless they fit this run, which begins with this model."""
        if not self._state.exists():
            return None, self.results(-1)  # what a first round left that was lost
        server, about = self._server, runs.read_json(self._state)
        self._check(about)
        values: dict[str, Any] = dict(runs.read_arrays(self.folder / about["arrays"]))
        model = {name: values.pop(f"model/{name}") for name in about["model"]}
        shapes = {name: array.shape for name, array in model.items()}
        if shapes != {name: array.shape for name, array in initial.items()}:
            raise RunError(f"{self.folder} holds a model of other arrays: {shapes}.")
        for name, value in values.items():
            values[name] = value.item() if name in about["plain"] else value[()]
        before = _leaves(server.memory)
        learned = {name: values[name] for name in before}
        if [*map(np.shape, learned.values())] != [*map(np.shape, before.values())]:
            there, here = (max(map(np.size, x.values())) for x in (learned, before))
            raise RunError(
                f"{self.folder} holds a state for {there} weights, and there are {here}: was "
                "`exclude` another one?"
            )
        done, results = about["round"], self.results(about["round"])
        server.history = [results[_ROW].get(t, {}) for t in range(1, done + 1)]
        if not all(server.history):
            raise RunError(f"{self._results} lacks rounds before round {done + 1}.")
        server.done, server.seed = done, about["seed"]
        server.memory = rebuilt(server.memory, iter(learned.values()))
        server.nodes = Nodes({node: Node(**one) for node, one in about["nodes"].items()})
        self._tidy(about["arrays"])
        return (model, values, about), results

    def _check(self, about: Any) -> None:
        """Raises unless the folder is of this version, policy and strategy."""
        if not isinstance(about, dict) or about.get("layout") != _LAYOUT:
            raise RunError(
                f"{self._state} cannot be read: it is of another version of Taciturn than "
                f"{__version__}. Use a new folder."
            )
        there = (about["policy"], *about["steps"])
        if there != (here := (str(self._server.policy), *self._steps)):
            raise RunError(
                f"{self.folder} holds a run of {' around '.join(there)}, this one is of "
                f"{' around '.join(here)}: what one has learned means nothing to the other."
            )

    def finish(self, model: Arrays) -> None:
        """Writes the final weights, the summary and who spoke."""
        policy, history, nodes = self._server.policy, self._server.history, self._server.nodes
        if not history:
            return
        last = history[-1]
        runs.write_arrays(self.folder / "weights.safetensors", model)
        if nodes:
            runs.write_csv(self.folder / "nodes.csv", nodes.rows(last["round"]))
        total = {key: sum(row.get(key, 0) for row in history) for key, value in last.items()
                 if isinstance(value, int) and key != "round"}  # fmt: skip
        columns = {key: np.array([[row.get(key, np.nan) for row in history]]) for key in last}
        runs.write_json(self.folder / "summary.json", {
            "task": self._server.engine.lower(), "rule": spell(policy.rule),
            "stand_in": spell(policy.stand_in), "codec": spell(policy.codec),
            "down": spell(policy.down, without="feedback"), "rounds": len(history),
            **summarise(columns), "total": total, "run": str(self.folder),
            "versions": {"taciturn": __version__},
        })  # fmt: skip

    def _tidy(self, file: str) -> None:
        """Writes the table, and removes the arrays of earlier rounds."""
        self._write_table()
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != file:
                old.unlink()


def _leaves(memory: ServerMemory) -> dict[str, Any]:
    """What rule and stand-in learned, by part and number."""
    return {f"{part}/{i}": value for part, record in memory._asdict().items()
            for i, value in enumerate(leaves_of(record))}  # fmt: skip

"""The state of a server: saved after every round, and found again by the next start.

The arrays of round t lie in `state-<t>.safetensors`, and `state.json` names them: whenever a server
dies, it points at a whole round. The row of the round, and what Flower's `Result` has of it, were
appended to `results.jsonl` before. `metrics.csv` is for readers alone. A folder has one server at a
time.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from taciturn import __version__, runs
from taciturn.core.arrays import leaves_of, rebuilt
from taciturn.core.policy import Policy, spell
from taciturn.core.server import ServerMemory
from taciturn.errors import RunError
from taciturn.flower.history import Row
from taciturn.flower.node_stats import Nodes
from taciturn.summary import summarise

ROW = "row"  # the kind of a round's row in the results; others are attributes of Flower's `Result`
Results = Mapping[str, dict[int, dict[str, Any]]]  # by kind and round
_LAYOUT = 3  # of the folder
_PARTS = ("rule", "stand_in")
# Flower's optimisers keep the model that they were last given: it is saved already.
_THE_MODEL = "current_arrays"
_SUMS = [name for name, kind in Row.__annotations__.items() if kind is int and name != "round"]


class ResultsLog:
    """The file `results.jsonl` of a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, round: int, kind: str, figures: Mapping[str, Any]) -> None:
        """Appends figures of a round; of two lines of the same kind, the later one counts."""
        line = {"round": round, "kind": kind, "metrics": dict(figures)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def load(self, last: int) -> Results:
        """The figures up to the round `last`; later lines are cut off."""
        found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        if not self.path.exists():
            return found
        kept, there = "", self.path.read_text("utf-8")
        for text in there.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break  # the server died while it wrote this line
            if line["round"] <= last:
                found[line["kind"]][line["round"]] = line["metrics"]
                kept += text + "\n"
        if kept != there:
            runs.write_text(self.path, kept)
        return found


class State(NamedTuple):
    """What the next round needs."""

    round: int  # the last that ended
    history: list[dict[str, Any]]  # a row per round
    model: ArrayRecord
    memory: ServerMemory  # what rule and stand-in learned
    seed: int  # what codecs draw from
    nodes: Nodes
    form: tuple[str, ...]  # of the metrics that were heard last
    downlink: Mapping[str, np.ndarray]  # the tensors of `Downlink`; none where there is none


class Store:
    """A run folder with the state of a server in it."""

    def __init__(self, folder: Path, policy: Policy, inner: Strategy) -> None:
        self.folder = folder
        self.results = ResultsLog(folder / "results.jsonl")
        self._policy, self._inner = policy, inner
        self._table: runs.GrowingTable | None = None
        self._columns: set[str] = set()
        self._path = folder / "state.json"
        # A number that later differs from this one is state; the others are settings.
        self._settings = dict(_attributes(inner))

    def exists(self) -> bool:
        return self._path.exists()

    def save(self, state: State) -> None:
        """Saves everything that the next round needs."""
        inner = {path: value for path, value in _attributes(self._inner)
                 if not (_is_number(value) and self._settings.get(path) == value)}  # fmt: skip
        values = {f"{part}/{i}": value for part in _PARTS
                  for i, value in enumerate(leaves_of(getattr(state.memory, part)))}  # fmt: skip
        for path, value in inner.items():
            values |= {f"inner/{path}/{name}": item for name, item in _items(value).items()}
        tensors = {name: np.asarray(value) for name, value in values.items()}
        tensors |= {f"model/{name}": array.numpy() for name, array in state.model.items()}
        tensors |= {"nodes/table": state.nodes.table(), **state.downlink}
        file = f"state-{state.round}.safetensors"
        self.results.add(state.round, ROW, state.history[-1])
        runs.write_arrays(self.folder / file, tensors)
        about = {
            "taciturn": __version__, "layout": _LAYOUT, "round": state.round,
            "policy": str(self._policy), "strategy": _names(self._inner), "seed": state.seed,
            "arrays": file, "model": list(state.model), "form": state.form,
            "inner": {path: type(value).__name__ for path, value in inner.items()},
            # Python's numbers: unlike NumPy's, they do not decide the dtype of a sum.
            "plain": [name for name, value in values.items()
                      if not isinstance(value, np.ndarray | np.generic)],
        }  # fmt: skip
        runs.write_json(self._path, about)
        self._write_row(state.history, new=True)
        self._tidy(file)

    def note(self, history: list[dict[str, Any]]) -> None:
        """Writes the row of the last round once more: more is known of it now."""
        self.results.add(history[-1]["round"], ROW, history[-1])
        self._write_row(history, new=False)

    def _write_row(self, history: list[dict[str, Any]], new: bool) -> None:
        """Writes the last row to `metrics.csv`; all rows where it has new columns."""
        first = {"arm": str(self._policy), "seed": 0}  # as in a simulation's folder
        path, last = self.folder / "metrics.csv", first | history[-1]
        if self._table is None or not path.exists() or not set(last) <= self._columns:
            columns = dict.fromkeys([*first, *(name for row in history for name in row)], "")
            self._columns = set(columns)
            self._table = runs.GrowingTable(path, [columns | first | row for row in history])
        elif new:
            self._table.append(last)
        else:
            self._table.rewrite(last)

    def load(self, initial: ArrayRecord, memory: ServerMemory) -> tuple[State, Results]:
        """The state that was saved, and the results so far. Raises unless they fit this run: the
        model that it was started with, and the memory before its first round."""
        about = runs.read_json(self._path)
        self._check(about)
        tensors = runs.read_arrays(self.folder / about["arrays"])
        model = ArrayRecord({name: Array(tensors[f"model/{name}"]) for name in about["model"]})
        shapes, own = (
            {name: tuple(array.shape) for name, array in record.items()}
            for record in (model, initial)
        )
        if shapes != own:
            raise RunError(f"{self.folder} holds a model of other arrays: {shapes}.")
        plain = set(about["plain"])
        parts = [self._part(part, getattr(memory, part), tensors, plain) for part in _PARTS]
        for path, kind in about["inner"].items():
            self._restore(path, kind, tensors, plain)
        done, results = about["round"], self.results.load(about["round"])
        history = [results[ROW].get(t, {}) for t in range(1, done + 1)]
        if not all(history):
            raise RunError(f"{self.results.path} lacks rounds before round {done + 1}.")
        self._write_row(history, new=False)
        nodes, form = Nodes.of(tensors["nodes/table"]), tuple(about["form"])
        return State(
            done, history, model, ServerMemory(*parts), about["seed"], nodes, form, tensors
        ), results

    def _check(self, about: Any) -> None:
        """Raises unless the folder is of this version, policy and strategy."""
        layout = about.get("layout") if isinstance(about, dict) else None
        if layout != _LAYOUT:
            raise RunError(
                f"{self._path} cannot be read: it is of another version of Taciturn than "
                f"{__version__}. Use a new folder."
            )
        if about["policy"] != str(self._policy):
            raise RunError(
                f"{self.folder} holds a run with the policy {about['policy']}, "
                f"this one has {self._policy}."
            )
        strategy = _names(self._inner)
        if about["strategy"] != strategy:
            raise RunError(
                f"{self.folder} holds a run of {' around '.join(about['strategy'])}, this one has "
                f"{' around '.join(strategy)}: what one has learned means nothing to the other."
            )

    def _part(self, part: str, form: Any, tensors: Mapping[str, Any], plain: set[str]) -> Any:
        """What rule or stand-in learned, in the form that it has at the beginning."""
        before = leaves_of(form)
        values = [_number(tensors, f"{part}/{i}", plain) for i in range(len(before))]
        if [np.shape(value) for value in values] != [np.shape(value) for value in before]:
            raise RunError(
                f"{self.folder} holds a state for {max(map(np.size, values))} weights, and there "
                f"are {max(map(np.size, before))}: was `exclude` another one?"
            )
        return rebuilt(form, iter(values))

    def _restore(
        self, path: str, kind: str, tensors: Mapping[str, np.ndarray], plain: set[str]
    ) -> None:
        """Sets an attribute of the inner strategy to what it was."""
        start = f"inner/{path}/"
        found = {name.removeprefix(start): tensors[name] for name in tensors
                 if name.startswith(start)}  # fmt: skip
        value: Any = found
        if kind == "list":
            value = [found[str(i)] for i in range(len(found))]
        elif kind == "ArrayRecord":
            value = ArrayRecord({key: Array(array) for key, array in found.items()})
        elif kind == "ndarray":
            value = found["0"]
        elif kind != "dict":
            value = _number(tensors, f"{start}0", plain)
        *owners, name = path.split(".")
        setattr(reduce(getattr, owners, self._inner), name, value)

    def finish(self, history: list[dict[str, Any]], model: ArrayRecord, nodes: Nodes) -> None:
        """Writes the final weights, the summary and who spoke."""
        if not history:
            return
        policy, last = self._policy, history[-1]
        weights = {name: array.numpy() for name, array in model.items()}
        runs.write_arrays(self.folder / "weights.safetensors", weights)
        if nodes:
            runs.write_csv(self.folder / "nodes.csv", nodes.rows(last["round"]))
        total = {key: sum(row.get(key, 0) for row in history) for key in _SUMS}
        columns = {key: np.array([[row.get(key, np.nan) for row in history]]) for key in last}
        runs.write_json(
            self.folder / "summary.json",
            {"task": "flower", "rule": spell(policy.rule), "stand_in": spell(policy.stand_in),
             "codec": spell(policy.codec), "down": spell(policy.down, without="feedback"),
             "rounds": len(history), **summarise(columns), "total": total,
             "run": str(self.folder), "versions": {"taciturn": __version__}},
        )  # fmt: skip
        self._tidy(f"state-{last['round']}.safetensors")

    def _tidy(self, file: str) -> None:
        """Removes the arrays of earlier rounds."""
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != file:
                old.unlink()


def _attributes(strategy: Strategy, start: str = "") -> Iterator[tuple[str, Any]]:
    """What can be saved of a strategy and of those that it wraps, by path."""
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            yield from _attributes(value, f"{start}{name}.")
        elif name != _THE_MODEL and _items(value):
            yield f"{start}{name}", value


def _items(value: Any) -> dict[str, Any]:
    """The arrays and numbers of an attribute, such as FedAdam's m_t and v_t; none of others."""
    if _is_number(value) or isinstance(value, np.ndarray):
        return {"0": value}
    if isinstance(value, ArrayRecord):
        return {name: array.numpy() for name, array in value.items()}
    items = dict(enumerate(value)) if isinstance(value, list) else value
    known = isinstance(items, dict) and all(isinstance(x, np.ndarray) for x in items.values())
    return {str(name): item for name, item in items.items()} if known else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _number(tensors: Mapping[str, np.ndarray], name: str, plain: set[str]) -> Any:
    """A vector, or a number of the type that it had."""
    value = tensors[name]
    if name in plain:
        return value.item()
    return value if value.ndim else value[()]


def _names(strategy: Strategy) -> list[str]:
    """The class of a strategy, and of those that it wraps."""
    inner = [value for value in vars(strategy).values() if isinstance(value, Strategy)]
    return [type(strategy).__qualname__, *(name for one in inner for name in _names(one))]

"""What a server must not lose: saved after every round, and found again by the next start.

The arrays of round t lie in `state-<t>.safetensors`. `state.json` names them and has the row of the
round; it is what counts: whatever the moment at which a server dies, it points at a whole round.
The row is then written to `metrics.csv`, after those of earlier rounds, which stay as they are.
What Flower's `Result` has of a round was appended to `results.jsonl` before. A folder has one
server at a time.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from taciturn import __version__, runs
from taciturn.core.arrays import leaves_of, rebuilt
from taciturn.core.policy import Policy, spell
from taciturn.core.server import Memory
from taciturn.errors import RunError
from taciturn.flower.downlink import DOWNLINK, Downlink
from taciturn.flower.nodes import Nodes
from taciturn.flower.results_log import Results, ResultsLog
from taciturn.summary import summarise

# Flower's optimisers keep the model that they were last given: it is saved already.
_THE_MODEL = "current_arrays"
_SUMS = (
    "asked", "spoke", "silent", "rejected", "errors", "missing", "bytes_up", "bytes_always",
    "overhead_up", "bytes_up_full", "bytes_down", "overhead_down", "bytes_down_full",
)  # fmt: skip


class Saved(NamedTuple):
    """A state that was found.

    Attributes:
      round: the last that ended.
      history: a row per round.
      arrays: the model.
      memory: what rule and stand-in learned.
      seed: what codecs draw from.
      nodes: what is known of each.
      results: the metrics in Flower's `Result`, by attribute and round.
      downlink: what `Downlink.tensors` had, with a codec for the way down.
    """

    round: int
    history: list[dict[str, Any]]
    arrays: ArrayRecord
    memory: Memory
    seed: int
    nodes: Nodes
    results: Results
    downlink: Mapping[str, np.ndarray]


class Store:
    """A run folder with the state of a server in it."""

    def __init__(self, folder: Path, inner: Strategy) -> None:
        self.folder = folder
        self._inner = inner
        self.results = ResultsLog(folder / "results.jsonl")
        self._about: dict[str, Any] = {}
        self._table: runs.GrowingTable | None = None
        self._columns: list[str] = []
        # Numbers that differ from these later are state, the others are settings.
        self._settings = {path: getattr(*where) for path, where in _numbers(inner)}

    def claimed(self) -> AbstractContextManager[Path]:
        """A block in which no other server has the folder."""
        return runs.claimed(self.folder)

    def exists(self) -> bool:
        return (self.folder / "state.json").exists()

    def save(
        self,
        round: int,
        policy: Policy,
        history: list[dict[str, Any]],
        arrays: ArrayRecord,
        memory: Memory,
        seed: int,
        nodes: Nodes,
        downlink: Downlink | None = None,
    ) -> None:
        """Saves everything that the next round needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"model/{name}": array.numpy() for name, array in arrays.items()}
        plain = []  # numbers of Python's, which do not decide what a sum with them is
        for kind in ("rule", "stand_in"):
            for i, value in enumerate(leaves_of(getattr(memory, kind))):
                tensors[f"{kind}/{i}"] = np.asarray(value)
                if not isinstance(value, np.ndarray | np.generic):
                    plain.append(f"{kind}/{i}")
        tensors["nodes/table"] = nodes.table()
        if downlink is not None:
            tensors |= downlink.tensors()
        kinds = {}
        for path, where in _arrays(self._inner):
            value = getattr(*where)
            kinds[path] = type(value).__name__
            items = value.items() if hasattr(value, "items") else _enumerated(value)
            for name, item in items:
                tensors[f"inner/{path}/{name}"] = item.numpy() if isinstance(item, Array) else item
        numbers = {path: value for path, where in _numbers(self._inner)
                   if (value := getattr(*where)) != self._settings.get(path)}  # fmt: skip
        number_kinds = {path: value.dtype.name for path, value in numbers.items()
                        if isinstance(value, np.generic)}  # fmt: skip
        file = f"state-{round}.safetensors"
        runs.write_arrays(self.folder / file, tensors)
        self._about = {
            "taciturn": __version__,
            "round": round,
            "policy": str(policy),
            "seed": seed,
            "arrays": file,
            "model": list(arrays),
            "strategy": _names(self._inner),
            "plain": plain,
            "inner": kinds,
            "numbers": {path: _written(value) for path, value in numbers.items()},
            "number_kinds": number_kinds,
        }  # fmt: skip
        self._write_state(history[-1])
        line = self._line(history[-1])
        if self._table is None or not self._metrics.exists() or not self._has_columns(line):
            self._begin_table(history)
        else:
            self._table.append(line)
        self._tidy()

    def note(self, history: list[dict[str, Any]]) -> None:
        """Writes the row of the last round once more: more is known of it now."""
        self._write_state(history[-1])
        if self._table is not None:
            line = self._line(history[-1])
            if self._has_columns(line):
                self._table.rewrite(line)
            else:
                self._begin_table(history)

    def _has_columns(self, line: dict[str, Any]) -> bool:
        return set(line) <= set(self._columns)

    @property
    def _metrics(self) -> Path:
        return self.folder / "metrics.csv"

    def _write_state(self, row: dict[str, Any]) -> None:
        runs.write_json(self.folder / "state.json", self._about | {"row": row})

    def _begin_table(self, history: list[dict[str, Any]]) -> None:
        lines = [self._line(row) for row in history]
        self._columns = list(dict.fromkeys(name for line in lines for name in line))
        self._table = runs.GrowingTable(
            self._metrics, [dict.fromkeys(self._columns, "") | line for line in lines]
        )

    def _line(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row as in a simulation's folder."""
        return {"arm": self._about["policy"], "seed": 0} | row

    def load(self, policy: Policy, initial: ArrayRecord, memory: Memory) -> Saved:
        """The state that was saved, checked against what this run was started with.

        What `metrics.csv` has beyond it, of a round that was lost, is cut off.

        Args:
          policy, initial: those of this run.
          memory: one like that to load.
        """
        path = self.folder / "state.json"
        about = runs.read_json(path)
        try:
            if about["policy"] != str(policy):
                raise RunError(
                    f"{self.folder} holds a run with the policy {about['policy']}, "
                    f"this one has {policy}."
                )
            strategy = _names(self._inner)
            if about.get("strategy", strategy) != strategy:
                raise RunError(
                    f"{self.folder} holds a run of {_chain(about['strategy'])}, this one has "
                    f"{_chain(strategy)}: what one has learned means nothing to the other."
                )
            tensors = runs.read_arrays(self.folder / about["arrays"])
            arrays = {name: tensors[f"model/{name}"] for name in about["model"]}
            shapes = {name: array.shape for name, array in arrays.items()}
            if shapes != {name: tuple(array.shape) for name, array in initial.items()}:
                raise RunError(f"{self.folder} holds a model of other arrays: {shapes}.")
            found = {}
            for kind in ("rule", "stand_in"):
                form = getattr(memory, kind)
                part = leaves_of(form)
                # Where an earlier version had fewer numbers, they are those of the beginning.
                values = [tensors.get(f"{kind}/{i}", np.asarray(part[i])) for i in range(len(part))]
                if [np.shape(value) for value in values] != [np.shape(value) for value in part]:
                    raise RunError(
                        f"{self.folder} holds a state for {_size(values)} weights, and there are "
                        f"{_size(part)}: was `exclude` another one?"
                    )
                plain = about.get("plain")
                values = [
                    value.item() if _is_plain(f"{kind}/{i}", value, part[i], plain)
                    else value if value.ndim else value[()]
                    for i, value in enumerate(values)
                ]  # fmt: skip
                found[kind] = rebuilt(form, iter(values))
            self._load_inner(about, tensors)
            history = self._history(about)
            self._about = about
            self._begin_table(history)
            record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
            seed = int(about.get("seed", 0))
            done = int(about["round"])
            nodes = Nodes.of(tensors.get("nodes/table", np.zeros((0, 6), np.uint64)))
            results = self.results.load(done)
            down = {name: tensor for name, tensor in tensors.items()
                    if name.startswith(DOWNLINK)}  # fmt: skip
            return Saved(done, history, record, Memory(**found), seed, nodes, results, down)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error!r}.") from None

    def finish(
        self, policy: Policy, history: list[dict[str, Any]], arrays: ArrayRecord, nodes: Nodes
    ) -> None:
        """Writes the final weights, the summary and who spoke."""
        if not history:
            return
        weights = {name: array.numpy() for name, array in arrays.items()}
        runs.write_arrays(self.folder / "weights.safetensors", weights)
        total = {key: sum(row.get(key, 0) for row in history) for key in _SUMS}
        columns = {key: np.array([[row.get(key, np.nan) for row in history]])
                   for key in history[-1]}  # fmt: skip
        if nodes:
            runs.write_csv(self.folder / "nodes.csv", nodes.rows(history[-1]["round"]))
        runs.write_json(
            self.folder / "summary.json",
            {"task": "flower", "rule": spell(policy.rule), "stand_in": spell(policy.stand_in),
             "codec": spell(policy.codec), "down": spell(policy.down, without="feedback"),
             "rounds": len(history), **summarise(columns), "total": total,
             "run": str(self.folder), "versions": {"taciturn": __version__}},
        )  # fmt: skip
        self._tidy()

    def _tidy(self) -> None:
        """Removes the arrays of earlier rounds."""
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != self._about["arrays"]:
                old.unlink()

    def _history(self, about: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows up to the round that was saved; takes them out of what `state.json` says."""
        if "history" in about:  # as it was in the first folders, the key `laconic` beside it
            about.pop("laconic", None)
            return [_with_nan(row) for row in about.pop("history")]
        last = _with_nan(about.pop("row"))
        before = last["round"] - 1
        lines = runs.read_csv(self._metrics)[:before] if before else []
        rounds = [line["round"] for line in lines]
        first = 0 if rounds[:1] == ["0"] else 1  # older folders count from 0
        if rounds != [str(first + t) for t in range(before)]:
            raise RunError(f"{self._metrics} lacks rounds before round {last['round']}.")
        return [*(_row(line, t + 1) for t, line in enumerate(lines)), last]

    def _load_inner(self, about: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        for path, kind in about["inner"].items():
            owner, name = _owner(self._inner, path)
            start = f"inner/{path}/"
            found = {key[len(start) :]: value for key, value in tensors.items()
                     if key.startswith(start)}  # fmt: skip
            value: Any = found
            if kind == "list":
                value = [found[str(i)] for i in range(len(found))]
            elif kind == "ArrayRecord":
                value = ArrayRecord({key: Array(array) for key, array in found.items()})
            elif kind == "ndarray":
                value = found["0"]
            setattr(owner, name, value)
        for path, value in about["numbers"].items():
            owner, name = _owner(self._inner, path)
            kind = about.get("number_kinds", {}).get(path)
            value = float(value) if isinstance(value, str) else value
            setattr(owner, name, value if kind is None else np.dtype(kind).type(value))


def _written(number: Any) -> Any:
    """A number as JSON has it: text where it is not finite."""
    plain = number.item() if isinstance(number, np.generic) else number
    return repr(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain


def _attributes(strategy: Strategy, start: str = "") -> Iterator[tuple[str, tuple[Any, str], Any]]:
    """The attributes of a strategy and of those it wraps: path, where to get it, value."""
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            yield from _attributes(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", (strategy, name), value


def _arrays(strategy: Strategy) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Where a strategy keeps arrays: FedAdam's m_t and v_t, FedAvgM's momentum."""
    for path, where, value in _attributes(strategy):
        if where[1] == _THE_MODEL:
            continue
        items = list(value.values()) if isinstance(value, dict) else value
        if isinstance(value, np.ndarray | ArrayRecord) or (
            isinstance(items, list) and items and all(isinstance(x, np.ndarray) for x in items)
        ):
            yield path, where


def _numbers(strategy: Strategy) -> Iterator[tuple[str, tuple[Any, str]]]:
    for path, where, value in _attributes(strategy):
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            yield path, where


def _names(strategy: Strategy) -> list[str]:
    """The class of a strategy, and of those it wraps."""
    inner = [value for value in vars(strategy).values() if isinstance(value, Strategy)]
    return [type(strategy).__qualname__, *(name for one in inner for name in _names(one))]


def _chain(names: list[str]) -> str:
    return " around ".join(names)


def _is_plain(name: str, value: np.ndarray, form: Any, plain: list[str] | None) -> bool:
    """Whether a number was one of Python's: earlier folders do not say, but had float64 there."""
    if plain is not None:
        return name in plain
    return not isinstance(form, np.ndarray | np.generic) and value.dtype == np.float64


def _owner(strategy: Any, path: str) -> tuple[Any, str]:
    *owners, name = path.split(".")
    for owner in owners:
        strategy = getattr(strategy, owner)
    return strategy, name


def _size(part: Iterable[Any]) -> int:
    return max((np.size(value) for value in part), default=0)


def _enumerated(value: Any) -> list[tuple[str, Any]]:
    values = [value] if isinstance(value, np.ndarray) else value
    return [(str(i), item) for i, item in enumerate(values)]


def _row(line: dict[str, str], round: int) -> dict[str, Any]:
    """A row of `metrics.csv` as it was in the history.

    The app's columns come after `loss`; where a cell of these is empty, the round had none.
    """
    names = list(line)
    own = names[: names.index("loss") + 1] if "loss" in names else names
    numbers = {key: _number(text) for key, text in line.items()
               if key not in ("arm", "seed") and (text or key in own)}  # fmt: skip
    return numbers | {"round": round}


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text or "nan")


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what is null in a row was one."""
    return {key: float("nan") if value is None else value for key, value in row.items()}

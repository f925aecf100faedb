"""A simulation on disk: its metrics as chunks end, and checkpoints to go on from.

`metrics.csv` grows by the rows of every chunk: a row per round, arm and seed, in this order, so
that the file does not depend on how long the chunks were. A checkpoint is a chunk's state: the
pytree that the next round begins with, and how far the table was, with checksums of both. What the
table has beyond its checkpoint is cut off when a simulation goes on. The last two checkpoints are
kept; where one is damaged, the one before it is used.
"""

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn import runs
from taciturn.core.policy import Policy
from taciturn.errors import RunError, Stopped, WriteError
from taciturn.progress import Chunk, Compiling, Group
from taciturn.settings import Settings
from taciturn.signals import noted
from taciturn.sim import history
from taciturn.sim.identity import identity, what_differs
from taciturn.sim.model import flat_model

log = logging.getLogger("taciturn")

_SHARE = 0.01  # of the time that may go into checkpoints
_LONGEST = 300.0  # seconds between two of them, whatever they cost
_BYTES_PER_SECOND, _LEAST = 2e8, 0.02  # what one is taken to cost before the first is written
# What the leaves of a state can be that are no NumPy arrays; a NumPy scalar can be a `float` too.
_KINDS = {"scalar": np.generic, "number": bool | int | float, "jax": jax.Array}


def checkpointed(
    stream: Callable[..., Generator[Chunk | Compiling]], task: Any, policies: Mapping[str, Policy],
    settings: Settings, folder: Path,
) -> Generator[Chunk | Compiling]:  # fmt: skip
    """What a stream tells, written into a folder: first what is saved there, then what is left.

    Ctrl-C and SIGTERM end it when the chunk that is under way is saved.
    """
    with closing(Checkpoints(folder, task, policies, settings)) as checkpoints, noted() as came:
        found, left = checkpoints.find()
        yield from found
        for record in stream(task, policies, settings, left) if left or not found else ():
            signal = came()
            if isinstance(record, Chunk):
                checkpoints.add(record, stop=bool(signal))
            yield record
            if signal and isinstance(record, Chunk) and not record.is_last:
                raise Stopped(f"Stopped after round {record.group.done}.", signal)


class Checkpoints:
    """The folder of a simulation. One process at a time writes it: see `runs.claimed`."""

    def __init__(
        self, folder: Path, task: Any, policies: Mapping[str, Policy], settings: Settings
    ) -> None:
        self._folder, self._settings, self._size = folder, settings, flat_model(task).size
        self._tested = history.tested_columns(task)
        self._columns = (*history.MEASURED, *history.COUNTED, *self._tested)
        about = identity(task, policies, settings)
        self._about = about | {"weights": self._size, "columns": list(self._columns)}
        self._table = runs.StreamedTable(folder / "metrics.csv")
        self._chunks: list[Chunk] = []
        self._due: float | None = None
        self._saved = 0

    def find(self) -> tuple[list[Chunk], list[Group]]:
        """What was saved, as a chunk per group, and the groups that are left.

        Both are empty where nothing was saved: the table then begins anew.
        """
        problems: dict[Path, str] = {}
        for path in reversed(_checkpoints(self._folder)):
            try:
                found = self._read(path)
            except RunError as error:
                problems[path] = f"{error}".rstrip(".")
                continue
            told = "%s: %s is used, that one is now called %s"
            for bad, problem in problems.items():
                aside = bad.rename(bad.with_suffix(".unusable"))
                log.warning(told, problem, path.name, aside.name)
            return found
        for problem in problems.values():
            raise RunError(f"{problem}, and there is no other checkpoint that can be used.")
        self._table.begin(("arm", "seed", "round", *self._columns))
        return [], []

    def add(self, chunk: Chunk, stop: bool = False) -> None:
        """Writes a chunk down, and a checkpoint where it is time for one."""
        self._chunks.append(chunk.kept)
        if self._due is None:
            nbytes = 4 * sum(map(np.size, jax.tree.leaves(chunk.group.state)))
            self._due = time.perf_counter() + _pause(_LEAST + nbytes / _BYTES_PER_SECOND)
        try:
            self._table.add(self._rows(chunk))
            began = time.perf_counter()
            if stop or began >= self._due or chunk.is_last:
                self._save(chunk)
                now = time.perf_counter()
                self._due = now + _pause(now - began)
        except (OSError, WriteError) as error:
            why: Any = error
            if isinstance(error, OSError):
                why = f"{self._folder / 'metrics.csv'} cannot be written: {error.strerror}."
            raise WriteError(f"{why} What was saved, {self._saved} rounds, is safe.") from None

    def close(self) -> None:
        self._table.close()

    def _save(self, chunk: Chunk) -> None:
        """Writes a checkpoint: the state, and what the table does not have of the rounds so far."""
        self._chunks = history.joined(self._chunks)
        arrays: dict[str, np.ndarray] = {}
        for i, own in enumerate(self._chunks):
            arrays[f"{i}/seconds"] = own.seconds
            for name, counts in own.participation._asdict().items():
                arrays[f"{i}/participation/{name}"] = counts
            if own.weights is not None:
                arrays[f"{i}/weights"] = own.weights
        leaves, kinds = pack(None if chunk.weights is not None else chunk.group.state)
        arrays |= {f"{i}/state{name}": array for name, array in leaves.items()}  # i is the last
        groups = [own.group for own in self._chunks]
        waiting = [group._replace(state=None) for group in chunk.waiting]
        content = {
            "about": self._about,
            "table": self._table.settle(),
            "groups": [group._asdict() for group in (*groups, *waiting)],
            "kinds": kinds,
        }
        done = sum(group.done for group in groups)
        runs.write_checked(self._folder / f"checkpoint-{done}.safetensors", content, arrays)
        self._saved = done
        for old in _checkpoints(self._folder)[:-2]:
            old.unlink()

    def _read(self, path: Path) -> tuple[list[Chunk], list[Group]]:
        """What a checkpoint has of `find`; the table is cut back to where it was."""
        content, arrays = runs.read_checked(path)
        if what := what_differs(content["about"], self._about):
            raise RunError(f"{path} is of another run: {what}")
        rows = iter(self._table.go_on(*content["table"]))
        found, left = [], []
        for i, entry in enumerate(content["groups"]):
            arms, seeds = map(tuple, (entry["arms"], entry["seeds"]))
            group = Group(arms, seeds, entry["done"], entry["lanes"])
            if group.done:
                found.append(self._chunk(group, rows, _below(f"{i}/", arrays)))
            if group.done < self._settings.rounds:
                state = partial(unpack, _below(f"{i}/state", arrays), content["kinds"])
                left.append(group._replace(state=state))
        self._chunks = list(found)
        self._saved = sum(chunk.group.done for chunk in found)
        return found, left

    def _chunk(
        self, group: Group, rows: Iterator[Mapping[str, str]], arrays: Mapping[str, np.ndarray]
    ) -> Chunk:
        """All saved rounds of a group, the next in the table."""
        shape = (group.done, len(group.arms), len(group.seeds))
        own = list(islice(rows, math.prod(shape)))
        columns = {
            name: np.reshape([float(row[name] or "nan") for row in own], shape).transpose(1, 2, 0)
            for name in (*history.MEASURED, *self._tested)
        }
        counts = (arrays[f"participation/{name}"] for name in history.Participation._fields)
        return Chunk(
            group, history.as_recorded(columns), arrays["seconds"],
            weights=arrays.get("weights"), participation=history.Participation(*counts),
        )  # fmt: skip

    def _rows(self, chunk: Chunk) -> list[np.ndarray]:
        """The columns of the table: a row per round, arm and seed, in this order."""
        arms, seeds, count = chunk.group.arms, chunk.group.seeds, len(chunk.seconds)
        asked, choice = self._settings.cohort, self._settings.choice or 0
        missing = chunk.columns["missing"]
        columns = {**chunk.columns, **history.traffic(asked, self._size, missing, choice)}
        labels = [
            np.tile(np.repeat(arms, len(seeds)), count),
            np.tile(seeds, count * len(arms)),
            np.repeat(chunk.group.done - count + 1 + np.arange(count), len(arms) * len(seeds)),
        ]
        return [*labels, *(columns[name].transpose(2, 0, 1).reshape(-1) for name in self._columns)]


def remove_checkpoints(folder: Path) -> None:
    """Removes what a simulation needs no more when its results are written."""
    for path in _checkpoints(folder):
        path.unlink(missing_ok=True)


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    found = {path.stem.partition("-")[2]: path for path in folder.glob("checkpoint-*.safetensors")}
    return [found[number] for number in sorted(filter(str.isdecimal, found), key=int)]


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    found = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


def _pause(cost: float) -> float:
    """Seconds to the next checkpoint, where one costs so many."""
    return min(_LONGEST, cost / _SHARE)


def pack(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A pytree's leaves by their paths, and the kinds of those that are no NumPy arrays.

    The plain loop's states hold plain numbers beside arrays, and a number that came back as an
    array of another kind would be rounded in another way.
    """
    arrays, kinds = {}, {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, array = jax.tree_util.keystr(path), np.asarray(leaf)
        kind = next((kind for kind, types in _KINDS.items() if isinstance(leaf, types)), None)
        if array.dtype.kind == "V":  # bfloat16, which files know under another name
            kind, array = array.dtype.name, array.view(f"u{array.dtype.itemsize}")
        arrays[name] = array
        if kind is not None:
            kinds[name] = kind
    return arrays, kinds


def unpack(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str], like: Any) -> Any:
    """The pytree that was packed, of which `like` has the form."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    forms = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    shapes = {name: np.shape(leaf) for name, leaf in forms.items()}
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes:
        differ = sorted(set(found.items()) ^ set(shapes.items()))[0][0]
        raise RunError(
            f"The state that was saved has {found.get(differ, 'nothing')} for {differ}, and now "
            f"it is {shapes.get(differ, 'nothing')}: it was saved by another version."
        )
    leaves = [_as(kinds.get(name), arrays[name], leaf) for name, leaf in forms.items()]
    return jax.tree_util.tree_unflatten(structure, leaves)


def _as(kind: str | None, array: np.ndarray, like: Any) -> Any:
    if kind == "number":
        return array.item()
    if kind == "scalar":
        return array[()]
    if kind not in (None, "jax"):
        array = array.view(jnp.dtype(kind))
    # Of a form alone, the caller decides on which devices it is to be.
    return jnp.asarray(array) if kind == "jax" and isinstance(like, jax.Array) else array

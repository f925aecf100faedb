"""Clients and their data: `Stored` in flat arrays, or `Generated` by a pure function."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import choice
from taciturn.core.hashing import mix
from taciturn.errors import InputError

HOLD_OUT = ("random", "last")
_TESTED = 2_000  # examples of `Generated` that are held out

Batch = Any  # a pytree of arrays that share their first axis, one entry per example


class Clients(Protocol):
    """The clients' data: a pytree, so that it can be an argument of a compiled program."""

    @property
    def population(self) -> int:
        """How many clients there are."""

    @property
    def longest(self) -> int:
        """The most rows that any of them has."""

    def rows_of(self, clients: jax.Array) -> jax.Array:
        """How many rows of training data these clients have."""

    def examples_of(self, clients: jax.Array) -> jax.Array:
        """n_k, what these clients weigh in the mean; usually as many as they have rows."""

    def batch(self, client: jax.Array, indices: jax.Array) -> Batch:
        """These rows of one client."""

    def hold_out(self, how: str) -> tuple[Self, Batch, Any]:
        """The clients without a tenth of each one's rows, those rows, and the client of each.

        The tenth is drawn at `random`, by label where there are labels, or it is the `last`.
        """


def held_out(rows: Any) -> Any:
    """How many of its rows a client gives to the test set: a tenth, at least one."""
    return (rows >= 2) * ((rows // 10) + (rows < 10))


def numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row of clients with so many rows: the client, and its place among the client's."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(frozen=True)
class Stored:
    """Clients whose rows of data lie one after another in flat arrays.

    Attributes:
      arrays: a pytree of arrays; the first axis runs over all rows of all clients.
      starts, rows: where each client's rows begin, and how many there are.
      examples: n_k, what each client weighs in the mean.
      longest: the most rows that any client has.
      names: of the clients, where they have any. Compiled programs do not depend on them.
    """

    arrays: Batch
    starts: Any
    rows: Any
    examples: Any
    longest: int
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Batch, rows: Any, examples: Any = None, names: Sequence[str] = ()) -> Self:
        """Clients with so many `rows` each, in order; n_k is by default the number of rows."""
        rows = np.asarray(rows)
        leaves = jax.tree.leaves(arrays)
        if not all(hasattr(array, "dtype") and array.ndim for array in leaves):
            raise InputError("`arrays` must be arrays whose first axis runs over all rows.")
        totals = {len(array) for array in leaves}
        if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
            raise InputError("`rows` must be a non-empty list of whole numbers, one per client.")
        if rows.min() < 1:
            raise InputError(f"Every client needs a row, client {rows.argmin()} has none.")
        ends = np.cumsum(rows, dtype=np.int64)
        if totals != {int(ends[-1])}:
            seen = f"{ends[-1]}, the arrays have {sorted(totals)}"
            raise InputError(f"The clients' rows add up to {seen}.")
        if ends[-1] >= 2**31:
            raise InputError(f"All clients together may have 2³¹ − 1 rows, got {ends[-1]}.")
        examples = np.asarray(rows if examples is None else examples)
        if examples.shape != rows.shape or not (np.isfinite(examples) & (examples > 0)).all():
            raise InputError("`examples` must be above 0, one number per client.")
        if names and len(names) != len(rows):
            raise InputError(f"`names` must be one per client, got {len(names)} for {len(rows)}.")
        starts, longest = (ends - rows).astype(np.int32), int(rows.max())
        rows, examples = rows.astype(np.int32), examples.astype(np.float32)
        return cls(arrays, starts, rows, examples, longest, tuple(map(str, names)))

    @property
    def population(self) -> int:
        return self.starts.shape[0]

    @property
    def labels(self) -> np.ndarray | None:
        """One number per row, where there is such an array `y`."""
        labels = self.arrays.get("y") if isinstance(self.arrays, Mapping) else None
        return np.asarray(labels) if labels is not None and np.ndim(labels) == 1 else None

    def rows_of(self, clients: jax.Array) -> jax.Array:
        return jnp.asarray(self.rows)[clients]

    def examples_of(self, clients: jax.Array) -> jax.Array:
        return jnp.asarray(self.examples)[clients]

    def batch(self, client: jax.Array, indices: jax.Array) -> Batch:
        rows = jnp.asarray(self.starts)[client] + indices
        return jax.tree.map(lambda array: jnp.asarray(array)[rows], self.arrays)

    def hold_out(self, how: str = "random") -> tuple[Self, Batch, np.ndarray]:
        held = held_out(self.rows)
        if not held.any():
            raise InputError("No client has two examples, so none can be held out for testing.")
        whose, place = numbered(held)
        everything = np.arange(self.rows.sum())
        if choice("hold_out", how, HOLD_OUT) == "last":
            order, place = everything, self.rows[whose] - held[whose] + place
        else:
            # Evenly spaced in the order of labels, from a start of the client's own: every label
            # has its share.
            order, start = self._shuffled_by_label()
            place = ((place + start[whose]) * (self.rows[whose] / held[whose])).astype(np.int64)
        chosen = np.sort(order[self.starts[whose] + place])  # still client by client
        left = self.rows - held
        examples = self.examples * (left / self.rows).astype(np.float32)
        kept = self._take(np.delete(everything, chosen))
        return self.of(kept, left, examples, self.names), self._take(chosen), whose

    def _shuffled_by_label(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, client by client, label by label, at random; and a draw of [0, 1) for each.

        Both depend on a client's name alone, or on its number where it has none.
        """
        words = self.names or map(str, range(len(self.rows)))
        keys = mix(np.array([zlib.crc32(word.encode()) for word in words], np.uint32))
        whose, place = numbered(self.rows)
        draws = mix(keys[whose] ^ mix(place.astype(np.uint32)))
        sorting = (draws, whose) if self.labels is None else (draws, self.labels, whose)
        return np.lexsort(sorting), mix(~keys) / 2**32

    def _take(self, rows: np.ndarray) -> Batch:
        return jax.tree.map(lambda array: np.asarray(array)[rows], self.arrays)


jax.tree_util.register_pytree_node(  # JAX 0.6.2 drops no field of more than a letter
    Stored,
    lambda stored: ((stored.arrays, stored.starts, stored.rows, stored.examples), stored.longest),
    lambda longest, children: Stored(*children, longest),  # programs must not depend on names
)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("data",),
    meta_fields=("population", "longest", "rows", "example", "hold"),
)
@dataclass(frozen=True)
class Generated:
    """Clients whose data are a pure function: nothing is stored, a population costs nothing.

    Attributes:
      population: how many clients there are.
      longest: the most rows that any of them has.
      rows: `(client, data) -> int`, how many rows a client has.
      example: `(client, index, data) -> example`, a pytree of arrays for one row.
      data: a pytree of arrays that both functions get, for what is too large to be a constant.
      hold: whether each client's last tenth is held out.
    """

    population: int
    longest: int
    rows: Callable[[Any, Any], Any]
    example: Callable[[Any, Any, Any], Any]
    data: Any = ()
    hold: bool = field(default=False, kw_only=True)

    def rows_of(self, clients: jax.Array) -> jax.Array:
        everything = self._all_rows(clients)
        return everything - held_out(everything) if self.hold else everything

    def examples_of(self, clients: jax.Array) -> jax.Array:
        return self.rows_of(clients).astype(jnp.float32)

    def batch(self, client: jax.Array, indices: jax.Array) -> Batch:
        return jax.vmap(lambda index: self.example(client, index, self.data))(indices)

    def hold_out(self, how: str = "random") -> tuple[Self, Batch, np.ndarray]:
        """As in `Clients`, but the last tenth whatever `how` says: all rows are drawn alike.

        The test set has about `_TESTED` examples, of evenly spaced clients.
        """
        some = np.unique(np.linspace(0, self.population - 1, min(self.population, 200), dtype=int))
        rows = np.asarray(jax.jit(type(self)._all_rows)(self, some))
        whose, place = numbered(held_out(rows))
        if not len(whose):
            raise InputError("No client has two examples, so none can be held out for testing.")
        step = max(1, len(whose) // _TESTED)
        clients = some[whose][::step].astype(np.int32)
        indices = (rows[whose] - 1 - place)[::step].astype(np.int32)
        draw = jax.jit(jax.vmap(self.example, (0, 0, None)))
        test = jax.tree.map(np.asarray, draw(clients, indices, self.data))
        return replace(self, hold=True), test, clients

    def _all_rows(self, clients: jax.Array) -> jax.Array:
        return jax.vmap(lambda c: jnp.asarray(self.rows(c, self.data), jnp.int32))(clients)

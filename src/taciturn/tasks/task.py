"""Tasks: data split over clients, a model, a loss and a metric."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import choice
from taciturn.core.hashing import mix
from taciturn.data.dataset import Dataset
from taciturn.errors import InputError

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

    def hold_out(self, how: str) -> tuple[Clients, Batch, Any]:
        """The clients without a tenth of each one's rows, those rows, and the client of each.

        The tenth is drawn at `random`, by label where there are labels, or it is the `last`.
        """


class Tested(NamedTuple):
    """What a model is tested on.

    Attributes:
      examples: a pytree of arrays, one entry per example.
      whose: the client of each example, as a place in `clients`; None where it is unknown.
      clients: the numbers of the clients that have test examples; None where they are unknown.
    """

    examples: Batch
    whose: Any = None
    clients: Any = None

    @property
    def total(self) -> int:
        return len(jax.tree.leaves(self.examples)[0])


HOLD_OUT = ("random", "last")


def held_out(rows: Any) -> Any:
    """How many of its rows a client gives to the test set: a tenth, one at the least."""
    return (rows >= 2) * ((rows // 10) + (rows < 10))


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
    def of(
        cls, arrays: Batch, rows: Any, examples: Any = None, names: Sequence[str] = ()
    ) -> Stored:
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
            raise InputError(
                f"The clients' rows add up to {ends[-1]}, the arrays have {sorted(totals)}."
            )
        if ends[-1] >= 2**31:
            raise InputError(f"All clients together may have 2³¹ − 1 rows, got {ends[-1]}.")
        examples = np.asarray(rows if examples is None else examples)
        if examples.shape != rows.shape or not (np.isfinite(examples) & (examples > 0)).all():
            raise InputError("`examples` must be above 0, one number per client.")
        if names and len(names) != len(rows):
            raise InputError(f"`names` must be one per client, got {len(names)} for {len(rows)}.")
        return cls(
            arrays,
            (ends - rows).astype(np.int32),
            rows.astype(np.int32),
            examples.astype(np.float32),
            longest=int(rows.max()),
            names=tuple(map(str, names)),
        )

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

    def hold_out(self, how: str = "random") -> tuple[Stored, Batch, np.ndarray]:
        held = held_out(self.rows)
        if not held.any():
            raise InputError("No client has two examples, so none can be held out for testing.")
        whose, place = numbered(held)
        if choice("hold_out", how, HOLD_OUT) == "last":
            order, place = np.arange(self.rows.sum()), self.rows[whose] - held[whose] + place
        else:
            # Evenly spaced in the order of labels, from a start of the client's own: every label
            # has its share.
            order, start = self._shuffled_by_label()
            place = ((place + start[whose]) * (self.rows[whose] / held[whose])).astype(np.int64)
        chosen = np.sort(order[self.starts[whose] + place])  # still client by client
        kept = np.delete(np.arange(self.rows.sum()), chosen)
        left = self.rows - held
        examples = self.examples * (left / self.rows).astype(np.float32)
        return Stored.of(self._take(kept), left, examples, self.names), self._take(chosen), whose

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


jax.tree_util.register_pytree_node(
    Stored,  # its aux data are without names, which programs must not depend on
    lambda stored: ((stored.arrays, stored.starts, stored.rows, stored.examples), stored.longest),
    lambda longest, children: Stored(*children, longest),
)


def numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row of clients with so many rows: the client, and its place among the client's."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)


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

    def hold_out(self, how: str = "random") -> tuple[Generated, Batch, np.ndarray]:
        """As in `Clients`, but the last tenth whatever `how` says: all rows are drawn alike.

        The test set has about `_TESTED` examples, of evenly spaced clients.
        """
        some = np.linspace(0, self.population - 1, min(self.population, 200), dtype=int)
        chosen = np.unique(some)
        rows = np.asarray(jax.jit(type(self)._all_rows)(self, chosen))
        pairs = [
            (client, count - 1 - i)
            for client, count in zip(chosen, rows, strict=True)
            for i in range(held_out(count))
        ]
        if not pairs:
            raise InputError("No client has two examples, so none can be held out for testing.")
        step = max(1, len(pairs) // _TESTED)
        clients, indices = np.array(pairs[::step], np.int32).T
        draw = jax.jit(jax.vmap(lambda c, i, data: self.example(c, i, data), (0, 0, None)))
        test = jax.tree.map(np.asarray, draw(clients, indices, self.data))
        return replace(self, hold=True), test, clients

    def _all_rows(self, clients: jax.Array) -> jax.Array:
        return jax.vmap(lambda c: jnp.asarray(self.rows(c, self.data), jnp.int32))(clients)


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned, from whom, and with which settings unless others are given.

    Anything with these attributes is a task; this record is the shortest way to make one.

    Attributes:
      name: as on the command line.
      clients: the training data, `Stored` or `Generated`.
      test: a pytree of arrays, one entry per example; None holds out a tenth of every client.
      test_clients: whose each example of `test` is, a number that is the same for all examples of a
        client; None where they are nobody's, or nobody knows.
      hold_out: which tenth: `random`, by label where there are labels (a one-dimensional array
        `y`), or `last`, where rows are in the order of time and the future is to be predicted.
      init: `(key) -> params`, a pytree of arrays.
      loss: `(params, batch, key) -> losses`, one number per example.
      metrics: `(params, batch) -> {name: (value, weight)}`, sums and their weights for every
        example. `accuracy`, in [0, 1], and `loss` are shown in tables; any other may be there.
      cohort: `(key, round, size) -> clients`, who is asked in a round: so many different numbers
        below the population, such as those who are awake. None draws them evenly.
      batch, epochs, lr, clip: the defaults of local training; `clip` is the largest global norm of
        a batch's gradient, None for no clipping.
    """

    name: str
    clients: Clients
    init: Callable[[jax.Array], Any]
    loss: Callable[[Any, Batch, jax.Array], jax.Array]
    metrics: Callable[[Any, Batch], Mapping[str, tuple[jax.Array, jax.Array]]]
    test: Batch | None = None
    batch: int = 20
    epochs: int = 1
    lr: float = 0.1
    clip: float | None = 1.0
    hold_out: str = "random"
    cohort: Callable[[jax.Array, jax.Array, int], jax.Array] | None = None
    test_clients: Any = None

    @classmethod
    def of(cls, name: str, dataset: Dataset, **others: Any) -> Task:
        """A task on data that were read: its clients and its test set are those of the dataset."""
        clients = Stored.of(dataset.train, dataset.rows, names=dataset.names)
        return cls(name, clients, test=dataset.test, test_clients=dataset.test_clients, **others)


def with_test(task: Task) -> tuple[Clients, Tested]:
    """The clients to train on, and what to test on."""
    clients, examples, whose = task.clients, task.test, task.test_clients
    if examples is None:
        clients, examples, whose = task.clients.hold_out(task.hold_out)
    if whose is None:
        return clients, Tested(examples)
    owners, places = np.unique(np.asarray(whose), return_inverse=True)
    return clients, Tested(examples, places.astype(np.int32), owners)


def how_tested(task: Task) -> str:
    """How the test set came about, in words."""
    if task.test is not None:
        count = len(jax.tree.leaves(task.test)[0])
        return f"{count:,} examples that came as a test set"
    if isinstance(task.clients, Generated):
        return "examples of the same clients that nobody trains on"
    if task.hold_out == "last":
        return "the last tenth of each client's rows"
    labels = getattr(task.clients, "labels", None)
    return "a tenth of each client's rows, at random" + ("" if labels is None else " by label")


def classification(
    logits: Callable[[Any, Any, jax.Array | None], jax.Array],
) -> tuple[Callable[..., jax.Array], Callable[..., dict[str, tuple[jax.Array, jax.Array]]]]:
    """Loss and metrics of a classifier on batches `{"x": inputs, "y": labels}`.

    Args:
      logits: `(params, inputs, key) -> logits`; the key is None when the model is tested.
    """

    def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(scores.astype(jnp.result_type(scores, jnp.float32)))
        return -jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]

    def loss(params: Any, batch: Batch, key: jax.Array) -> jax.Array:
        return cross_entropy(logits(params, batch["x"], key), batch["y"])

    loss.logits = logits  # type: ignore[attr-defined]  # tells how many classes there are

    def metrics(params: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        scores = logits(params, batch["x"], None)
        right = (jnp.argmax(scores, axis=-1) == batch["y"]).astype(jnp.float32)
        one = jnp.ones_like(right)
        return {"accuracy": (right, one), "loss": (cross_entropy(scores, batch["y"]), one)}

    return loss, metrics


def regression(predict: Any) -> tuple[Any, Any]:
    """Loss and metrics of a model that predicts numbers, on batches `{"x": inputs, "y": numbers}`.

    Args:
      predict: `(params, inputs, key) -> n × 1`; the key is None when the model is tested.
    """

    def errors(params: Any, batch: Batch, key: jax.Array | None) -> jax.Array:
        found = predict(params, batch["x"], key)[:, 0]
        wide = jnp.result_type(found, jnp.float32)
        return jnp.square(found.astype(wide) - batch["y"].astype(wide))

    def metrics(params: Any, batch: Batch) -> Any:
        found = errors(params, batch, None)
        return {"loss": (found, jnp.ones_like(found))}

    return errors, metrics


def unit(x: jax.Array) -> jax.Array:
    """Bytes as float32 in [0, 1], on the device that computes with them; other numbers as is."""
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x

"""Tasks: data split over clients, a model, a loss and a metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.errors import InputError

Batch = Any  # a pytree of arrays that share their first axis, one entry an example


class Clients(Protocol):
    """The clients' data. A pytree, so that it can be an argument of a compiled program."""

    @property
    def population(self) -> int:
        """How many clients there are."""
        ...

    @property
    def longest(self) -> int:
        """The most examples that any of them has."""
        ...

    def sizes(self, clients: jax.Array) -> jax.Array:
        """How many training examples these clients have."""
        ...

    def weights(self, clients: jax.Array) -> jax.Array:
        """n_k, what these clients weigh in the mean; usually their sizes."""
        ...

    def examples(self, client: jax.Array, indices: jax.Array) -> Batch:
        """These examples of one client."""
        ...

    def hold_out(self) -> tuple[Clients, Batch]:
        """The clients without the last tenth of each one's examples, and those examples."""
        ...


def held_out(sizes: Any) -> Any:
    """How many examples a client of this size gives to the test set: a tenth, one at the least."""
    return (sizes >= 2) * ((sizes // 10) + (sizes < 10))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("arrays", "starts", "counts", "shares"),
    meta_fields=("longest",),
)
@dataclass(frozen=True)
class Stored:
    """Clients whose examples lie one after another in flat arrays.

    Attributes:
      arrays: a pytree of arrays; the first axis runs over all examples of all clients.
      starts, counts: where each client's examples begin, and how many there are.
      shares: n_k, what each client weighs in the mean.
    """

    arrays: Batch
    starts: Any
    counts: Any
    shares: Any
    longest: int

    @classmethod
    def of(cls, arrays: Batch, sizes: Any, shares: Any = None) -> Stored:
        """Clients with so many examples each, in order."""
        sizes = np.asarray(sizes)
        totals = {len(array) for array in jax.tree.leaves(arrays)}
        if sizes.ndim != 1 or not len(sizes) or not np.issubdtype(sizes.dtype, np.integer):
            raise InputError("`sizes` must be a non-empty list of whole numbers, one a client.")
        if sizes.min() < 1:
            raise InputError(f"Every client needs an example, client {sizes.argmin()} has none.")
        if totals != {int(sizes.sum())}:
            raise InputError(
                f"The clients' sizes add up to {sizes.sum()}, the arrays have {sorted(totals)}."
            )
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        shares = sizes if shares is None else np.asarray(shares)
        if shares.shape != sizes.shape or not (np.isfinite(shares) & (shares > 0)).all():
            raise InputError("`shares` must be above 0, one a client.")
        return cls(
            arrays,
            starts,
            sizes.astype(np.int32),
            shares.astype(np.float32),
            longest=int(sizes.max()),
        )

    @property
    def population(self) -> int:
        return self.starts.shape[0]

    def sizes(self, clients: jax.Array) -> jax.Array:
        return jnp.asarray(self.counts)[clients]

    def weights(self, clients: jax.Array) -> jax.Array:
        return jnp.asarray(self.shares)[clients]

    def examples(self, client: jax.Array, indices: jax.Array) -> Batch:
        rows = jnp.asarray(self.starts)[client] + indices
        return jax.tree.map(lambda array: jnp.asarray(array)[rows], self.arrays)

    def hold_out(self) -> tuple[Stored, Batch]:
        held = held_out(self.counts)
        last = self.starts + self.counts
        rows = np.concatenate(
            [np.arange(end - n, end) for end, n in zip(last, held, strict=True)]
        ).astype(np.int64)
        if not len(rows):
            raise InputError("No client has two examples, so none can be held out for testing.")
        train = replace(
            self,
            counts=self.counts - held,
            shares=self.shares * ((self.counts - held) / self.counts).astype(np.float32),
            longest=int((self.counts - held).max()),
        )
        return train, jax.tree.map(lambda array: np.asarray(array)[rows], self.arrays)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("data",),
    meta_fields=("population", "longest", "size", "example", "hold"),
)
@dataclass(frozen=True)
class Generated:
    """Clients whose examples are a pure function: nothing is stored, a population costs nothing.

    Attributes:
      population: how many clients there are.
      longest: the most examples that any of them has.
      size: `(client, data) -> int`, how many examples a client has.
      example: `(client, index, data) -> example`, a pytree of arrays for one example.
      data: a pytree of arrays that both functions get, for what is too large to be a constant.
    """

    population: int
    longest: int
    size: Callable[[Any, Any], Any]
    example: Callable[[Any, Any, Any], Any]
    data: Any = ()
    hold: bool = field(default=False, kw_only=True)

    def sizes(self, clients: jax.Array) -> jax.Array:
        full = self._full_sizes(clients)
        return full - held_out(full) if self.hold else full

    def weights(self, clients: jax.Array) -> jax.Array:
        return self.sizes(clients).astype(jnp.float32)

    def examples(self, client: jax.Array, indices: jax.Array) -> Batch:
        return jax.vmap(lambda index: self.example(client, index, self.data))(indices)

    def hold_out(self, most: int = 2_000) -> tuple[Generated, Batch]:
        """As in `Clients`; the test set is drawn from evenly spaced clients, `most` examples."""
        chosen = np.unique(
            np.linspace(0, self.population - 1, min(self.population, 200), dtype=int)
        )
        sizes = np.asarray(jax.jit(type(self)._full_sizes)(self, chosen))
        pairs = [
            (client, size - 1 - i)
            for client, size in zip(chosen, sizes, strict=True)
            for i in range(held_out(size))
        ]
        if not pairs:
            raise InputError("No client has two examples, so none can be held out for testing.")
        step = max(1, len(pairs) // most)
        clients, indices = (
            jnp.asarray(column, jnp.int32) for column in zip(*pairs[::step], strict=True)
        )
        draw = jax.jit(jax.vmap(lambda c, i, data: self.example(c, i, data), (0, 0, None)))
        return replace(self, hold=True), jax.tree.map(np.asarray, draw(clients, indices, self.data))

    def _full_sizes(self, clients: jax.Array) -> jax.Array:
        return jax.vmap(lambda c: jnp.asarray(self.size(c, self.data), jnp.int32))(clients)


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned, from whom, and with which settings unless others are given.

    Anything with these attributes is a task; this record is the shortest way to make one.

    Attributes:
      name: as on the command line.
      clients: the training data, `Stored` or `Generated`.
      test: a pytree of arrays, one entry an example; None holds out a tenth of every client.
      init: `(key) -> params`, a pytree of arrays.
      loss: `(params, batch, key) -> losses`, one number an example.
      metrics: `(params, batch) -> {name: (value, weight)}`, sums and their weights for every
        example; `accuracy` and `loss` must be among the names.
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


def with_test(task: Task) -> tuple[Clients, Batch]:
    """The clients to train on and the examples to test on."""
    if task.test is not None:
        return task.clients, task.test
    return task.clients.hold_out()


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

    def metrics(params: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        scores = logits(params, batch["x"], None)
        right = (jnp.argmax(scores, axis=-1) == batch["y"]).astype(jnp.float32)
        one = jnp.ones_like(right)
        return {"accuracy": (right, one), "loss": (cross_entropy(scores, batch["y"]), one)}

    return loss, metrics


def unit(x: jax.Array) -> jax.Array:
    """Bytes as float32 in [0, 1], on the device that computes with them; other numbers as is."""
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x

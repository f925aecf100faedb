"""Tasks: data split over clients, a model, a loss and a metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.data.dataset import Dataset
from taciturn.tasks.clients import Batch, Clients, Generated, Stored


class Tested(NamedTuple):
    """What a model is tested on; of whom the examples are may be unknown."""

    examples: Batch
    whose: Any = None  # the client of each example, as a place in `clients`
    clients: Any = None  # the numbers of the clients that have test examples

    @property
    def total(self) -> int:
        return len(jax.tree.leaves(self.examples)[0])


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned, from whom, and with which settings unless others are given.

    Anything with these attributes is a task; this record is the shortest way to make one.

    Attributes:
      name: as on the command line.
      clients: the training data, `Stored` or `Generated`.
      test: a pytree of arrays, one entry per example; None holds out a tenth of every client.
      test_clients: the client of each example of `test`, a whole number; None where it is unknown.
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
      encode: `(rows) -> inputs`, of a table's columns: a `taciturn.data.table.Encoding`.
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
    encode: Callable[[Any], np.ndarray] | None = None

    @classmethod
    def of(cls, name: str, dataset: Dataset, **others: Any) -> Self:
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
        return f"{Tested(task.test).total:,} examples that came as a test set"
    if isinstance(task.clients, Generated):
        return "examples of the same clients that nobody trains on"
    if task.hold_out == "last":
        return "the last tenth of each client's rows"
    labels = getattr(task.clients, "labels", None)
    return "a tenth of each client's rows, at random" + ("" if labels is None else " by label")


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """−log softmax of each label, in float32 at least; classes are the last axis of `logits`."""
    likely = jax.nn.log_softmax(logits.astype(jnp.result_type(logits, jnp.float32)))
    return -jnp.take_along_axis(likely, labels[..., None], axis=-1)[..., 0]


def classification(
    logits: Callable[[Any, Any, jax.Array | None], jax.Array],
) -> tuple[Callable[..., jax.Array], Callable[..., dict[str, tuple[jax.Array, jax.Array]]]]:
    """Loss and metrics of a classifier on batches `{"x": inputs, "y": labels}`.

    Args:
      logits: `(params, inputs, key) -> logits`; the key is None when the model is tested.
    """

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

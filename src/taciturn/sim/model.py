"""A task's model: its weights as a pytree for training and as a flat vector elsewhere; its scores.

Whole numbers and running statistics (`core/buffers.py`) in a model are no weights: a codec's noise
or a step of an optimiser would make a variance negative. They stay as `init` makes them, and are
neither sent nor part of any norm.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from taciturn.core.buffers import is_buffer
from taciturn.errors import InputError
from taciturn.tasks.check import check
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task, Tested, with_test

_BATCH = 512  # examples at a time in a test


class Model(NamedTuple):
    """The forms of a task's model."""

    init: Callable[[jax.Array], jax.Array]  # `(key) -> vector`, the first weights
    ravel: Callable[[Any], jax.Array]  # `(pytree of weights) -> vector`
    unravel: Callable[[jax.Array], Any]  # the way back: the model's, None for what is no weight
    whole: Callable[[Any], Any]  # `(pytree of weights) -> model`, as the task's functions take it
    size: int  # how many weights there are

    def of(self, vector: jax.Array) -> Any:
        """The model with these weights."""
        return self.whole(self.unravel(vector))


def flat_model(task: Task) -> Model:
    """The task's model and the ways between its forms."""
    form = jax.eval_shape(lambda: task.init(jax.random.key(0)))  # only traced
    trained = jax.tree_util.tree_map_with_path(_is_weight, form)
    vector, unravel = eqx.filter_eval_shape(ravel_pytree, eqx.filter(form, trained))
    if not vector.size or not jnp.issubdtype(vector.dtype, jnp.floating):
        raise InputError(f"Task `{task.name}` has no floating-point weights.")
    rest = jax.tree.map(lambda leaf: None, form)
    if not all(jax.tree.leaves(trained)):
        rest = jax.jit(lambda: eqx.filter(task.init(jax.random.key(0)), trained, inverse=True))()
    return Model(
        lambda key: ravel_pytree(eqx.filter(task.init(key), trained))[0],
        lambda weights: ravel_pytree(weights)[0],
        unravel,
        lambda weights: eqx.combine(weights, rest),
        vector.size,
    )


def _is_weight(path: Any, leaf: Any) -> bool:
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return leaf.dtype.kind not in "iub" and not is_buffer(name)


def as_model(task: Task, weights: Any) -> Any:
    """The task's model with these weights, such as `history.weights[0]`, to predict with."""
    check(task)
    model = flat_model(task)
    weights = np.asarray(weights)
    if weights.shape != (model.size,):
        raise InputError(
            f"`weights` must be one vector of {model.size}, the model of task `{task.name}`, got "
            f"the shape {weights.shape}."
        )
    return model.of(jnp.asarray(weights))


def named_weights(task: Task, seeds: Sequence[int], weights: np.ndarray) -> dict[str, np.ndarray]:
    """The model of every seed, of whose weights, (seeds, size), as arrays by their names in it."""
    model = flat_model(task)
    return {
        f"seed{seed}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for seed, own in zip(seeds, weights, strict=True)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.of(own))
    }


def model_of(task: Task, seed: int, weights: Mapping[str, np.ndarray]) -> Any:
    """The model of a seed, from what `named_weights` gave."""
    form = jax.eval_shape(lambda: task.init(jax.random.key(0)))

    def read(path: Any, leaf: Any) -> jax.Array:
        return jnp.asarray(weights[f"seed{seed}{jax.tree_util.keystr(path)}"])

    try:
        return jax.tree_util.tree_map_with_path(read, form)
    except KeyError as error:
        raise InputError(f"The model of `{task.name}` has other arrays: {error}.") from None


def scores_of(clients: Any, metrics: Any) -> dict[str, jax.Array]:
    """The mean of every metric, and the accuracy of the worst tenth of clients; see `make_sums`."""
    found = {name: value / weight for name, (value, weight) in metrics.items()}
    missing = jnp.full_like(found["accuracy"], jnp.nan)
    return found | {"worst_tenth": missing if clients is None else worst_tenth(*clients)}


def worst_tenth(right: jax.Array, weight: jax.Array) -> jax.Array:
    """The mean accuracy of the tenth of the clients that fares worst, one client at the least."""
    count = right.shape[-1]
    return jnp.mean(jnp.sort(right / weight, axis=-1)[..., : -(-count // 10)], axis=-1)


def make_sums(task: Task, model: Model, batch: int) -> Callable[..., Any]:
    """`(weights, test, starts) -> (clients, metrics)`, for a test set as in `Tested`.

    Pairs of a sum of values and a sum of weights: of the accuracy of every client with test
    examples, None where nobody knows whose they are; and of every metric. They are over the batches
    of so many examples that begin at `starts`; beyond the end of the test set nothing counts.
    """

    def sums(weights: jax.Array, test: Tested, starts: jax.Array) -> Any:
        params, last = model.of(weights), test.total - 1

        def one(clients: Any, start: jax.Array) -> Any:
            rows = start + jnp.arange(batch)
            inside, rows = rows <= last, jnp.minimum(rows, last)
            part = jax.tree.map(lambda a: jnp.asarray(a)[rows], test.examples)
            unknown = (jnp.full(batch, jnp.nan),) * 2  # what a task need not tell
            found = {"accuracy": unknown, "loss": unknown, **task.metrics(params, part)}
            found = jax.tree.map(lambda each: each * inside, found)
            if clients is not None:
                whose = jnp.asarray(test.whose)[rows]
                clients = jax.tree.map(lambda sums, each: sums.at[whose].add(each.astype(
                    sums.dtype)), clients, found["accuracy"])  # fmt: skip
            return clients, jax.tree.map(jnp.sum, found)

        zero = None if test.clients is None else (jnp.zeros(test.clients.shape, jnp.float32),) * 2
        clients, found = jax.lax.scan(one, zero, starts)
        return clients, jax.tree.map(lambda each: jnp.sum(each, axis=0), found)

    return sums


def make_loss_sums(task: Task, model: Model, batch: int) -> Callable[..., Any]:
    """`(weights, candidates, clients, start, stride) -> (sums of losses, sums of their weights)`.

    One sum per candidate for power of choice (`draws.candidates`). All their rows are laid end to
    end and go through the model in batches, of which those at `start`, `start + stride` … are
    taken: memory does not grow with candidates, and nothing is padded but the last batch.
    """

    def loss_sums(
        weights: jax.Array, candidates: jax.Array, clients: Clients, start: jax.Array, stride: int
    ) -> Any:
        params = model.of(weights)
        rows = clients.rows_of(candidates)
        ends = jnp.cumsum(rows)

        def one(carry: Any) -> Any:
            start, sums = carry
            place = start + jnp.arange(batch, dtype=ends.dtype)
            inside, place = place < ends[-1], jnp.minimum(place, ends[-1] - 1)
            whose = jnp.searchsorted(ends, place, side="right")
            index = place - (ends - rows)[whose]
            part = jax.vmap(lambda k, i: clients.batch(k, i[None]))(candidates[whose], index)
            pair = task.metrics(params, jax.tree.map(lambda array: array[:, 0], part))["loss"]
            own = inside[None] & (whose[None] == jnp.arange(len(candidates))[:, None])
            found = [jnp.sum(jnp.where(own, each[None], 0), axis=1, dtype=weights.dtype)
                     for each in pair]  # fmt: skip
            return start + stride, jax.tree.map(jnp.add, sums, found)

        carry = start, [jnp.zeros(candidates.shape, weights.dtype)] * 2
        return jax.lax.while_loop(lambda carry: carry[0] < ends[-1], one, carry)[1]

    return loss_sums


def evaluate(task: Task, weights: Any) -> dict[str, float]:
    """Every metric of the task, your own ones too, for these weights on its test set.

    `worst_tenth` is the accuracy of the tenth of clients that fares worst; NaN where the test set
    does not say whose its examples are.
    """
    as_model(task, weights)  # checks both
    return make_scores(task)(jnp.asarray(weights))


@lru_cache(maxsize=4)
def make_scores(task: Task) -> Callable[[Any], dict[str, float]]:
    """`(weights) -> metrics`, every metric of the task on its test set."""
    _, test = with_test(task)
    batch = min(test.total, _BATCH)
    sums = jax.jit(make_sums(task, flat_model(task), batch))
    starts = np.arange(0, test.total, batch, dtype=np.int32)

    def scores(weights: Any) -> dict[str, float]:
        found = scores_of(*sums(weights, test, starts))
        return {name: float(score) for name, score in found.items()}

    return scores

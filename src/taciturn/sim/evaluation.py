"""What a model scores: on the test set, and on clients' own rows where these choose who trains."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.sim.model import Model, as_model, flat_model
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task, Tested, with_test

_BATCH = 512  # examples at a time


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
            unknown = jnp.full(batch, jnp.nan)  # what a task need not tell
            found = {"accuracy": (unknown, unknown), "loss": (unknown, unknown)}
            found |= task.metrics(params, part)
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

        nothing = jnp.zeros(candidates.shape, weights.dtype)
        carry = (start, [nothing, nothing])
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

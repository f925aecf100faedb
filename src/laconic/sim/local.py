"""Local training: one mini-batch step, the optimisers by name, and testing.

Shared by the compiled engine and the plain loop: what they differ in, and are checked against each
other for, is everything around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from laconic.core.server import Optimizer
from laconic.errors import InputError, UnknownName
from laconic.tasks.task import Batch, Task

# Without a learning rate, which is a number of the run and not part of the compiled program.
# Adam and Yogi as in Reddi et al., Adaptive Federated Optimization, 2021.
OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": lambda: optax.scale(-1.0),
    "momentum": lambda: optax.chain(optax.trace(0.9), optax.scale(-1.0)),
    "adam": lambda: optax.chain(optax.scale_by_adam(0.9, 0.99, 1e-3), optax.scale(-1.0)),
    "yogi": lambda: optax.chain(optax.scale_by_yogi(0.9, 0.99, 1e-3), optax.scale(-1.0)),
}


def optimizer_of(which: str | optax.GradientTransformation) -> optax.GradientTransformation:
    """The Optax transformation of a name, or the transformation that was given."""
    if not isinstance(which, str):
        return which
    if which not in OPTIMIZERS:
        raise UnknownName("optimizer", which, OPTIMIZERS)
    return OPTIMIZERS[which]()


def server_optimizer(which: str | optax.GradientTransformation, lr: Any) -> Optimizer:
    """The mean update as a pseudo-gradient for an Optax transformation, for `laconic.core`."""
    transformation = optimizer_of(which)

    def apply(state: Any, mean: Any, weights: Any, donate: bool) -> tuple[Any, Any]:
        updates, state = transformation.update(-jnp.asarray(mean), state, jnp.asarray(weights))
        moved = weights + jnp.asarray(lr * updates, weights.dtype)
        return (np.asarray(moved) if isinstance(weights, np.ndarray) else moved), state

    return Optimizer(lambda weights: transformation.init(jnp.asarray(weights)), apply)


class Model(NamedTuple):
    """A task's model on flat weights."""

    init: Callable[[jax.Array], jax.Array]
    unravel: Callable[[jax.Array], Any]
    size: int


def flat_model(task: Task) -> Model:
    """The task's model with its weights as one flat vector."""
    params = jax.eval_shape(task.init, jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
    vector, unravel = ravel_pytree(zeros)
    if not vector.size or not jnp.issubdtype(vector.dtype, jnp.floating):
        raise InputError(f"Task `{task.name}` has no floating-point weights.")
    return Model(lambda key: ravel_pytree(task.init(key))[0], unravel, vector.size)


def make_step(task: Task, model: Model, transformation: optax.GradientTransformation) -> Any:
    """One local step: `(weights, slots, batch, mask, key, lr, clip) -> (weights, slots)`.

    The gradient of the mean loss over the examples that `mask` keeps, scaled down to a global norm
    of `clip` where it is longer, goes through the client's optimiser.
    """

    def mean_loss(weights: jax.Array, batch: Batch, mask: jax.Array, key: jax.Array) -> jax.Array:
        losses = task.loss(model.unravel(weights), batch, key)
        mask = mask.astype(losses.dtype)
        return jnp.sum(losses * mask) / jnp.sum(mask)

    def step(weights, slots, batch, mask, key, lr, clip):  # type: ignore[no-untyped-def]
        gradient = jax.grad(mean_loss)(weights, batch, mask, key)
        length = jnp.sqrt(jnp.sum(gradient * gradient))
        gradient = gradient * jnp.where(length > clip, clip / length, 1.0).astype(gradient.dtype)
        updates, slots = transformation.update(gradient, slots, weights)
        return weights + jnp.asarray(lr * updates, weights.dtype), slots

    return step


def make_evaluate(task: Task, model: Model, total: int, size: int) -> Any:
    """`(weights, test, starts) -> {name: (sum of values, sum of weights)}`.

    Over the batches of `size` examples that begin at `starts`; what lies beyond the `total`
    examples of the test set counts nothing.
    """

    def evaluate(weights: jax.Array, test: Batch, starts: jax.Array) -> Any:
        params = model.unravel(weights)

        def one(start: jax.Array) -> dict[str, tuple[jax.Array, jax.Array]]:
            rows = start + jnp.arange(size)
            inside = rows < total
            batch = jax.tree.map(lambda a: jnp.asarray(a)[jnp.minimum(rows, total - 1)], test)
            return {
                name: (jnp.sum(value * inside), jnp.sum(weight * inside))
                for name, (value, weight) in task.metrics(params, batch).items()
            }

        return jax.tree.map(lambda sums: jnp.sum(sums, axis=0), jax.lax.map(one, starts))

    return evaluate

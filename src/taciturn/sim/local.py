"""Local training: one mini-batch step, and the optimisers by name.

Shared by the compiled engine and the plain loop: what they differ in, and are checked against each
other for, is everything around it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from taciturn.core.server import Optimizer, averaging
from taciturn.errors import InputError, UnknownName
from taciturn.settings import Settings
from taciturn.sim.model import Model
from taciturn.tasks.clients import Batch
from taciturn.tasks.task import Task

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
        if not all(callable(getattr(which, name, None)) for name in ("init", "update")):
            raise InputError(f"An optimizer is a name or an Optax transformation, got {which!r}.")
        return which
    if which not in OPTIMIZERS:
        raise UnknownName("optimizer", which, OPTIMIZERS)
    return OPTIMIZERS[which]()


def client_optimizer(settings: Settings) -> optax.GradientTransformation:
    """What clients train with: the optimiser that was asked for, behind FedProx's pull."""
    chosen = optimizer_of(settings.client_optimizer)
    return optax.chain(proximal(), chosen) if settings.prox else chosen


def proximal() -> optax.GradientTransformationExtraArgs:
    """The gradient of μ/2 ‖θ − θ_t‖², added after clipping, so that the pull is not cut short.

    θ_t is what a client was sent and begins with, μ the argument `prox` of `update`.

    References:
      Li et al. Federated Optimization in Heterogeneous Networks, 2018.
    """

    def update(gradient: Any, start: Any, params: Any = None, *, prox: Any, **_: Any) -> Any:
        pulled = jax.tree.map(lambda g, p, s: g + prox * (p - s), gradient, params, start)
        return pulled, start

    return optax.GradientTransformationExtraArgs(lambda params: params, update)


def server_optimizer(which: str | optax.GradientTransformation, lr: Any) -> Optimizer:
    """The mean update as a pseudo-gradient for an Optax transformation, for `taciturn.core`."""
    if which == "sgd":
        return averaging(lr)
    transformation = optimizer_of(which)

    def apply(state: Any, mean: Any, weights: Any) -> tuple[Any, Any]:
        updates, state = transformation.update(-jnp.asarray(mean), state, jnp.asarray(weights))
        moved = weights + jnp.asarray(lr * updates, weights.dtype)
        return (np.asarray(moved) if isinstance(weights, np.ndarray) else moved), state

    return Optimizer(
        lambda weights: transformation.init(jnp.asarray(weights)),
        apply,
        lambda condition, *states: jax.tree.map(partial(jnp.where, condition), *states),
    )


SCHEDULES: dict[str, Callable[[Any], Any]] = {  # by the share of the rounds that are over
    "constant": lambda over: 1.0,
    "cosine": lambda over: (1 + jnp.cos(jnp.pi * over)) / 2,
    "step": lambda over: jnp.where(over < 0.5, 1.0, jnp.where(over < 0.75, 0.1, 0.01)),
}


def learning_rate(run: Any, schedule: str, round: Any) -> Any:
    """The clients' rate in a round, counted from 0; `run` has `lr`, `lr_decay` and `rounds`."""
    return run.lr * jnp.asarray(run.lr_decay) ** round * SCHEDULES[schedule](round / run.rounds)


def make_step(
    task: Task,
    model: Model,
    transformation: optax.GradientTransformation,
    precision: str = "float32",
) -> Any:
    """One local step: `(params, slots, batch, mask, key, lr, clip, prox) -> (params, slots, loss)`.

    `params` are weights as `model.unravel` gives them. The gradient of the mean loss over the
    examples that `mask` keeps, scaled down to a global norm of `clip` where it is longer, goes
    through the client's optimiser. With precision `bfloat16` the loss is computed in it; weights
    and updates stay as they are.
    """
    transformation = optax.with_extra_args_support(transformation)

    def narrow(array: Any) -> Any:
        coarse = precision == "bfloat16" and jnp.issubdtype(array.dtype, jnp.floating)
        return array.astype(jnp.bfloat16) if coarse else array

    def mean_loss(params: Any, batch: Batch, mask: jax.Array, key: jax.Array) -> jax.Array:
        whole, batch = jax.tree.map(narrow, (model.whole(params), batch))
        losses = task.loss(whole, batch, key)
        losses = losses.astype(jnp.promote_types(losses.dtype, jnp.float32))
        mask = mask.astype(losses.dtype)
        return jnp.sum(losses * mask) / jnp.sum(mask)

    def step(params, slots, batch, mask, key, lr, clip, prox=0.0):  # type: ignore[no-untyped-def]
        loss, gradient = jax.value_and_grad(mean_loss)(params, batch, mask, key)
        length = optax.tree.norm(gradient)
        scale = jnp.where(length > clip, clip / length, 1.0)
        gradient = jax.tree.map(lambda g: g * scale.astype(g.dtype), gradient)
        updates, slots = transformation.update(gradient, slots, params, prox=prox)
        params = jax.tree.map(lambda p, u: p + jnp.asarray(lr * u, p.dtype), params, updates)
        return params, slots, loss

    return step

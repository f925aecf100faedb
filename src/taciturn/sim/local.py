"""Local training: one mini-batch step, the optimisers by name, and testing.

Shared by the compiled engine and the plain loop: what they differ in, and are checked against each
other for, is everything around it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from taciturn.core.server import Optimizer, averaging
from taciturn.errors import InputError, UnknownName
from taciturn.settings import Settings
from taciturn.tasks.clients import Batch
from taciturn.tasks.task import Task, Tested

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
    """The gradient of μ/2 ‖θ − θ_t‖², added: θ_t is what a client was sent and begins with, μ is
    the argument `prox` of its `update`.

    It is added after clipping, so that the pull is not cut short.

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

    def apply(state: Any, mean: Any, weights: Any, donate: bool) -> tuple[Any, Any]:
        updates, state = transformation.update(-jnp.asarray(mean), state, jnp.asarray(weights))
        moved = weights + jnp.asarray(lr * updates, weights.dtype)
        return (np.asarray(moved) if isinstance(weights, np.ndarray) else moved), state

    def choose(condition: Any, new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)

    return Optimizer(lambda weights: transformation.init(jnp.asarray(weights)), apply, choose)


SCHEDULES: dict[str, Callable[[Any], Any]] = {  # by the share of the rounds that are over
    "constant": lambda over: 1.0,
    "cosine": lambda over: (1 + jnp.cos(jnp.pi * over)) / 2,
    "step": lambda over: jnp.where(over < 0.5, 1.0, jnp.where(over < 0.75, 0.1, 0.01)),
}


def learning_rate(lr: Any, decay: Any, schedule: str, round: Any, rounds: Any) -> Any:
    """The clients' learning rate in a round, counted from 0, of so many."""
    return lr * jnp.asarray(decay) ** round * SCHEDULES[schedule](round / rounds)


class Model(NamedTuple):
    """A task's model, with its weights as a pytree for training and as a flat vector elsewhere."""

    init: Callable[[jax.Array], jax.Array]
    ravel: Callable[[Any], jax.Array]
    unravel: Callable[[jax.Array], Any]
    size: int


def flat_model(task: Task) -> Model:
    """The task's model and the way between its two forms."""
    ways = []

    def flatten(key: jax.Array) -> jax.Array:
        vector, unravel = ravel_pytree(task.init(key))
        ways.append(unravel)
        return vector

    vector = jax.eval_shape(flatten, jax.eval_shape(lambda: jax.random.key(0)))  # only traced
    unravel = ways[0]
    if not vector.size or not jnp.issubdtype(vector.dtype, jnp.floating):
        raise InputError(f"Task `{task.name}` has no floating-point weights.")

    def ravel(params: Any) -> jax.Array:
        return ravel_pytree(params)[0]

    return Model(lambda key: ravel(task.init(key)), ravel, unravel, vector.size)


def named_weights(task: Task, seeds: Sequence[int], weights: np.ndarray) -> dict[str, np.ndarray]:
    """The weights of every seed, (seeds, size), as the arrays of the model by their names in it."""
    model = flat_model(task)
    return {
        f"seed{seed}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for seed, own in zip(seeds, weights, strict=True)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.unravel(own))
    }


def model_of(task: Task, seed: int, weights: Mapping[str, np.ndarray]) -> Any:
    """The model of a seed, from what `named_weights` gave."""
    form = jax.eval_shape(lambda: task.init(jax.random.key(0)))
    paths, structure = jax.tree_util.tree_flatten_with_path(form)
    try:
        leaves = [weights[f"seed{seed}{jax.tree_util.keystr(path)}"] for path, _ in paths]
    except KeyError as error:
        raise InputError(f"The model of `{task.name}` has other arrays: {error}.") from None
    return jax.tree_util.tree_unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])


def make_step(
    task: Task, transformation: optax.GradientTransformation, precision: str = "float32"
) -> Any:
    """One local step: `(params, slots, batch, mask, key, lr, clip, prox) -> (params, slots, loss)`.

    The gradient of the mean loss over the examples that `mask` keeps, scaled down to a global norm
    of `clip` where it is longer, goes through the client's optimiser. With precision `bfloat16` the
    loss is computed in it; weights and updates stay as they are.
    """
    transformation = optax.with_extra_args_support(transformation)

    def narrow(tree: Any) -> Any:
        if precision != "bfloat16":
            return tree
        return jax.tree.map(
            lambda a: a.astype(jnp.bfloat16) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree
        )

    def mean_loss(params: Any, batch: Batch, mask: jax.Array, key: jax.Array) -> jax.Array:
        losses = task.loss(narrow(params), narrow(batch), key)
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


class Sums(NamedTuple):
    """What a test adds up: pairs of a sum of values and a sum of weights."""

    metrics: dict[str, tuple[jax.Array, jax.Array]]
    # The accuracy's pair of every client with test examples; None where nobody knows whose they are
    clients: tuple[jax.Array, jax.Array] | None

    def scores(self) -> dict[str, jax.Array]:
        """The mean of every metric, and the accuracy of the worst tenth of clients."""
        found = {name: value / weight for name, (value, weight) in self.metrics.items()}
        missing = jnp.full_like(found["accuracy"], jnp.nan)
        worst = missing if self.clients is None else worst_tenth(*self.clients)
        return found | {"worst_tenth": worst}


def worst_tenth(right: jax.Array, weight: jax.Array) -> jax.Array:
    """The mean accuracy of the tenth of the clients that fares worst, one client at the least."""
    count = right.shape[-1]
    return jnp.mean(jnp.sort(right / weight, axis=-1)[..., : -(-count // 10)], axis=-1)


def make_evaluate(task: Task, model: Model, batch: int) -> Any:
    """`(weights, test, starts) -> Sums`, for a test set as in `Tested`.

    Over the batches of so many examples that begin at `starts`; what lies beyond the end of the
    test set counts nothing.
    """

    def evaluate(weights: jax.Array, test: Tested, starts: jax.Array) -> Sums:
        params, last = model.unravel(weights), test.total - 1

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

        none = None if test.clients is None else jnp.zeros(test.clients.shape, jnp.float32)
        clients, sums = jax.lax.scan(one, none if none is None else (none, none), starts)
        return Sums(jax.tree.map(lambda each: jnp.sum(each, axis=0), sums), clients)

    return evaluate

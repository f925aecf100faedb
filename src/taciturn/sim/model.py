"""A task's model: its weights as a pytree for training, and as a flat vector elsewhere.

Whole numbers and running statistics (`core/buffers.py`) in a model are no weights: a codec's noise
or a step of an optimiser would make a variance negative. They stay as `init` makes them, and are
neither sent nor part of any norm.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from taciturn.core.buffers import is_buffer
from taciturn.errors import InputError
from taciturn.tasks.check import check
from taciturn.tasks.task import Task


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

"""What training leaves: weights, as the task's model, and what it scores."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.errors import InputError
from taciturn.sim.local import flat_model, make_evaluate
from taciturn.tasks.check import check
from taciturn.tasks.task import Task, with_test

_BATCH = 512


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
    return model.unravel(jnp.asarray(weights))


def evaluate(task: Task, weights: Any) -> dict[str, float]:
    """Every metric of the task, your own ones too, for these weights on its test set.

    `worst_tenth` is the accuracy of the tenth of clients that fares worst; NaN where the test set
    does not say whose its examples are.
    """
    as_model(task, weights)
    sums, test, starts = _evaluator(task)
    found = sums(jnp.asarray(weights), test, starts)
    return {name: float(score) for name, score in found.scores().items()}


@lru_cache(maxsize=4)
def _evaluator(task: Task) -> tuple[Any, Any, Any]:
    _, test = with_test(task)
    batch = min(test.total, _BATCH)
    sums = jax.jit(make_evaluate(task, flat_model(task), batch))
    return sums, test, np.arange(0, test.total, batch, dtype=np.int32)

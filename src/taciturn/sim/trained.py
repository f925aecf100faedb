"""What training leaves: weights, as the task's model, and what it scores."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.errors import InputError
from taciturn.sim.history import TESTED, History
from taciturn.sim.local import flat_model, make_evaluate
from taciturn.tasks.check import check, metric_names
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
    """Every metric of the task, your own ones too, for these weights on its test set."""
    as_model(task, weights)
    sums, test, starts = _evaluator(task)
    found = sums(jnp.asarray(weights), test, starts)
    return {name: float(value / weight) for name, (value, weight) in found.items()}


def with_metrics(task: Task, histories: Mapping[str, History]) -> dict[str, History]:
    """Histories with the task's own metrics, those beside accuracy and loss, of their weights."""
    own = [name for name in metric_names(task) if name not in TESTED]
    if not own:
        return dict(histories)
    found = {}
    for arm, history in histories.items():
        scores = [evaluate(task, weights) for weights in history.weights]
        values = {name: np.array([score[name] for score in scores]) for name in own}
        found[arm] = replace(history, metrics=values)
    return found


@lru_cache(maxsize=4)
def _evaluator(task: Task) -> tuple[Any, Any, Any]:
    _, test = with_test(task)
    total = len(jax.tree.leaves(test)[0])
    batch = min(total, _BATCH)
    sums = jax.jit(make_evaluate(task, flat_model(task), total, batch))
    return sums, test, np.arange(0, total, batch, dtype=np.int32)

"""Tasks are checked once: what would train to wrong numbers is refused before it trains."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from taciturn.errors import InputError
from taciturn.tasks import Generated, Stored, Task, classification
from taciturn.tasks.check import check

X = np.zeros((6, 2), np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])


def task(x: Any = X, y: Any = Y, test: Any = None, **changes: Any) -> Task:
    loss, metrics = classification(lambda p, x, key: x @ p)
    good = {"clients": Stored.of({"x": x, "y": y}, [2, 4]), "init": lambda key: jnp.zeros((2, 3)),
            "loss": loss, "metrics": metrics, "test": test}  # fmt: skip
    return Task("mine", **good | changes)


def mean_loss(*arguments: Any) -> Any:
    return jnp.mean(task().loss(*arguments))


def test_a_task_in_order_is_traced_once() -> None:
    calls: list[Any] = []
    good = task(loss=lambda *batch: calls.append(batch) or task().loss(*batch))
    check(good)
    check(good)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (task(loss=mean_loss), r"one number per example, not their mean: .* got \(\)"),
        (task(x=X.astype(np.float64) + 1e300), r"\['x'\] must fit into float32, got 1e\+300"),
        (task(test={"x": [1.0], "y": Y}), "must be an array, one entry per example, got 1.0"),
        (task(test={"x": X[:, :1], "y": Y}), "`metrics` of task `mine` fails: TypeError"),
    ],
)
def test_a_task_that_is_not_is_refused(made: Task, message: str) -> None:
    """`tests/bad_input` has more that is wrong."""
    for plain in (False, True):
        with pytest.raises(InputError, match=message):
            taciturn.simulate(made, "full", rounds=1, cohort=1, plain=plain)


def test_drawn_tasks_are_checked_too() -> None:
    drawn = Generated(3, 5, lambda client, data: 5, lambda c, i, data: {"x": jnp.zeros(2), "y": i})
    check(task(clients=drawn))
    with pytest.raises(InputError, match="not their mean"):
        check(task(clients=drawn, loss=mean_loss))

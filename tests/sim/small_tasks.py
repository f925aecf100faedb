"""Small tasks for the simulator's tests, and what it means that two runs are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from taciturn.core import policy, standins
from taciturn.models import CharLSTM
from taciturn.models.cnn import Conv
from taciturn.models.dense import Dense
from taciturn.models.dropout import dropout
from taciturn.sim import engine
from taciturn.tasks.task import Stored, Task, classification

ARRAYS = ("spoke", "rejected", "threshold", "norm_mean", "norm_std", "accuracy", "loss",
          "worst_tenth", "weights")  # fmt: skip
# Without those that `experiments.paper` registers: whether a test has imported it depends on what
# else is run, and `author_sums` amplifies rounding until two right programs differ.
STAND_INS = [
    name for name, make in policy.STAND_INS.items() if make.__module__ == standins.__name__
]
SEVERAL = {name: name for name in ("adaptive,k=0+ou", "full", "random:0.5+last")}


# Tasks that are small, because the plain loop compiles for every size of a last batch, and uneven.


POISON = 1e30  # NaN itself is refused where a task is checked


def poisoned_inputs(x: jax.Array) -> jax.Array:
    return jnp.where(x < POISON, x, jnp.nan)


def tiny(poisoned: int | None = None) -> Task:
    """A linear model of three classes in the plane; a poisoned client's become NaN in it.

    Its weights decay: else what classes learn adds up to 0, which a rotation makes a weight of its
    own, and rounding would decide which sign a codec writes for it.
    """
    rng = np.random.default_rng(0)
    sizes = [3, 12, 5, 20, 7]
    n = sum(sizes)
    y = rng.integers(0, 3, n + 30).astype(np.int32)
    x = (rng.normal(0, 0.5, (len(y), 2)) + np.array([[0, 1], [1, -1], [-1, -1]])[y]).astype("f4")
    if poisoned is not None:
        x[sum(sizes[:poisoned]) :][: sizes[poisoned]] = POISON
    loss, metrics = classification(lambda p, x, key: poisoned_inputs(x) @ p["w"] + p["b"])
    return Task(
        "tiny",
        Stored.of({"x": x[:n], "y": y[:n]}, sizes),
        init=lambda key: {"w": jax.random.normal(key, (2, 3)) * 0.1, "b": jnp.zeros(3)},
        loss=lambda p, batch, key: loss(p, batch, key) + 0.02 * jnp.sum(p["w"] ** 2),
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]},
        test_clients=np.arange(30) % 11,
        batch=5,
        lr=0.5,
    )


def few() -> Task:
    """Six clients and a linear model of 105 weights."""
    rng = np.random.default_rng(0)
    sizes = [2, 7, 12, 5, 10, 17]
    n = sum(sizes)
    y = rng.integers(0, 5, n + 20).astype(np.int32)
    x = (rng.normal(0, 1, (5, 20))[y] + rng.normal(0, 1, (len(y), 20))).astype(np.float32)
    loss, metrics = classification(lambda p, x, key: x @ p["w"] + p["b"])
    return Task(
        "few",
        Stored.of({"x": x[:n], "y": y[:n]}, sizes),
        init=lambda key: {"w": jax.random.normal(key, (20, 5)) * 0.1, "b": jnp.zeros(5)},
        loss=loss,
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]},
        test_clients=np.arange(20) % 11,
        batch=5,
        lr=0.1,
    )


class TinyCNN(eqx.Module):
    """One layer of each kind that the package's convolutional models are made of."""

    conv: Conv
    dense: Dense

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.conv = Conv(first, 3, 1, 3)
        self.dense = Dense(second, 27, 4)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        x = self.conv.pooled(x[..., None])
        x = dropout(
            x.reshape(x.shape[0], -1), 0.25, None if key is None else jax.random.key_data(key)
        )
        return self.dense(x)


def cnn() -> Task:
    """Four noisy pictures of 8 × 8; a last batch has 2 of 5, or all."""
    rng = np.random.default_rng(0)
    sizes = [2, 7, 12, 5, 10, 17]
    n = sum(sizes)
    y = rng.integers(0, 4, n + 20).astype(np.int32)
    x = (rng.normal(0, 1, (4, 8, 8))[y] + rng.normal(0, 1, (len(y), 8, 8))).astype(np.float32)
    loss, metrics = classification(lambda model, x, key: model(x, key))
    return Task(
        "cnn",
        Stored.of({"x": x[:n], "y": y[:n]}, sizes),
        init=TinyCNN,
        loss=loss,
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]},
        batch=5,
        lr=0.3,
    )


def lstm() -> Task:
    """Digits that go on by one or two; 12 positions, all of them count."""
    rng = np.random.default_rng(1)
    sizes = [2, 6, 9, 3, 11]
    n = sum(sizes)
    tokens = (np.cumsum(rng.integers(1, 3, (n + 8, 13)), axis=1) % 10).astype(np.int32)
    loss, metrics = classification(lambda model, x, key: model(x))
    return Task(
        "lstm",
        Stored.of({"x": tokens[:n, :-1], "y": tokens[:n, 1:]}, sizes),
        init=lambda key: CharLSTM(key, 10, 4, 8),
        loss=lambda params, batch, key: loss(params, batch, key).mean(1),
        metrics=lambda params, batch: {
            name: (value.mean(1), weight.mean(1))
            for name, (value, weight) in metrics(params, batch).items()
        },
        test={"x": tokens[n:, :-1], "y": tokens[n:, 1:]},
        batch=4,
        lr=1.0,
    )


def distance(a: Any, b: Any) -> float:
    """‖a − b‖ / ‖b‖, the largest over seeds."""
    gaps, sizes = np.linalg.norm(a - b, axis=-1), np.linalg.norm(b, axis=-1)
    return float(np.max(np.where(gaps == 0, 0, gaps / np.where(sizes == 0, 1, sizes))))


def assert_same(ours: taciturn.History, theirs: taciturn.History, tolerance: float = 1e-5) -> None:
    assert ours.weights.shape == theirs.weights.shape
    assert np.isfinite(ours.weights).all()
    assert distance(ours.weights, theirs.weights) < tolerance
    for name in ("spoke", "rejected", "missing", "bytes_up", "overhead_up"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    for name in ("examples", "asked", "spoke", "silent"):
        np.testing.assert_array_equal(
            getattr(ours.participation, name),
            getattr(theirs.participation, name),
            f"participation.{name}",
        )
    for name in ("threshold", "norm_mean", "norm_std", "loss", "accuracy", "worst_tenth"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=100 * tolerance, atol=1e-6,
            err_msg=name,
        )  # fmt: skip


def assert_agree(task: Task, arms: dict[str, str], tolerance: float = 1e-5, **settings: Any) -> Any:
    """Runs engine and loop, and returns what the engine found."""
    settings = {"rounds": 5, "evaluate_every": 2} | settings
    ours = taciturn.compare(task, arms, **settings)
    settings.pop("lanes", None)
    theirs = taciturn.compare(task, arms, plain=True, **settings)
    assert list(ours) == list(theirs) == list(arms)
    for name in arms:
        assert_same(ours[name], theirs[name], tolerance)
    return ours


def program_of(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> engine.Program:
    """The program that a run goes through."""
    used: list[engine.Program] = []
    original = engine.Program.run

    def spy(self: engine.Program, *args: Any) -> Any:
        used.append(self)
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Program, "run", spy)
        run()
    (program,) = used
    return program

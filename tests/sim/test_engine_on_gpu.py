"""The compiled engine on a GPU: the plain loop's result, the same twice, in every precision.

Elsewhere these are skipped, see `tests/conftest.py`; `python tests/gpu.py` runs and records them.
"""

from __future__ import annotations

import logging
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from small_tasks import ARRAYS, SEVERAL, assert_agree, assert_same, cnn, distance, program_of

import taciturn
from taciturn.models import EmnistCNN, convolution
from taciturn.models.cnn import Conv
from taciturn.models.dense import Dense
from taciturn.models.dropout import dropout
from taciturn.sim import devices
from taciturn.tasks.task import Stored, Task, classification

pytestmark = pytest.mark.gpu


def rehearsed() -> bool:
    return jax.default_backend() == "cpu"


class KernelCNN(eqx.Module):
    """The EMNIST model in small: its second convolution has sizes that the GPU's kernels take."""

    conv1: Conv
    conv2: Conv
    dense1: Dense
    dense2: Dense

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.conv1 = Conv(keys[0], 3, 1, 16)
        self.conv2 = Conv(keys[1], 3, 16, 32)
        self.dense1 = Dense(keys[2], 4 * 4 * 32, 64)
        self.dense2 = Dense(keys[3], 64, 4)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        x = self.conv2.pooled(self.conv1(x[..., None]))
        x = dropout(
            x.reshape(x.shape[0], -1), 0.25, None if key is None else jax.random.key_data(key)
        )
        return self.dense2(jax.nn.relu(self.dense1(x)))


def pictures(model: Any, side: int) -> Task:
    """Four noisy pictures, clients of different sizes."""
    rng = np.random.default_rng(0)
    sizes = [3, 9, 14, 5, 7, 12]
    n = sum(sizes)
    y = rng.integers(0, 4, n + 40).astype(np.int32)
    x = rng.normal(0, 1, (4, side, side))[y] + rng.normal(0, 0.5, (len(y), side, side))
    loss, metrics = classification(lambda model, x, key: model(x, key))
    return Task(
        "pictures",
        Stored.of({"x": x[:n].astype(np.float32), "y": y[:n]}, sizes),
        init=model,
        loss=loss,
        metrics=metrics,
        test={"x": x[n:].astype(np.float32), "y": y[n:]},
        batch=5,
    )


@pytest.mark.parametrize("lanes", [None, 3], ids=["lanes of its own choice", "three lanes"])
def test_the_engine_is_the_plain_loop(lanes: int | None) -> None:
    arms = (
        "full", "adaptive,k=0+ou", "adaptive,k=0+ou,cap=true", "fixed:0.4+zero",
        "random:0.5+last", "random:0.5+ignore",
    )  # fmt: skip
    # The loop takes what precision JAX has by itself, which on a GPU is not float32's.
    with jax.default_matmul_precision("highest"):
        found = assert_agree(
            cnn(), {arm: arm for arm in arms}, 1e-4, cohort=4, seeds=(1, 2), lanes=lanes
        )
    for arm in arms[1:]:
        assert 0 < found[arm].spoke.sum() < found[arm].spoke.size * 4, arm


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 2, "client_optimizer": "momentum", "lr": 0.1},
        {"client_optimizer": "adam", "lr": 0.01, "server_optimizer": "adam", "server_lr": 0.1},
    ],
    ids=["epochs and momentum", "adam on both sides"],
)
def test_optimizers_and_epochs_are_those_of_the_plain_loop(settings: dict[str, Any]) -> None:
    with jax.default_matmul_precision("highest"):
        assert_agree(cnn(), SEVERAL, 1e-4, rounds=3, cohort=4, **settings)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_same_twice_bit_for_bit(precision: str) -> None:
    task = pictures(KernelCNN, 12)
    first, second = (
        taciturn.compare(task, SEVERAL, rounds=4, cohort=5, seeds=3, precision=precision)
        for _ in range(2)
    )
    for name in SEVERAL:
        for array in ARRAYS:
            np.testing.assert_array_equal(
                getattr(first[name], array), getattr(second[name], array), f"{name} {array}"
            )


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_every_precision_learns(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    original = convolution._gpu_convolution
    monkeypatch.setattr(convolution, "_gpu_convolution", lambda: used.append(1) or original())
    arms = {name: name for name in ("full", "adaptive+ou")}
    found = taciturn.compare(
        pictures(KernelCNN, 12), arms, rounds=25, cohort=6, seeds=2, precision=precision
    )
    for history in found.values():
        assert history.weights.dtype == np.float32
        assert history.rejected.sum() == 0
        assert (history.accuracy[:, -1] > 0.9).all()
    assert bool(used) == (precision == "bfloat16" and not rehearsed())


def test_coarse_products_are_near_the_exact_ones_and_not_the_same() -> None:
    """One round of the paper's model: what it moved by, and not where it stands."""
    if rehearsed():
        pytest.skip("on a CPU, tf32 is float32")
    task = pictures(EmnistCNN, 28)

    def end(precision: str, lr: float = 0.1) -> np.ndarray:
        return taciturn.simulate(
            task, "full", rounds=1, cohort=6, precision=precision, lr=lr
        ).weights

    start = end("float32", 0.0)
    exact = end("float32") - start
    for precision in ("tf32", "bfloat16"):
        gap = distance(end(precision) - start, exact)
        assert 1e-5 < gap < 0.1, (precision, gap)


def test_lanes_that_do_not_fit_into_memory_are_fewer_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[Any] = []

    def run() -> None:
        task = pictures(KernelCNN, 12)
        results.append(taciturn.compare(task, SEVERAL, rounds=2, cohort=6, lanes=16, devices=1))

    caplog.set_level(logging.WARNING, "taciturn")
    roomy = program_of(run, monkeypatch)
    assert roomy.lanes == 16
    assert not caplog.messages
    needed = devices.bytes_needed(roomy._chunk)
    monkeypatch.setattr(devices, "memory", lambda: needed)
    tight = program_of(run, monkeypatch)
    assert tight.lanes < 16
    assert devices.bytes_needed(tight._chunk) <= 0.9 * needed
    assert f"clients train in {tight.lanes} lanes at a time" in caplog.messages[-1]
    for name in SEVERAL:
        assert_same(results[-1][name], results[0][name], 1e-4)


def test_memory_is_what_the_gpu_says() -> None:
    if rehearsed():
        pytest.skip("a CPU says nothing")
    assert devices.memory() == jax.local_devices()[0].memory_stats()["bytes_limit"]
    assert devices.memory() > 1 << 30

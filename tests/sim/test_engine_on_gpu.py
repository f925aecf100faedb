"""The compiled engine on a GPU: the plain loop's result, the same twice, in every precision.

Elsewhere these are skipped, see `tests/conftest.py`; `python tests/gpu.py` runs and records them.
"""

from functools import partial

import jax
import numpy as np
import pytest
from small_tasks import SEVERAL, SmallCNN, assert_agree, assert_identical, cnn, distance

import taciturn
from taciturn.models import EmnistCNN, convolution
from taciturn.sim import devices

pytestmark = pytest.mark.gpu


def rehearsed():
    return jax.default_backend() == "cpu"


def kernels():
    """The EMNIST model in small: its second convolution has sizes that the GPU's kernels take."""
    return cnn(partial(SmallCNN, side=12, channels=(16, 32)), 12, noise=0.5, lr=0.1)


@pytest.mark.parametrize("lanes", [None, 3], ids=["lanes of its own choice", "three lanes"])
def test_the_engine_is_the_plain_loop(lanes):
    arms = ("full", "adaptive,k=0+ou", "adaptive,k=0+ou,cap=true", "fixed:0.4+zero",
            "random:0.5+last", "random:0.5+ignore")  # fmt: skip
    # The loop takes what precision JAX has by itself, which on a GPU is not float32's.
    with jax.default_matmul_precision("highest"):
        found = assert_agree(cnn(), arms, 1e-4, cohort=4, seeds=(1, 2), lanes=lanes)
    for arm in arms[1:]:
        assert 0 < found[arm].spoke.sum() < found[arm].spoke.size * 4, arm


def test_optimizers_and_epochs_are_those_of_the_plain_loop():
    with jax.default_matmul_precision("highest"):
        assert_agree(cnn(), SEVERAL, 1e-4, rounds=3, cohort=4, epochs=2, client_optimizer="adam",
                     lr=0.01, server_optimizer="adam", server_lr=0.1)  # fmt: skip


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_every_precision_learns_and_is_the_same_twice_bit_for_bit(precision, monkeypatch):
    used = []
    original = convolution._gpu_convolution
    monkeypatch.setattr(convolution, "_gpu_convolution", lambda: used.append(1) or original())
    task, arms = kernels(), {name: name for name in ("full", "adaptive+ou", "random:0.5+last")}
    first, second = (
        taciturn.compare(task, arms, rounds=25, cohort=6, seeds=2, precision=precision)
        for _ in range(2)
    )
    assert_identical(first, second)
    for name, history in first.items():
        assert history.weights.dtype == np.float32
        assert history.rejected.sum() == 0
        if name != "random:0.5+last":
            assert (history.accuracy[:, -1] > 0.9).all()
    assert bool(used) == (precision == "bfloat16" and not rehearsed())


def test_coarse_products_are_near_the_exact_ones_and_not_the_same():
    """One round of the paper's model: what it moved by, and not where it stands."""
    if rehearsed():
        pytest.skip("on a CPU, tf32 is float32")
    task = cnn(EmnistCNN, 28, noise=0.5, lr=0.1)

    def end(precision, lr=0.1):
        settings = {"rounds": 1, "cohort": 6, "precision": precision, "lr": lr}
        return taciturn.simulate(task, "full", **settings).weights

    start = end("float32", 0.0)
    exact = end("float32") - start
    for precision in ("tf32", "bfloat16"):
        gap = distance(end(precision) - start, exact)
        assert 1e-5 < gap < 0.1, (precision, gap)


def test_memory_is_what_the_gpu_says():
    if rehearsed():
        pytest.skip("a CPU says nothing")
    assert devices.memory() == jax.local_devices()[0].memory_stats()["bytes_limit"]
    assert devices.memory() > 1 << 30

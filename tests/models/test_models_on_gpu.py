"""On a GPU: compiled kernels, overlapping LSTMs and hashed bits against what they stand for.

Elsewhere these are skipped, see `tests/conftest.py`; `python tests/gpu.py` runs and records them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_models import assert_near, drawn, plain_two_layers, with_gradients

from taciturn.core import hashing
from taciturn.models import convolution, lstm
from taciturn.models.convolution import patches
from taciturn.models.lstm import LSTM
from taciturn.models.networks import dropout
from taciturn.sim import draws

pytestmark = pytest.mark.gpu

KEY = np.array([0xDEADBEEF, 0x12345678], np.uint32)


@pytest.fixture(autouse=True)
def exact_products():
    """By itself a GPU rounds what goes into products of float32 to 10 bits."""
    with jax.default_matmul_precision("highest"):
        yield


def rehearsed():
    return jax.default_backend() == "cpu"


def narrow(x):
    return x.astype(jnp.bfloat16)


# Lanes, then a batch of images, which can or cannot be cut into groups.
SHAPES = [
    pytest.param((4, 20, 26, 26, 32), 3, 64, id="EmnistCNN"),
    pytest.param((1, 7, 26, 26, 32), 3, 64, id="EmnistCNN, 7 images"),
    pytest.param((2, 6, 15, 15, 16), 3, 16, id="a block and a part"),
    pytest.param((2, 5, 9, 11, 64), 3, 128, id="many outputs, less than a block"),
    pytest.param((2, 3, 11, 9, 128), 5, 16, id="many inputs, five by five"),
]


@pytest.mark.parametrize(("shape", "side", "outputs"), SHAPES)
def test_compiled_kernels_are_the_product_over_patches(shape, side, outputs):
    rows = side * side * shape[-1]
    x, kernel = narrow(drawn(0, *shape)), narrow(drawn(1, shape[0], rows, outputs) / rows**0.5)
    kernels = with_gradients(convolution._gpu_convolution(), side, rehearsed())
    ours = jax.jit(jax.vmap(kernels))(x, kernel)
    exact = jax.jit(jax.vmap(with_gradients(lambda x, k: patches(x, side) @ k)))(
        x.astype(jnp.float32), kernel.astype(jnp.float32)
    )
    assert {a.dtype for a in ours} == {jnp.dtype(jnp.bfloat16)}
    # Sums are float32, so that all there is between them is one rounding to 8 bits.
    assert_near(ours, exact, 1e-4, 2**-8)


def test_a_convolution_in_bfloat16_goes_through_the_kernels():
    """Where this JAX could not make them, a run would be slower and nothing else would tell."""
    if rehearsed():
        pytest.skip("a CPU has no use for them")
    x, kernel = narrow(drawn(0, 2, 26, 26, 32)), narrow(drawn(1, 288, 64))
    trace = jax.make_jaxpr(lambda x: convolution.convolve(x, kernel, 3))
    assert "pallas_call" in str(trace(x))
    assert "pallas_call" not in str(trace(x.astype(jnp.float32)))


@pytest.mark.parametrize(("times", "units"), [(48, 8), (80, 256)])  # three blocks; the paper's
def test_overlapping_lstms_are_the_plain_ones(times, units, monkeypatch):
    """Three lanes with weights of their own, values and gradients."""
    if rehearsed():
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def run(function):
        def one(key, x):
            first, second = jax.random.split(key)
            layers = LSTM(first, 8, units), LSTM(second, units, units)
            return with_gradients(function)(*layers, x)

        keys = jax.random.split(jax.random.key(0), 3)
        return jax.jit(jax.vmap(one))(keys, drawn(1, 3, times, 4, 8))

    calls = []
    original = lstm.recur
    monkeypatch.setattr(lstm, "recur", lambda *a: calls.append(a[0].shape[0]) or original(*a))
    assert_near(run(lstm.two_layers), run(plain_two_layers), 1e-4)
    assert set(calls) == {lstm.BLOCK}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_dropout_zeroes_what_it_does_in_numpy(dtype):
    """Every lane has a mask of its own; no lane's depends on how many there are."""
    lanes, x = np.arange(2**32 - 5, 2**32, dtype=np.uint32), jnp.full((5, 20, 9216), 3, dtype)

    def drop(x, lane):
        return dropout(x, 0.25, hashing.fold(jnp.asarray(KEY), lane))

    out = jax.jit(jax.vmap(drop))(x, lanes)
    kept = np.stack([hashing.bits(hashing.fold(KEY, n), (20, 9216)) >= 2**30 for n in lanes])
    np.testing.assert_array_equal(out.astype(jnp.float32), np.where(kept, 4, 0))


def test_cohorts_shuffles_and_keys_are_those_of_the_cpu():
    """So that a seed means the same clients and batches wherever it runs."""

    def everything(seed):
        keys = draws.round_keys(draws.run_keys(seed), 3)
        shuffle = draws.shuffled(keys, jnp.int32(4), jnp.int32(1), jnp.int32(999), jnp.arange(999))
        return (
            draws.cohort(keys, 1_000_000_007, 1000),
            draws.uniforms(keys, 1000),
            shuffle,
            jax.random.key_data(draws.dropout_key(keys, jnp.int32(4), jnp.int32(17))),
        )

    here = jax.jit(jax.vmap(everything))(jnp.arange(3))
    with jax.default_device(jax.devices("cpu")[0]):
        there = jax.jit(jax.vmap(everything))(jnp.arange(3))
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a, b)
    if not rehearsed():
        assert here[0].devices() != there[0].devices()

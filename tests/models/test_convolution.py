"""Convolutions and pooling: values and gradients against JAX's own and against plain NumPy."""

import sys
import types

import jax
import jax.numpy as jnp
import pytest
from plain_models import assert_near, drawn, with_gradients

from taciturn.models import convolution, winograd
from taciturn.models.convolution import convolve, max_pool
from taciturn.models.winograd import convolve_and_pool

TRITON = "jax.experimental.pallas.triton"


def laxs(x, kernel, side):
    """The same by `lax.conv_general_dilated`."""
    square = kernel.reshape(side, side, x.shape[-1], kernel.shape[1])
    return jax.lax.conv_general_dilated(
        x, square, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
    )


@pytest.mark.parametrize(("shape", "side", "outputs"), [((3, 8, 6, 2), 3, 5), ((1, 5, 5, 1), 5, 4)])
def test_a_convolution_is_jaxs(shape, side, outputs):
    x, kernel = drawn(0, *shape), drawn(1, side * side * shape[-1], outputs)
    ours = jax.jit(with_gradients(convolve, side))(x, kernel)
    theirs = jax.jit(with_gradients(laxs, side))(x, kernel)
    assert ours[0].shape == (shape[0], shape[1] - side + 1, shape[2] - side + 1, outputs)
    assert_near(ours, theirs)


@pytest.mark.parametrize("function", [convolve, convolve_and_pool])
def test_every_client_has_a_kernel_of_its_own(function):
    x, kernel = drawn(0, 3, 2, 6, 8, 2), drawn(1, 3, 18, 4)
    run = with_gradients(function, 3)
    together, alone = jax.jit(jax.vmap(run))(x, kernel), jax.jit(run)
    for i in range(3):
        assert_near([part[i] for part in together], alone(x[i], kernel[i]))


def test_the_kernels_are_the_product_over_patches():
    """Interpreted; the tests for a GPU have more shapes."""
    kernels = convolution._gpu_convolution()
    if kernels is None:
        pytest.skip(f"JAX {jax.__version__} cannot make the kernels")
    x, kernel = drawn(0, 2, 12, 12, 16), drawn(1, 9 * 16, 32) / 12
    ours = jax.jit(with_gradients(kernels, 3, True))(x, kernel)
    assert_near(ours, jax.jit(with_gradients(laxs, 3))(x, kernel))


def test_the_kernels_are_for_bfloat16_on_a_gpu(monkeypatch):
    fit, kernel = convolution._kernels_fit, jnp.zeros((9 * 32, 64))
    half = jnp.zeros((1, 4, 4, 32), jnp.bfloat16)
    assert not fit(half, kernel)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fit(half, kernel)
    for x, other in ((half.astype(float), kernel), (half[..., :1], kernel), (half, kernel[:, :9])):
        assert not fit(x, other)


def test_a_jax_without_the_kernels_parts_does_without_them(monkeypatch, caplog):
    """As one before 0.10.2 on a GPU, whose Triton has no `dot`."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setitem(sys.modules, TRITON, types.ModuleType(TRITON))
    monkeypatch.delitem(sys.modules, "taciturn.models.gpu_convolution", raising=False)
    convolution._gpu_convolution.cache_clear()
    try:
        x, kernel = drawn(0, 2, 5, 5, 16), drawn(1, 9 * 16, 32) / 12
        ours = with_gradients(convolve, 3)(x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16))
    finally:
        convolution._gpu_convolution.cache_clear()
    assert "without kernels of their own" in caplog.text
    assert_near(ours, with_gradients(laxs, 3)(x, kernel), 5e-2)


def test_pooling_and_its_gradient():
    def windows(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = drawn(0, 2, 5, 7, 3)
    assert_near(with_gradients(max_pool)(x), with_gradients(windows)(x), 0.0)


def test_of_equals_the_first_gets_the_gradient():
    gradient = jax.grad(lambda x: max_pool(x).sum())
    for first in range(4):
        x = jnp.zeros(4).at[first:].set(1.0).reshape(1, 2, 2, 1)
        assert gradient(x).ravel().tolist() == [float(i == first) for i in range(4)]


@pytest.mark.parametrize(
    ("shape", "side"), [((6, 8, 6, 2), 3), ((2, 9, 6, 2), 3), ((2, 8, 8, 2), 5)],
    ids=["fewer products", "odd height", "five by five"],
)  # fmt: skip
def test_convolution_and_pooling_in_one(shape, side, monkeypatch):
    calls = []
    pooled = winograd._pooled
    monkeypatch.setattr(winograd, "_pooled", lambda *args: calls.append(args) or pooled(*args))
    batch, height, width, inputs = shape
    x, kernel = drawn(0, *shape), drawn(1, side * side * inputs, 5)
    theirs = jax.jit(with_gradients(lambda *args: max_pool(laxs(*args)), side))(x, kernel)
    # Whole, few at a time, parts of the batch with few of each at a time, one by one.
    cuts = ((9, 9), (9, 2), (3, 1), (0, 0)) if batch == 6 else ((9, 9),)
    for stored, cached in cuts:
        monkeypatch.setattr(winograd, "_STORED", stored * 4 * height * width * inputs)
        monkeypatch.setattr(winograd, "_CACHED", cached * 4 * (height - 2) * (width - 2) * 5)
        assert_near(jax.jit(with_gradients(convolve_and_pool, side))(x, kernel), theirs)
    assert bool(calls) == (batch == 6 and jax.default_backend() == "cpu")

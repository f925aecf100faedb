"""Convolutions with weights of their own for every client.

Under `vmap` with batched weights, `lax.conv` becomes a grouped convolution, slow on CPU and GPU
alike, and inside a loop it runs on one thread of a CPU. A matrix product over patches does neither,
but it writes every pixel out side² times. On a GPU that is what the time goes into: see
`gpu_convolution.py`.
"""

import functools
import logging
from typing import Any

import jax
import jax.numpy as jnp

log = logging.getLogger("taciturn")

_CACHED = 1 << 19  # numbers in the patches of a group of images


def convolve(x: jax.Array, kernel: jax.Array, side: int) -> jax.Array:
    """A square convolution without padding of `x`, (batch, height, width, inputs).

    The kernel is (side · side · inputs, outputs), with rows in the order of `patches`.
    """
    on_gpu = _gpu_convolution() if _kernels_fit(x, kernel) else None
    return on_gpu(x, kernel, side, False) if on_gpu else _over_patches(x, kernel, side)


def patches(x: jax.Array, side: int) -> jax.Array:
    """(batch, height, width, channels) to the side × side neighbourhoods, in row-major order."""
    height, width = x.shape[1] - side + 1, x.shape[2] - side + 1
    shifted = [x[:, i : i + height, j : j + width, :] for i in range(side) for j in range(side)]
    return jnp.concatenate(shifted, axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _over_patches(x: jax.Array, kernel: jax.Array, side: int) -> jax.Array:
    """`patches(x, side) @ kernel`, with a gradient that a CPU is fast at."""
    y = jax.lax.map(lambda few: patches(few, side) @ kernel, _few_at_a_time(x, side))
    return y.reshape(x.shape[0], *y.shape[2:])


def _over_patches_forward(x: jax.Array, kernel: jax.Array, side: int) -> Any:
    return _over_patches(x, kernel, side), (x, kernel)


def _over_patches_backward(side: int, kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    inputs = x.shape[3]

    def more(d_kernel: jax.Array, pair: tuple[jax.Array, jax.Array]) -> Any:
        x, dy = pair
        # The product of a transposed matrix runs at two thirds of the speed of a plain one on a
        # CPU: transposing first, where XLA cannot undo it, is cheaper.
        turned = jax.lax.optimization_barrier(patches(x, side).reshape(-1, kernel.shape[0]).T)
        share = turned @ dy.reshape(-1, kernel.shape[1])
        d_patches = dy @ kernel.T
        # Added up one after another, in place; a sum of nine padded arrays is not vectorised.
        dx = jnp.zeros(x.shape, dy.dtype)
        for tap in range(side * side):
            at = (0, tap // side, tap % side, 0)
            part = jax.lax.slice_in_dim(d_patches, tap * inputs, (tap + 1) * inputs, axis=3)
            part = jax.lax.dynamic_slice(dx, at, part.shape) + part
            dx = jax.lax.dynamic_update_slice(dx, part, at)
        return d_kernel + share, dx

    few = _few_at_a_time(x, side)
    gradients = dy.reshape(*few.shape[:2], *dy.shape[1:])
    d_kernel, dx = jax.lax.scan(more, jnp.zeros_like(kernel), (few, gradients))
    return dx.reshape(x.shape), d_kernel


_over_patches.defvjp(_over_patches_forward, _over_patches_backward)


def _few_at_a_time(x: jax.Array, side: int) -> jax.Array:
    """The batch in groups whose patches stay in a core's cache: (groups, images, …).

    Patches are made again for the gradient: that is cheaper than to fetch them from memory.
    """
    batch, height, width, inputs = x.shape
    fit = _CACHED // ((height - side + 1) * (width - side + 1) * side * side * inputs)
    images = group(batch, fit) if jax.default_backend() == "cpu" else batch
    return x.reshape(batch // images, images, height, width, inputs)


def group(batch: int, most: int) -> int:
    """The largest number up to `most`, but 1 at least, by which a batch can be divided."""
    return next(n for n in range(max(1, min(batch, most)), 0, -1) if batch % n == 0)


@jax.custom_vjp
def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2 × 2 square; an odd last row or column is dropped.

    The gradient goes to the first of the largest, whose place is all that is kept for it.
    """
    return _max_pool_forward(x)[0]


def largest(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest of the four, and which it is; of equal ones the first."""
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    place = jnp.where(top >= bottom, jnp.where(a >= b, 0, 1), jnp.where(c >= d, 2, 3))
    return jnp.maximum(top, bottom), place.astype(jnp.int8)


def _max_pool_forward(x: jax.Array) -> Any:
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    a, b, c, d = (x[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1))
    y, place = largest(a, b, c, d)
    return y, (place, x.shape)


def _max_pool_backward(kept: Any, dy: jax.Array) -> tuple[jax.Array]:
    place, shape = kept
    rows = [
        jnp.stack([jnp.where(place == 2 * i + j, dy, 0) for j in (0, 1)], axis=3) for i in (0, 1)
    ]
    batch, high, wide, channels = dy.shape
    dx = jnp.stack(rows, axis=2).reshape(batch, 2 * high, 2 * wide, channels)
    missing = ((0, 0), (0, shape[1] - 2 * high), (0, shape[2] - 2 * wide), (0, 0))
    return (jnp.pad(dx, missing),)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def _kernels_fit(x: jax.Array, kernel: jax.Array) -> bool:
    """Whether the kernels pay off: on a GPU, in bfloat16, with sizes that tensor cores take.

    In float32 they are as fast as the patches (docs/performance.md).
    """
    return (
        jax.default_backend() == "gpu"
        and x.dtype == jnp.bfloat16
        and all(size in (16, 32, 64, 128) for size in (x.shape[-1], kernel.shape[1]))
    )


@functools.cache
def _gpu_convolution() -> Any:
    """The GPU's kernels, or None where this JAX cannot make them, yet or any more."""
    try:
        from taciturn.models.gpu_convolution import convolve_on_gpu
    except (ImportError, AttributeError) as error:
        log.warning("Convolutions run without kernels of their own: %s.", error)
        return None
    return convolve_on_gpu

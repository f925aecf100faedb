"""Convolutions with weights of their own for every client.

Under `vmap` with batched weights, `lax.conv` becomes a grouped convolution, slow on CPU and GPU
alike, and inside a loop it runs on one thread of a CPU. A matrix product over patches does neither,
but it writes every pixel out side² times. On a GPU that is what the time goes into, so there three
short Pallas kernels read the patches straight from the image.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

_CACHED = 1 << 19  # numbers in the patches of a group of images
_ROWS = 128  # pixels that one program of a kernel works on
_GROUPS = 5  # parts of a batch whose shares of the kernel's gradient are summed apart
_LAUNCH = triton.CompilerParams(num_warps=4, num_stages=1)


def convolve(x: jax.Array, kernel: jax.Array, side: int) -> jax.Array:
    """A square convolution without padding.

    Args:
      x: (batch, height, width, inputs).
      kernel: (side · side · inputs, outputs), rows in the order of `patches`.
      side: of the square.
    """
    if _kernels_fit(x, kernel):
        return _convolve(x, kernel, side, False)
    return _over_patches(x, kernel, side)


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
    few = _few_at_a_time(x, side)

    def more(d_kernel: jax.Array, pair: tuple[jax.Array, jax.Array]) -> Any:
        dx, share = _gradients(patches(pair[0], side), kernel, pair[0].shape, side, pair[1])
        return d_kernel + share, dx

    gradients = dy.reshape(*few.shape[:2], *dy.shape[1:])
    d_kernel, dx = jax.lax.scan(more, jnp.zeros_like(kernel), (few, gradients))
    return dx.reshape(x.shape), d_kernel


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


def _gradients(
    cut: jax.Array, kernel: jax.Array, shape: tuple[int, ...], side: int, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Those of the input, of this shape, and of the kernel, from the patches."""
    outputs = kernel.shape[1]
    # The product of a transposed matrix runs at two thirds of the speed of a plain one on a CPU:
    # transposing first, where XLA cannot undo it, is cheaper.
    turned = jax.lax.optimization_barrier(cut.reshape(-1, kernel.shape[0]).T)
    d_kernel = turned @ dy.reshape(-1, outputs)
    d_cut = dy @ kernel.T
    # Added up one after another, in place; a sum of nine padded arrays is not vectorised.
    dx = jnp.zeros(shape, dy.dtype)
    size = (shape[0], dy.shape[1], dy.shape[2], shape[3])
    for tap in range(side * side):
        at = (0, tap // side, tap % side, 0)
        part = jax.lax.slice_in_dim(d_cut, tap * shape[3], (tap + 1) * shape[3], axis=3)
        dx = jax.lax.dynamic_update_slice(dx, jax.lax.dynamic_slice(dx, at, size) + part, at)
    return dx, d_kernel


_over_patches.defvjp(_over_patches_forward, _over_patches_backward)


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(x: jax.Array, kernel: jax.Array, side: int, interpret: bool) -> jax.Array:
    """`patches(x, side) @ kernel`, without the patches."""
    batch, height, width, inputs = x.shape
    outputs = kernel.shape[1]
    high, wide = height - side + 1, width - side + 1

    def program(x_ref: Any, kernel_ref: Any, y_ref: Any) -> None:
        pixel = pl.program_id(1) * _ROWS + jnp.arange(_ROWS)
        inside = pixel < high * wide
        corner = _corner(pixel, wide, width)
        total = jnp.zeros((_ROWS, outputs), jnp.float32)
        for tap in range(side * side):
            shift = tap // side * width + tap % side
            rows = _rows(x_ref, (), corner + shift, inside)
            total += triton.dot(rows, kernel_ref[tap])
        _store(y_ref, pixel, total, inside)

    y = pl.pallas_call(
        program,
        grid=(batch, pl.cdiv(high * wide, _ROWS)),
        in_specs=[_image(height * width, inputs), _whole(side * side, inputs, outputs)],
        out_specs=_image(high * wide, outputs),
        out_shape=jax.ShapeDtypeStruct((batch, high * wide, outputs), x.dtype),
        compiler_params=_LAUNCH,
        interpret=interpret,
    )(x.reshape(batch, height * width, inputs), kernel.reshape(-1, inputs, outputs))
    return y.reshape(batch, high, wide, outputs)


def _forward(x: jax.Array, kernel: jax.Array, side: int, interpret: bool) -> Any:
    return _convolve(x, kernel, side, interpret), (x, kernel)


def _backward(side: int, interpret: bool, kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return _d_input(x, kernel, dy, side, interpret), _d_kernel(x, kernel, dy, side, interpret)


_convolve.defvjp(_forward, _backward)


def _d_input(
    x: jax.Array, kernel: jax.Array, dy: jax.Array, side: int, interpret: bool
) -> jax.Array:
    """Every pixel of the input gets the gradients of the outputs that it had a part in."""
    batch, height, width, inputs = x.shape
    _, high, wide, outputs = dy.shape

    def program(dy_ref: Any, kernel_ref: Any, dx_ref: Any) -> None:
        pixel = pl.program_id(1) * _ROWS + jnp.arange(_ROWS)
        row, column = _divide(pixel, width)
        total = jnp.zeros((_ROWS, inputs), jnp.float32)
        for tap in range(side * side):
            i, j = row - tap // side, column - tap % side
            inside = (i >= 0) & (i < high) & (j >= 0) & (j < wide)
            at = jnp.where(inside, i * wide + j, 0)
            rows = _rows(dy_ref, (), at, inside)
            total += triton.dot(rows, kernel_ref[tap], trans_b=True)
        _store(dx_ref, pixel, total, pixel < height * width)

    dx = pl.pallas_call(
        program,
        grid=(batch, pl.cdiv(height * width, _ROWS)),
        in_specs=[_image(high * wide, outputs), _whole(side * side, inputs, outputs)],
        out_specs=_image(height * width, inputs),
        out_shape=jax.ShapeDtypeStruct((batch, height * width, inputs), x.dtype),
        compiler_params=_LAUNCH,
        interpret=interpret,
    )(dy.reshape(batch, high * wide, outputs), kernel.reshape(-1, inputs, outputs))
    return dx.reshape(x.shape)


def _d_kernel(
    x: jax.Array, kernel: jax.Array, dy: jax.Array, side: int, interpret: bool
) -> jax.Array:
    """One program for every row of the square and every part of the batch."""
    batch, height, width, inputs = x.shape
    _, high, wide, outputs = dy.shape
    groups = next(n for n in range(min(_GROUPS, batch), 0, -1) if batch % n == 0)
    blocks = pl.cdiv(high * wide, _ROWS)

    def program(x_ref: Any, dy_ref: Any, share_ref: Any) -> None:
        row = pl.program_id(0) * width

        def block(k: jax.Array, totals: Any) -> Any:
            image, part = _divide(k, blocks)
            pixel = part * _ROWS + jnp.arange(_ROWS)
            inside = pixel < high * wide
            corner = _corner(pixel, wide, width) + row
            gradients = _rows(dy_ref, (image,), pixel, inside)
            return tuple(
                total
                + triton.dot(_rows(x_ref, (image,), corner + j, inside), gradients, trans_a=True)
                for j, total in enumerate(totals)
            )

        start = tuple(jnp.zeros((inputs, outputs), jnp.float32) for _ in range(side))
        totals = jax.lax.fori_loop(0, batch // groups * blocks, block, start)
        for j, total in enumerate(totals):
            share_ref[j] = total

    def part(pixels: int, channels: int) -> pl.BlockSpec:
        return pl.BlockSpec((batch // groups, pixels, channels), lambda row, group: (group, 0, 0))

    shares = pl.pallas_call(
        program,
        grid=(side, groups),
        in_specs=[part(height * width, inputs), part(high * wide, outputs)],
        out_specs=pl.BlockSpec(
            (None, None, side, inputs, outputs), lambda row, group: (group, row, 0, 0, 0)
        ),
        out_shape=jax.ShapeDtypeStruct((groups, side, side, inputs, outputs), jnp.float32),
        compiler_params=_LAUNCH,
        interpret=interpret,
    )(x.reshape(batch, height * width, inputs), dy.reshape(batch, high * wide, outputs))
    return shares.sum(0).reshape(kernel.shape).astype(kernel.dtype)


def _divide(x: jax.Array, by: int) -> tuple[jax.Array, jax.Array]:
    """Quotient and remainder of what is never negative."""
    divisor = jnp.full_like(x, by)
    return jax.lax.div(x, divisor), jax.lax.rem(x, divisor)


def _corner(pixel: jax.Array, wide: int, width: int) -> jax.Array:
    """Where a pixel of an image `wide` lies in one that is `width` wide."""
    row, column = _divide(pixel, wide)
    return row * width + column


def _rows(ref: Any, image: tuple[jax.Array, ...], pixels: jax.Array, inside: jax.Array) -> Any:
    """The channels of these pixels, and 0 where they are not inside."""
    channels = jnp.arange(ref.shape[-1])[None, :]
    at = (*(jnp.full((1, 1), i) for i in image), pixels[:, None], channels)
    return triton.load(
        ref.at[at], mask=jnp.broadcast_to(inside[:, None], (len(pixels), ref.shape[-1])), other=0
    )


def _store(ref: Any, pixels: jax.Array, values: jax.Array, inside: jax.Array) -> None:
    channels = jnp.arange(ref.shape[-1])[None, :]
    mask = jnp.broadcast_to(inside[:, None], values.shape)
    triton.store(ref.at[pixels[:, None], channels], values.astype(ref.dtype), mask=mask)


def _image(pixels: int, channels: int) -> pl.BlockSpec:
    """One image of a batch, all of it."""
    return pl.BlockSpec((None, pixels, channels), lambda image, block: (image, 0, 0))


def _whole(*shape: int) -> pl.BlockSpec:
    """All of an array."""
    return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))

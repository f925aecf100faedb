"""Convolutions on a GPU: three short Pallas kernels read patches straight from the image.

JAX has deprecated the Triton backend that they are written for, so nothing imports this file where
it is not needed, and `convolution.py` does without it where the import fails. What they take from
Triton is imported by name: a JAX that lacks any of it is noticed there (`dot` came with 0.10.2).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas.triton import CompilerParams, dot, load, store

_ROWS = 128  # pixels that one program of a kernel works on
_GROUPS = 5  # parts of a batch whose shares of the kernel's gradient are summed apart
_LAUNCH = CompilerParams(num_warps=4, num_stages=1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve_on_gpu(x: jax.Array, kernel: jax.Array, side: int, interpret: bool) -> jax.Array:
    """`patches(x, side) @ kernel`, without the patches; `interpret` runs it without a GPU."""
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
            total += dot(rows, kernel_ref[tap])
        _store(y_ref, pixel, total, inside)

    taps = kernel.reshape(-1, inputs, outputs)
    y = _pixel_by_pixel(program, x, taps, high * wide, outputs, interpret)
    return y.reshape(batch, high, wide, outputs)


def _forward(x: jax.Array, kernel: jax.Array, side: int, interpret: bool) -> Any:
    return convolve_on_gpu(x, kernel, side, interpret), (x, kernel)


def _backward(side: int, interpret: bool, kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return _d_input(x, kernel, dy, side, interpret), _d_kernel(x, kernel, dy, side, interpret)


convolve_on_gpu.defvjp(_forward, _backward)


def _d_input(
    x: jax.Array, kernel: jax.Array, dy: jax.Array, side: int, interpret: bool
) -> jax.Array:
    """Every pixel of the input gets the gradients of the outputs that it had a part in."""
    _, height, width, inputs = x.shape
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
            total += dot(rows, kernel_ref[tap], trans_b=True)
        _store(dx_ref, pixel, total, pixel < height * width)

    taps = kernel.reshape(-1, inputs, outputs)
    return _pixel_by_pixel(program, dy, taps, height * width, inputs, interpret).reshape(x.shape)


def _pixel_by_pixel(
    program: Any, images: jax.Array, taps: jax.Array, pixels: int, channels: int, interpret: bool
) -> jax.Array:
    """What a program makes of each block of pixels of each image: (batch, pixels, channels)."""
    images = images.reshape(len(images), -1, images.shape[-1])

    def one(pixels: int, channels: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, pixels, channels), lambda image, block: (image, 0, 0))

    return pl.pallas_call(
        program,
        grid=(len(images), pl.cdiv(pixels, _ROWS)),
        in_specs=[one(*images.shape[1:]), pl.BlockSpec(taps.shape, lambda *_: (0, 0, 0))],
        out_specs=one(pixels, channels),
        out_shape=jax.ShapeDtypeStruct((len(images), pixels, channels), images.dtype),
        compiler_params=_LAUNCH,
        interpret=interpret,
    )(images, taps)


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
                total + dot(_rows(x_ref, (image,), corner + j, inside), gradients, trans_a=True)
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
    return load(
        ref.at[at], mask=jnp.broadcast_to(inside[:, None], (len(pixels), ref.shape[-1])), other=0
    )


def _store(ref: Any, pixels: jax.Array, values: jax.Array, inside: jax.Array) -> None:
    channels = jnp.arange(ref.shape[-1])[None, :]
    mask = jnp.broadcast_to(inside[:, None], values.shape)
    store(ref.at[pixels[:, None], channels], values.astype(ref.dtype), mask=mask)

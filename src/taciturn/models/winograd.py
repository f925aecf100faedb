"""Convolution and pooling in one, with fewer products, for CPUs.

Four outputs of a 3 × 3 convolution that lie in a square need 36 products. Winograd's
F(2 × 2, 3 × 3) needs 16, with additions before and after them:

    Y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A

with kernel g, a 4 × 4 square d of the image and the 2 × 2 outputs Y, for every pair of channels.
Over all squares of a batch these are 16 matrix products. The squares of outputs are those that
pooling takes the largest of, so that the convolution's result is never written out. In float32 it
is as exact as the plain sum.

References:
  Lavin, Gray. Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from taciturn.models.convolution import convolve, group, largest, max_pool

_TO_IMAGE = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))  # Bᵀ
_TO_KERNEL = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))  # G
_TO_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))  # Aᵀ
_FROM_IMAGE, _FROM_OUTPUT = (tuple(zip(*m, strict=True)) for m in (_TO_IMAGE, _TO_OUTPUT))  # B, A

_CACHED = 5 << 17  # numbers in the products of a group of images
_STORED = 1 << 22  # numbers in the transformed squares of a batch

Square = list[list[jax.Array]]


def convolve_and_pool(x: jax.Array, kernel: jax.Array, side: int) -> jax.Array:
    """`max_pool(convolve(x, kernel, side))`."""
    batch, height, width, inputs = x.shape
    fits = side == 3 and height % 2 == width % 2 == 0 and min(height, width) >= 4
    # Not on a GPU, whose products are cheap, nor in a precision that the sums would lose.
    if not fits or jax.default_backend() != "cpu" or jnp.finfo(x.dtype).bits < 32:
        return max_pool(convolve(x, kernel, side))
    images = group(batch, _STORED // (4 * height * width * inputs))
    parts = x.reshape(batch // images, images, height, width, inputs)
    y = jax.lax.map(lambda part: _pooled(part, kernel), parts)
    return y.reshape(batch, *y.shape[2:])


@jax.custom_vjp
def _pooled(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _forward(x, kernel)[0]


def _forward(x: jax.Array, kernel: jax.Array) -> Any:
    batch, height, width, _ = x.shape
    high, wide, outputs = height // 2 - 1, width // 2 - 1, kernel.shape[1]
    images = group(batch, _CACHED // (16 * high * wide * outputs))
    factors = _factors(kernel)
    # All at once: inside the loop this takes four times as long.
    squares = [
        [part.reshape(batch // images, -1, part.shape[-1]) for part in row]
        for row in _transform(_TO_IMAGE, _corners(x))
    ]

    def few(squares: Square) -> tuple[jax.Array, jax.Array]:
        (a, b), (c, d) = _transform(_TO_OUTPUT, _products(squares, factors))
        return largest(a, b, c, d)

    y, place = jax.lax.map(few, squares)
    return y.reshape(batch, high, wide, outputs), (squares, place, kernel)


def _backward(kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    squares, place, kernel = kept
    batch, high, wide, _ = dy.shape
    turned = [[factor.T for factor in row] for row in _factors(kernel)]

    def few(d_factors: Square, kept: Any) -> Any:
        squares, place, dy = kept
        chosen = [[jnp.where(place == 2 * i + j, dy, 0) for j in (0, 1)] for i in (0, 1)]
        d_products = _transform(_FROM_OUTPUT, chosen)
        shares = _products([[square.T for square in row] for row in squares], d_products)
        d_squares = _transform(_FROM_IMAGE, _products(d_products, turned))
        return jax.tree.map(jnp.add, d_factors, shares), _put_back(d_squares, high, wide)

    d_factors, dx = jax.lax.scan(
        few,
        jax.tree.map(lambda factor: jnp.zeros_like(factor.T), turned),
        (squares, place, dy.reshape(place.shape)),
    )
    to_kernel = jnp.asarray(_TO_KERNEL, kernel.dtype)
    stacked = jnp.stack([jnp.stack(row) for row in d_factors])
    d_kernel = jnp.einsum("ai,bj,abxy->ijxy", to_kernel, to_kernel, stacked)
    return dx.reshape(batch, 2 * high + 2, 2 * wide + 2, -1), d_kernel.reshape(kernel.shape)


_pooled.defvjp(_forward, _backward)


def _factors(kernel: jax.Array) -> Square:
    """G g Gᵀ: 4 × 4 matrices (inputs, outputs)."""
    to_kernel = jnp.asarray(_TO_KERNEL, kernel.dtype)
    taps = kernel.reshape(3, 3, -1, kernel.shape[1])
    factors = jnp.einsum("ai,bj,ijxy->abxy", to_kernel, to_kernel, taps)
    return [[factors[a, b] for b in range(4)] for a in range(4)]


def _corners(x: jax.Array) -> Square:
    """Each of the 16 pixels of all 4 × 4 squares, which lie two apart: (batch, high, wide, …)."""
    batch, height, width, channels = x.shape
    high, wide = height // 2 - 1, width // 2 - 1
    cut = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return [
        [cut[:, i // 2 : i // 2 + high, i % 2, j // 2 : j // 2 + wide, j % 2] for j in range(4)]
        for i in range(4)
    ]


def _put_back(pixels: Square, high: int, wide: int) -> jax.Array:
    """The transpose of `_corners`: images in which every pixel is added where it was taken."""
    channels = pixels[0][0].shape[-1]
    size = (-1, high, 1, wide, 1, channels)
    parts = [[pixel.reshape(size) for pixel in row] for row in pixels]
    images = parts[0][0].shape[0]
    x = jnp.zeros((images, high + 1, 2, wide + 1, 2, channels), parts[0][0].dtype)
    for i, row in enumerate(parts):
        for j, part in enumerate(row):
            at = (0, i // 2, i % 2, j // 2, j % 2, 0)
            old = jax.lax.dynamic_slice(x, at, part.shape)
            x = jax.lax.dynamic_update_slice(x, old + part, at)
    return x


def _products(left: Square, right: Square) -> Square:
    return [[a @ b for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def _transform(matrix: Sequence[Sequence[int]], square: Square) -> Square:
    """matrix · square · matrixᵀ."""
    half = [[_sum(signs, line) for signs in matrix] for line in square]
    return [[_sum(signs, column) for column in zip(*half, strict=True)] for signs in matrix]


def _sum(signs: Sequence[int], parts: Sequence[jax.Array]) -> jax.Array:
    """Σ sign · part, for signs of −1, 0 and 1."""
    first, *others = [(sign, part) for sign, part in zip(signs, parts, strict=True) if sign]
    total = first[1] if first[0] > 0 else -first[1]
    for sign, part in others:
        total = total + part if sign > 0 else total - part
    return total

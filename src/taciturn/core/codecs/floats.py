"""Floating-point numbers of 32 and of 16 bits, as they are, and the upper halves of float32.

Scales too are written as upper halves: NumPy and JAX add up in orders of their own, so that the
scale of a block differs between them in its last bits. Its upper half has 8 bits of precision and
is the same in both, unless the scale lies within rounding of the border between two of them.
"""

import math

import numpy as np

from taciturn.core import hashing
from taciturn.core.arrays import Array, Scalar, namespace
from taciturn.core.codecs.codec import Code, Codec, Form


def float32() -> Codec:
    """Four bytes per weight: nothing is lost."""
    return Codec(
        "float32", encode=lambda update, key: (update,), decode=lambda code, key, size: code[0],
        forms=lambda size: (Form("<f4", (size,)),), error=lambda size: 0.0, unbiased=True,
        norm_range=lambda norm, size: (0.999 * norm, 1.001 * norm),
    )  # fmt: skip


def float16() -> Codec:
    """Two bytes per weight, IEEE's half precision; what is above 65,504 in size becomes that."""

    def encode(update: Array, key: Array) -> Code:
        xp = namespace(update)
        return (xp.astype(xp.clip(update, -65504.0, 65504.0), xp.float16),)

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        tiny = 2.0**-25 * math.sqrt(size)  # below 2⁻¹⁴ the grid does not get any finer
        return 0.998 * norm - tiny, 1.001 * norm + tiny

    return Codec(
        "float16", encode=encode, forms=lambda size: (Form("<f2", (size,)),),
        decode=lambda code, key, size: namespace(code[0]).astype(code[0], np.float32),
        norm_range=norm_range, error=lambda size: 2.0**-24, unbiased=False,
    )  # fmt: skip


def bfloat16() -> Codec:
    """Two bytes per weight, the upper half of a float32, rounded to the nearest."""
    return Codec(
        "bfloat16", encode=lambda update, key: (nearest_halves(update),),
        decode=lambda code, key, size: read_halves(code[0]),
        forms=lambda size: (Form("<u2", (size,), True),), error=lambda size: 2.0**-17,
        norm_range=lambda norm, size: (0.995 * norm, 1.005 * norm), unbiased=False,
    )  # fmt: skip


def nearest_halves(numbers: Array) -> Array:
    """The nearest upper halves; of two equally near ones, the even one."""
    words = _words(numbers)
    return _upper(words + 0x7FFF + ((words >> 16) & 1))


def halves_above(numbers: Array) -> Array:
    """The smallest upper halves that are no smaller than these numbers, which are not below 0."""
    return _upper(_words(numbers) + 0xFFFF)


def drawn_halves(numbers: Array, key: Array) -> Array:
    """The halves below or above, at random in such a way that the mean is right."""
    drawn = hashing.bits(hashing.fold(key, hashing.SCALES), numbers.shape)
    return _upper(_words(numbers) + (drawn >> 16))


def read_halves(halves: Array) -> Array:
    """The numbers in float32."""
    return (namespace(halves).astype(halves, np.uint32) << 16).view(np.float32)


def _words(numbers: Array) -> Array:
    return namespace(numbers).astype(numbers, np.float32, copy=False).view(np.uint32)


def _upper(words: Array) -> Array:
    return namespace(words).astype(words >> 16, np.uint16)

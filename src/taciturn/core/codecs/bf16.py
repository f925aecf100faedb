"""The upper halves of float32: what scales, and the codec `bfloat16`, are written as.

NumPy and JAX add up in orders of their own, so the scale of a block differs between them in its
last bits. Its upper half has 8 bits of precision and is the same in both, except where the scale
lies within rounding of the border between two of them.
"""

import numpy as np

from taciturn.core.arrays import Array, namespace

DTYPE = "<u2"


def nearest(numbers: Array) -> Array:
    """The nearest upper halves; of two equally near ones, the even one."""
    words = _words(numbers)
    return _upper(words + 0x7FFF + ((words >> 16) & 1))


def up(numbers: Array) -> Array:
    """The smallest upper halves that are no smaller than these numbers, which are not below 0."""
    return _upper(_words(numbers) + 0xFFFF)


def drawn(numbers: Array, bits: Array) -> Array:
    """The halves below or above, at random in such a way that the mean is right."""
    return _upper(_words(numbers) + (bits >> 16))


def read(halves: Array) -> Array:
    """The numbers in float32."""
    return (namespace(halves).astype(halves, np.uint32) << 16).view(np.float32)


def finite(halves: Array) -> Array:
    """Which of them are numbers: neither infinite nor NaN."""
    return (halves & 0x7F80) != 0x7F80


def _words(numbers: Array) -> Array:
    return namespace(numbers).astype(numbers, np.float32, copy=False).view(np.uint32)


def _upper(words: Array) -> Array:
    return namespace(words).astype(words >> 16, np.uint16)

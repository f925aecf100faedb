"""The upper halves of float32: what scales, and the codec `bfloat16`, are written as.

NumPy and JAX add up in orders of their own, so the scale of a block differs between them in its
last bits. Its upper half has 8 bits of precision and is the same in both, except where the scale
lies within rounding of the border between two of them.
"""

from taciturn.core.arrays import Array, namespace

DTYPE = "<u2"


def nearest(numbers: Array) -> Array:
    """The nearest upper halves; of two that are as near, the even one."""
    words = _words(numbers)
    xp = namespace(words)
    below, one = (xp.asarray(number, dtype=xp.uint32) for number in (0x7FFF, 1))
    return _upper(words + below + ((words >> 16) & one))


def up(numbers: Array) -> Array:
    """The next upper halves that are no smaller than these numbers, which are not below 0."""
    words = _words(numbers)
    xp = namespace(words)
    return _upper(words + xp.asarray(0xFFFF, dtype=xp.uint32))


def drawn(numbers: Array, bits: Array) -> Array:
    """The halves below or above, by random bits, so that the mean is right."""
    return _upper(_words(numbers) + (bits >> 16))


def read(halves: Array) -> Array:
    """The numbers in float32."""
    xp = namespace(halves)
    return (xp.astype(halves, xp.uint32) << 16).view(xp.float32)


def finite(halves: Array) -> Array:
    """Which of them are numbers: neither infinite nor NaN."""
    return (halves & 0x7F80) != 0x7F80


def _words(numbers: Array) -> Array:
    xp = namespace(numbers)
    return xp.astype(numbers, xp.float32, copy=False).view(xp.uint32)


def _upper(words: Array) -> Array:
    xp = namespace(words)
    return xp.astype(words >> 16, xp.uint16)

"""Random bits by hashing: cheap, counted, and the same in whatever batch, device or array library.

A key is two words of 32 bits. A good integer hash of (key, counter) is random enough for masks,
shuffles and rotations, at a tenth of the cost of JAX's generator, which is a cipher; and a client
without JAX can compute it.
"""

import math
from typing import Any

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace


@np.errstate(over="ignore")  # a product wraps around, which NumPy warns of where there is but one
def mix(x: Array) -> Array:
    """MurmurHash3's finalizer: every bit of the input moves half the bits of the output."""
    x = (x ^ (x >> 16)) * _word(x, 0x85EBCA6B)
    x = (x ^ (x >> 13)) * _word(x, 0xC2B2AE35)
    return x ^ (x >> 16)


@np.errstate(over="ignore")
def fold(key: Array, number: Scalar) -> Array:
    """A new key from a key and a whole number; its last 32 bits count."""
    xp = namespace(key)
    if isinstance(number, int):
        number &= 0xFFFFFFFF
    counted = xp.astype(xp.asarray(number), xp.uint32)
    salt = mix(counted + _word(key, 0x9E3779B9))
    return xp.stack([mix(key[0] ^ salt), mix(key[1] + key[0] + salt)])


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """32 random bits for every entry of an array of this shape."""
    xp = namespace(key)
    return bits_at(key, xp.reshape(xp.arange(math.prod(shape), dtype=xp.uint32), shape))


@np.errstate(over="ignore")
def bits_at(key: Array, places: Array) -> Array:
    """Those for these places alone."""
    xp = namespace(key)
    return mix(mix(xp.astype(places, xp.uint32) + key[0]) ^ key[1])


def _word(like: Array, value: int) -> Any:
    xp = namespace(like)
    return xp.asarray(value, dtype=xp.uint32)

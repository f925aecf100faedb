"""Random bits by hashing: cheap, counted, and the same in whatever batch, device or array library.

A key is two words of 32 bits. A hash of (key, counter) is random enough for masks, shuffles and
rotations, at a tenth of the cost of JAX's generator, which is a cipher; and NumPy can compute it.
"""

import math

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace

# What a key is folded with before something is drawn from it: draws for two purposes are apart.
SIGNS = 1  # of a random rotation
COORDINATES = 2  # that `eden` sends
LEVELS = 3  # of `quantize`
SCALES = 4  # of blocks
BLOCKS = 5  # that `peaks` sends
DOWN = 0xD0  # the codec of the server's message
UP = 0xC0DEC  # that of a client's


@np.errstate(over="ignore")  # a product wraps around; of a single number NumPy would warn
def mix(x: Array) -> Array:
    """MurmurHash3's finalizer: every bit of the input moves half the bits of the output."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


@np.errstate(over="ignore")
def fold(key: Array, number: Scalar) -> Array:
    """A new key from a key and a whole number, of which the last 32 bits count."""
    xp = namespace(key)
    if isinstance(number, int):
        number &= 0xFFFFFFFF
    salt = mix(xp.astype(xp.asarray(number), xp.uint32) + np.uint32(0x9E3779B9))
    return xp.stack([mix(key[0] ^ salt), mix(key[1] + key[0] + salt)])


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """32 random bits for every entry of an array of this shape."""
    xp = namespace(key)
    return bits_at(key, xp.reshape(xp.arange(math.prod(shape), dtype=xp.uint32), shape))


@np.errstate(over="ignore")
def bits_at(key: Array, places: Array) -> Array:
    """The random bits of these entries alone."""
    return mix(mix(namespace(key).astype(places, np.uint32) + key[0]) ^ key[1])

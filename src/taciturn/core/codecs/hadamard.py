"""Random rotations: signs drawn from a key, then a Hadamard matrix, block by block.

A block of a·b numbers is turned as an a × b tile, H_a X H_b: two matrix products. Any vector,
however sparse, comes out with entries that are nearly alike in size; the same signs turn it back.
"""

import functools

import numpy as np

from taciturn.core.arrays import Array, namespace
from taciturn.core.hashing import fold, mix

BLOCK = 4096


def block_of(size: int) -> int:
    """How many numbers a block has for a vector of so many: a power of two, BLOCK at most."""
    return min(BLOCK, 1 << max(0, size - 1).bit_length())


def blocks_of(size: int) -> int:
    """How many blocks a vector of so many numbers has."""
    return -(-size // block_of(size))


def cut(vector: Array) -> Array:
    """The vector as (blocks, block), the last one filled up with zeros."""
    xp, size = namespace(vector), vector.shape[0]
    missing = blocks_of(size) * block_of(size) - size
    if missing:
        vector = xp.concat([vector, xp.zeros((missing,), dtype=vector.dtype)])
    return xp.reshape(vector, (-1, block_of(size)))


def rotate(x: Array, key: Array, first: int = 0) -> Array:
    """Blocks (count, block), turned; `first` is the number of the first in its message."""
    return _turn(_flip(x, key, first))


def rotate_back(x: Array, key: Array, first: int = 0) -> Array:
    """What `rotate` turned, as it was."""
    return _flip(_turn(x), key, first)


def _turn(x: Array) -> Array:
    """H X H of every block's tile, at full precision whatever that of the run is."""
    xp = namespace(x)
    block = x.shape[1]
    high = 1 << (block.bit_length() // 2)
    left, right = (xp.asarray(_matrix(side), dtype=x.dtype) for side in (high, block // high))
    tiles = xp.reshape(x, (-1, high, block // high))
    if isinstance(x, np.ndarray):
        turned = np.matmul(left, np.matmul(tiles, right))
    else:  # JAX's products have a precision, which the array API does not know of
        turned = xp.einsum("ij,njk,kl->nil", left, tiles, right, precision="highest")
    return xp.reshape(turned, x.shape)


def _flip(x: Array, key: Array, first: int) -> Array:
    """Half of all entries negated: one bit of the key's stream for each."""
    xp = namespace(x)
    words = x.shape[1] // 32 or 1
    counter = xp.arange(first * words, (first + x.shape[0]) * words, dtype=xp.uint32)
    key = fold(key, 1)
    with np.errstate(over="ignore"):
        drawn = mix(mix(counter + key[0]) ^ key[1])
    if isinstance(x, np.ndarray):
        bits = np.unpackbits(drawn.view(np.uint8), bitorder="little").reshape(x.shape[0], -1)
        signs = bits[:, : x.shape[1]].astype(np.uint32)
        signs <<= np.uint32(31)
        signs ^= np.ascontiguousarray(x).view(np.uint32)
        return signs.view(np.float32)
    spread = (drawn[:, None] >> xp.arange(32, dtype=xp.uint32)[None, :]) & 1
    negative = xp.reshape(spread, (x.shape[0], -1))[:, : x.shape[1]] == 1
    return xp.where(negative, -x, x)


@functools.cache
def _matrix(side: int) -> np.ndarray:
    """The Hadamard matrix of this side, orthonormal and symmetric."""
    matrix = np.ones((1, 1))
    while len(matrix) < side:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / np.sqrt(side)).astype(np.float32)

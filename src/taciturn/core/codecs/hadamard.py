"""Random rotations: signs drawn from a key, then a Hadamard matrix, block by block.

A block of a·b numbers is turned as an a × b tile, H_a X H_b: two matrix products. Any vector,
however sparse, comes out with entries that are nearly alike in size; the same signs turn it back.
"""

import functools

import numpy as np

from taciturn.core.arrays import Array, by_rows, in_rows, namespace
from taciturn.core.hashing import SIGNS, bits_at, fold

BLOCK = 4096


def block_of(size: int) -> int:
    """How many numbers a block has for a vector of so many: a power of two, BLOCK at most."""
    return min(BLOCK, 1 << max(0, size - 1).bit_length())


def blocks_of(size: int) -> int:
    """How many blocks a vector of so many numbers has."""
    return -(-size // block_of(size))


def cut(vector: Array) -> Array:
    """The vector as (blocks, block), the last one filled up with zeros."""
    return in_rows(vector, block_of(vector.shape[0]))


def squares(vector: Array) -> Array:
    """The squared norm of every block."""
    if not isinstance(vector, np.ndarray):
        xp = namespace(vector)
        return xp.sum(cut(vector) ** 2, axis=1)
    block, whole = block_of(len(vector)), len(vector) // block_of(len(vector))
    rows = vector[: whole * block].reshape(whole, block)
    (found,) = by_rows(lambda x, first: (np.vecdot(x, x),), rows)
    rest = vector[whole * block :]
    return np.append(found, np.vecdot(rest, rest)) if len(rest) else found


def take(vector: Array, numbers: Array) -> Array:
    """The blocks of these numbers; zeros for those that do not exist."""
    if not isinstance(vector, np.ndarray):
        xp, rows = namespace(vector), cut(vector)
        return xp.take(xp.concat([rows, xp.zeros_like(rows[:1])]), numbers, axis=0)
    block = block_of(len(vector))
    found = np.zeros((len(numbers), block), vector.dtype)
    for row, number in zip(found, numbers.tolist(), strict=True):
        part = vector[number * block : (number + 1) * block]
        row[: len(part)] = part
    return found


def rotate(x: Array, key: Array, which: Array | int = 0) -> Array:
    """Blocks (count, block), turned; `which` are their numbers, or the first of those in a row."""
    return _turn(_flip(x, key, which))


def rotate_back(x: Array, key: Array, which: Array | int = 0) -> Array:
    """What `rotate` turned, as it was."""
    return _flip(_turn(x), key, which)


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


def _flip(x: Array, key: Array, which: Array | int) -> Array:
    """The blocks with half of all entries negated: one bit of the key's stream for each."""
    xp, words = namespace(x), x.shape[1] // 32 or 1
    if isinstance(which, int):
        which = xp.arange(which, which + x.shape[0], dtype=xp.uint32)
    inside = xp.arange(words, dtype=xp.uint32)[None, :]
    counter = xp.reshape(xp.astype(which, xp.uint32)[:, None] * words + inside, (-1,))
    drawn = bits_at(fold(key, SIGNS), counter)
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

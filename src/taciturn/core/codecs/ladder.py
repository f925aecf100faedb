r"""EDEN with as many bits as a client is given: 1/16 to 1 in steps of √2, then 2, 3 and 4.

Each rung is `eden` with so many bits. Which one a client stands on is its rule's choice and goes
into the message's header, so a code's length still depends on nothing but size and rung.

A compiled program does not know the rung when it is made: `through` computes what the server
decodes for a rung that is traced. Signs outside of the coordinates that are sent count as 0, and
borders between levels that a rung does not have lie at infinity.
"""

import dataclasses

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace
from taciturn.core.codecs import hadamard, halves
from taciturn.core.codecs.codec import Codec, single
from taciturn.core.codecs.eden import LEVELS, eden, kept, order
from taciturn.core.hashing import bits as random_bits
from taciturn.core.hashing import fold

BITS = (*(2.0 ** (i / 2 - 4) for i in range(9)), 2.0, 3.0, 4.0)
_BETWEEN = np.sqrt(np.array(BITS[1:]) * np.array(BITS[:-1]))  # in proportion, half-way
_MOST = 16  # levels


def rung_of(bits: Scalar) -> Scalar:
    """The number of the rung that is nearest to so many bits per weight, in proportion."""
    xp = namespace(bits) if hasattr(bits, "__array_namespace__") else np
    found = xp.zeros_like(xp.asarray(bits), dtype=xp.int32)
    for between in _BETWEEN.tolist():
        found = found + xp.astype(xp.asarray(bits > between), xp.int32)
    return found


def through(update: Array, key: Array, rung: Array) -> Array:
    """What the server decodes of an update that was written on a rung, which may be traced."""
    xp, size, update = namespace(update), update.shape[0], single(update)
    block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
    counts = xp.asarray([kept(size, min(1.0, bits)) for bits in BITS], dtype=xp.int32)
    rank = xp.argsort(order(key, block), stable=True)
    sent = (rank < counts[rung])[None, :]
    borders, levels = (xp.asarray(table)[rung] for table in _tables())
    x = hadamard.cut(update)
    r = hadamard.rotate(x, key, 0)
    squares = xp.sum(x * x, axis=1)
    rms = xp.sqrt(squares / block)[:, None]
    unit = r / xp.where(rms > 0, rms, xp.ones_like(rms))
    index = xp.zeros(r.shape, dtype=xp.int32)
    for i in range(_MOST - 1):
        index = index + xp.astype(unit > borders[i], xp.int32)
    q = xp.where(sent, xp.take(levels, index), 0.0)
    along = xp.sum(r * q, axis=1)
    scales = xp.where(along > 0, squares / xp.where(along > 0, along, 1.0), 0.0)
    scales = halves.read(halves.drawn(scales, random_bits(fold(key, 4), (blocks,))))
    return xp.reshape(hadamard.rotate_back(q * scales[:, None], key, 0), (-1,))[:size]


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """For every rung, the borders between its levels and the levels; filled up with infinity."""
    borders = np.full((len(BITS), _MOST - 1), np.inf, np.float32)
    levels = np.zeros((len(BITS), _MOST), np.float32)
    for i, bits in enumerate(BITS):
        positive = np.array(LEVELS[max(1, int(bits))], np.float32)
        own = np.concatenate([-positive[::-1], positive])
        levels[i, : len(own)] = own
        borders[i, : len(own) - 1] = (own[1:] + own[:-1]) / 2
    return borders, levels


RUNGS = tuple(eden(bits) for bits in BITS)
# Without a rung it is its lowest one.
LADDER: Codec = dataclasses.replace(
    RUNGS[0], name="ladder", params=(), rungs=RUNGS, through=through
)

"""How the bytes of a code are shared out to the blocks of an update: in proportion to their norms.

Each block that is sent has a depth j, for groups of 2^j coordinates. A block that is not worth the
fewest groups is sent by chance. Everything is whole numbers, so that NumPy and JAX share alike; the
number of bytes may be traced.
"""

import functools
import math
from typing import Any

import numpy as np

from taciturn.core import hashing
from taciturn.core.arrays import Array, Scalar, largest_where, namespace, one_if
from taciturn.core.codecs import hadamard
from taciturn.core.codecs.packing import low_bits, packed_bytes, position_bytes

LEAST = 32  # bytes of a code
DEPTH, SCALE = 4, 5  # bits for a block's j and for its scale
NONE = 15  # the depth of a block that is not sent
_FEWEST = 4  # groups of a block in a slot: a block's number, depth and scale have to pay
_SLOT = 56  # bits of a slot with so many groups, the lower bits of its number left out
_OCTAVE = 4  # steps in which norms are told apart
_HIGHEST = 1 << 10  # more than the step of any norm
_HALF = 10
ONE = 1 << 2 * _HALF  # a chance of 1, in fixed point


def layout(size: int, nbytes: Any) -> tuple[Any, Any, Any]:
    """How many blocks a code of so many bytes sends at the most, whether these are numbered (else
    every block has a slot of its own), and bits for places and signs; `nbytes` may be traced."""
    blocks = hadamard.blocks_of(size)
    total = 8 * (nbytes - 2)
    listed = total < blocks * (_SLOT - 3)
    numbered = total // (_SLOT + low_bits(total // _SLOT + 1, blocks + 1))
    slots = one_if(listed) * (numbered - blocks) + blocks
    numbers = one_if(listed) * sum(position_bytes(slots, blocks + 1))
    return slots, listed, 8 * (nbytes - 2 - numbers - _headers(slots))


def _headers(slots: Any) -> Any:
    """Bytes for depths and scales."""
    return packed_bytes(slots, DEPTH) + packed_bytes(slots, SCALE)


def longest(size: int) -> int:
    """Bytes of the longest code: all signs."""
    blocks = hadamard.blocks_of(size)
    return max(LEAST, 2 + _headers(blocks) + packed_bytes(blocks * hadamard.block_of(size), 1))


def share_out(squares: Array, size: int, nbytes: Scalar) -> tuple[Array, Array]:
    """The depth of every block and its chance in fixed point: bits are in proportion to norms, and
    all fit into so many bytes."""
    xp, block = namespace(squares), hadamard.block_of(size)
    slots, listed, room = layout(size, nbytes)
    tables = zip(_steps(block, _FEWEST), _steps(block, 1), strict=True)
    depths, chances, costs = (
        xp.where(listed, xp.asarray(few), xp.asarray(one)) for few, one in tables
    )
    # A float32's exponent and first two bits: near enough a logarithm, and the same everywhere.
    levels = xp.astype(xp.sqrt(squares).view(xp.uint32) >> 21, xp.int32)

    def step_and_chance(shift: Array) -> tuple[Array, Array]:
        step = xp.clip(levels + (shift - _HIGHEST), 0, depths.shape[0] - 1)
        return step, xp.where(squares > 0, xp.take(chances, step), 0)

    def fits(shift: Array) -> Array:
        step, chance = step_and_chance(shift)
        sure = chance == ONE
        drawn = _whole(xp.where(sure, 0, chance))
        bits = xp.sum(xp.where(sure, xp.take(costs, step), 0), dtype=xp.int32)
        count = xp.sum(sure, dtype=xp.int32)
        return (bits + drawn * costs[0] <= room) & (count + drawn <= slots)

    step, chance = step_and_chance(largest_where(fits, _HIGHEST.bit_length(), xp))
    return xp.take(depths, step), chance


@functools.cache
def _steps(block: int, fewest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each step of what blocks are worth: depth, chance in fixed point, and bits.

    At first a block is worth 1 / ONE of the fewest groups that it may have, at last all its signs.
    """
    costs = _costs(block)
    deepest = len(costs) - min(fewest, block).bit_length()
    steps = np.arange(_OCTAVE * (1 + int(math.log2(ONE * block))))
    worth = 2.0 ** (steps // _OCTAVE) * (1 + steps % _OCTAVE / _OCTAVE) / ONE
    away = np.abs(np.log(worth[:, None] * costs[deepest] / costs[: deepest + 1]))
    depth = away.argmin(axis=1)
    chance = np.where(worth < 1, np.floor(worth * ONE), ONE)
    return depth.astype(np.int32), chance.astype(np.int32), costs[depth].astype(np.int32)


def _costs(block: int) -> np.ndarray:
    """Bits of a block with groups of 1, 2, 4 …"""
    return np.array([(block >> j) * (j + 1) for j in range(block.bit_length())], np.int32)


def _whole(chances: Array) -> Array:
    """How many are drawn at the most; the sum itself may not fit into 32 bits."""
    xp = namespace(chances)
    mask = (1 << _HALF) - 1
    upper = xp.sum(chances >> _HALF, dtype=xp.int32)
    lower = xp.sum(chances & mask, dtype=xp.int32)
    return (upper + ((lower + mask) >> _HALF) + mask) >> _HALF


def draw(
    depths: Array, chances: Array, size: int, nbytes: Scalar, key: Array
) -> tuple[Array, Array]:
    """The depth of every block, NONE of those that are not sent, and its chance.

    Draws are systematic: as many as the chances add up to, or one more or less. Groups of the first
    blocks are then halved, as far as there is room.
    """
    xp, block = namespace(depths), hadamard.block_of(size)
    offset = hashing.bits(hashing.fold(key, hashing.BLOCKS), (1,)) >> (32 - 2 * _HALF)
    each = xp.astype(chances, xp.uint32)
    # Sums wrap around at 2³²; how many whole numbers lie between two of them is right all the same.
    ends = xp.cumulative_sum(each, dtype=xp.uint32) + offset
    sent = (ends >> 2 * _HALF) != ((ends - each) >> 2 * _HALF)
    costs = xp.asarray(_costs(block))
    cost = xp.where(sent, xp.take(costs, depths), 0)
    more = xp.where(sent, xp.take(costs, xp.maximum(depths - 1, 0)) - cost, 0)
    left = layout(size, nbytes)[2] - xp.sum(cost, dtype=xp.int32)
    halved = sent & (depths > 0) & (xp.cumulative_sum(more, dtype=xp.int32) <= left)
    depths = xp.where(sent, depths - xp.astype(halved, xp.int32), NONE)
    return depths, xp.astype(xp.where(sent, chances, ONE), xp.float32) / ONE

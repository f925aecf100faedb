r"""Peaks: a random rotation, and the largest coordinate of every group, small groups where it pays.

A block x of the update is rotated, r = R x, and cut into groups of 2^j coordinates. Of each group
the place of the largest is sent, in j bits, and its sign. With q_i = ±1 there and 0 elsewhere,

    decoded = R⁻¹ (s · q),    s = ‖r‖² / ⟨r, q⟩

is unbiased over rotations, as in `eden`. Of m normal coordinates the largest is about √(2 ln m)
deviations long: saying which one it is takes log₂ m bits, and tells more than as many signs do.

The error of a block falls with its bits, so a number of bits does least harm when each block has
them in proportion to its norm. Many blocks of real updates hold next to nothing. A block's j is
written, in four bits, and all bits together are always as many: groups are as small as fits. A
block that is not worth one group, of all its coordinates, is sent by chance, and counts 1/p.

References:
  Vargaftik et al. EDEN: Communication-Efficient and Robust Distributed Mean Estimation, 2022.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from taciturn.checks import number
from taciturn.core.arrays import Array, Scalar, by_rows, namespace
from taciturn.core.codecs import hadamard, halves
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.eden import scale as scale_of
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.hashing import bits as random_bits
from taciturn.core.hashing import fold

_FEWEST = 8  # peaks for which there is room, so that one is always sent
# ⟨r, q⟩ over what is usual that a scale is made for: of one weight alone, 0.26 is left.
_LEAST = 0.25
_NONE = 15  # the depth of a block that is not sent
_OCTAVE = 4  # steps in which norms are told apart
_HIGHEST = 1 << 10  # more than the step of any norm
_ONE = 1 << 12  # a chance of 1, in fixed point
# What scales are multiples of, of the largest: eight for every factor of 2.
_GRID = np.concatenate([[0.0], 2.0 ** ((np.arange(255) - 254) / 8)]).astype(np.float32)


def peaks(bits: float) -> Codec:
    """The largest of each group of rotated weights, with small groups where much has changed.

    Args:
      bits: for each weight, 1/128 to 1, scales and group sizes aside.
    """
    bits = number("bits", bits, 1 / 128, 1.0, "[1/128, 1]")

    def forms(size: int) -> tuple[Form, ...]:
        blocks = hadamard.blocks_of(size)
        return (
            Form("u1", (packed_bytes(room(size, bits), 1),)),
            Form("u1", (packed_bytes(blocks, 4),)),
            Form("u1", (blocks,)),
            Form(halves.DTYPE, (1,)),
        )

    def encode(update: Array, key: Array) -> Code:
        xp, size, update = namespace(update), update.shape[0], single(update)
        found = _find(update, key, room(size, bits))
        where = _where(found.depths, hadamard.block_of(size), room(size, bits))
        groups = _first_group(found.depths, hadamard.block_of(size))
        index = xp.take(groups, where.block) + where.group
        words = found.words[where.block, xp.where(where.used, index, 0)]
        data = (words >> xp.astype(where.bit, xp.uint16)) & 1
        data = xp.where(where.used, data, xp.zeros_like(data))
        return pack(data, 1), pack(found.depths, 4), found.scales, found.top

    def decode(code: Code, key: Array, size: int) -> Array:
        data, depths, scales, top = code
        xp, total = namespace(data), room(size, bits)
        block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
        depths = _allowed(unpack(depths, 4, blocks), block)
        where = _where(depths, block, total)
        row = xp.astype(unpack(data, 1, total), xp.int32)
        row = xp.concat([row, xp.zeros((16,), dtype=row.dtype)])
        words = sum(row[i : i + total] << i for i in range(block.bit_length()))
        depth = xp.take(xp.astype(depths, xp.int32), where.block)
        inside = (words >> 1) & ((xp.ones_like(depth) << depth) - 1)
        place = where.block * block + (where.group << depth) + inside
        begins = where.used & (where.bit == 0)
        each = xp.take(_read(scales, top), where.block)
        values = xp.where((words & 1) == 1, each, -each)
        spread = xp.zeros((blocks * block + 1,), dtype=xp.float32)
        place = xp.where(begins, place, blocks * block)
        if isinstance(spread, np.ndarray):
            spread[place] = values
        else:
            spread = spread.at[place].set(values)
        rows = xp.reshape(spread[:-1], (blocks, block))
        (turned,) = by_rows(lambda q, first: (hadamard.rotate_back(q, key, first),), rows)
        return xp.reshape(turned, (-1,))[:size]

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        # ⟨x, decoded⟩ of a block that is sent is ‖x‖², so it is no shorter than x. Lost are those
        # that were not drawn, which are the short ones; and no scale is more than four times what
        # it is for normal coordinates. Steps of norms and groups are coarse.
        return 0.6 * norm, 1.25 * norm * math.sqrt(1 + _error(bits, size)) / _LEAST

    return Codec(
        "peaks", (("bits", bits),), encode=encode, decode=decode, forms=forms,
        norm_range=norm_range, error=_error(bits, hadamard.BLOCK), unbiased=True,
        through=lambda update, key, rung: through(update, key, room(update.shape[0], bits)),
    )  # fmt: skip


def room(size: int, bits: float) -> int:
    """Bits for places and signs of an update of so many weights."""
    block = hadamard.block_of(size)
    fewest = _FEWEST * block.bit_length()
    return max(fewest, math.ceil(bits * block * hadamard.blocks_of(size)))


def through(update: Array, key: Array, total: Scalar) -> Array:
    """What the server decodes of an update that has so many bits, which may be traced."""
    xp, size, update = namespace(update), update.shape[0], single(update)
    block = hadamard.block_of(size)
    found = _find(update, key, total)
    place = xp.arange(block, dtype=xp.int32)[None, :]
    depth = xp.astype(found.depths, xp.int32)[:, None]
    sent = depth < _NONE
    depth = xp.where(sent, depth, 0)
    index = _first_group(found.depths, block)[:, None] + (place >> depth)
    words = xp.astype(xp.take_along_axis(found.words, index, axis=1), xp.int32)
    scales = _read(found.scales, found.top)[:, None]
    q = xp.where((words & 1) == 1, scales, -scales)
    q = xp.where(sent & ((words >> 1) == place), q, xp.zeros_like(q))
    return xp.reshape(hadamard.rotate_back(q, key, 0), (-1,))[:size]


class _Found(NamedTuple):
    """What is sent of an update.

    Attributes:
      depths: of each block, the j of its groups; _NONE where it is not sent.
      words: of each block, twice the place of the largest coordinate, and 1 more where it is
        positive, of all groups of one, then of two, of four …
      scales, top: in the grid, and what the grid is multiplied by.
    """

    depths: Array
    words: Array
    scales: Array
    top: Array


def _find(update: Array, key: Array, total: Scalar) -> _Found:
    xp, blocks = namespace(update), hadamard.blocks_of(update.shape[0])
    block = hadamard.block_of(update.shape[0])

    def work(x: Array, first: int) -> tuple[Array, Array, Array]:
        return xp.sum(x * x, axis=1), *_tournament(hadamard.rotate(x, key, first))

    squares, words, lengths = by_rows(work, hadamard.cut(update))
    depths, chances = _share_out(squares, block, total, key)
    sent = depths < _NONE
    row = xp.where(sent, depths, 0)
    along = xp.take_along_axis(lengths, row[:, None], axis=1)[:, 0]
    usual = xp.take(xp.asarray(_usual_along(block)), row)
    exact = scale_of(squares, along, _LEAST * usual) / chances
    exact = xp.where(sent, exact, xp.zeros_like(exact))
    top = halves.up(xp.max(exact, keepdims=True))
    drawn = random_bits(fold(key, 4), (blocks,))
    return _Found(xp.astype(depths, xp.uint8), words, _write(exact, top, drawn), top)


def _tournament(r: Array) -> tuple[Array, Array]:
    """The words of all groups of every block, and for each size of groups the sum over them of the
    largest coordinate's length."""
    xp = namespace(r)
    length = xp.abs(r)
    word = 2 * xp.arange(r.shape[1], dtype=xp.uint16)[None, :] + xp.astype(r > 0, xp.uint16)
    words, sums = [word], [xp.sum(length, axis=1)]
    while length.shape[1] > 1:
        later = length[:, 1::2] > length[:, ::2]
        word = xp.where(later, word[:, 1::2], word[:, ::2])
        length = xp.where(later, length[:, 1::2], length[:, ::2])
        words.append(word)
        sums.append(xp.sum(length, axis=1))
    return xp.concat(words, axis=1), xp.stack(sums, axis=1)


def _first_group(depths: Array, block: int) -> Array:
    """Where the words of groups of this depth begin; 0 for blocks that are not sent."""
    xp = namespace(depths)
    depths = xp.astype(depths, xp.int32)
    twice = xp.full_like(depths, 2 * block)
    return xp.where(depths < _NONE, twice - (twice >> xp.minimum(depths, _NONE)), 0)


def _share_out(squares: Array, block: int, total: Scalar, key: Array) -> tuple[Array, Array]:
    """The depth of every block, so that all take `total` bits at the most, and its chance."""
    xp = namespace(squares)
    depth_of, chance_of, cost_of = (xp.asarray(table) for table in _steps(block))
    some, last, single_group = squares > 0, depth_of.shape[0] - 1, block.bit_length()
    # A float32's exponent and first two bits: near enough a logarithm, and the same everywhere.
    levels = xp.astype(xp.sqrt(squares).view(xp.uint32) >> 21, xp.int32)
    total = xp.astype(xp.asarray(total), xp.int32)

    def at(shift: Array) -> tuple[Array, Array, Array]:
        """Steps, chances of those that are not sure, and bits of those that are."""
        step = xp.clip(levels + (shift - _HIGHEST), 0, last)
        chance = xp.take(chance_of, step)
        sure = some & (chance == _ONE)
        zero = xp.zeros_like(step)
        return (
            step,
            xp.where(some & ~sure, chance, zero),
            xp.where(sure, xp.take(cost_of, step), zero),
        )

    def spent(shift: Array) -> Array:
        _, chance, cost = at(shift)
        by_chance = (xp.sum(chance, dtype=xp.int32) + (_ONE - 1)) // _ONE
        return xp.sum(cost, dtype=xp.int32) + single_group * by_chance

    shift = xp.zeros_like(total)
    for i in reversed(range((2 * _HIGHEST).bit_length() - 1)):  # the largest that fits
        further = shift + (1 << i)
        shift = xp.where(spent(further) <= total, further, shift)
    step, chance, cost = at(shift)
    # What is left makes groups of the first blocks smaller by one step.
    finer = xp.clip(step + 1, 0, last)
    more = xp.where(cost > 0, xp.take(cost_of, finer) - cost, xp.zeros_like(cost))
    fits = xp.cumulative_sum(more, dtype=xp.int32) <= total - spent(shift)
    depths = xp.take(depth_of, xp.where(fits, finer, step))
    # Systematic draws: as many as their chances add up to, or one more or less.
    offset = xp.astype(random_bits(fold(key, 5), (1,)) >> 20, xp.int32)
    ends = xp.cumulative_sum(chance, dtype=xp.int32) + offset
    drawn = (ends // _ONE) > ((ends - chance) // _ONE)
    depths = xp.where((cost > 0) | drawn, depths, xp.full_like(depths, _NONE))
    chance = xp.where(drawn, chance, xp.full_like(chance, _ONE))
    return depths, xp.astype(chance, xp.float32) / _ONE


@functools.cache
def _steps(block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each step of what blocks are worth: depth, chance in fixed point, and bits.

    At first a block is worth 1 / _ONE of the bits of a single group, at last all its signs.
    """
    costs = np.array([(block >> j) * (j + 1) for j in range(block.bit_length())])
    steps = np.arange(_OCTAVE * (1 + int(math.log2(_ONE * block))))
    worth = 2.0 ** (steps // _OCTAVE) * (1 + steps % _OCTAVE / _OCTAVE) / _ONE  # groups
    depth = np.abs(np.log(worth[:, None] * costs[-1] / costs)).argmin(axis=1)
    chance = np.where(worth < 1, np.floor(worth * _ONE), _ONE)
    return depth.astype(np.int32), chance.astype(np.int32), costs[depth].astype(np.int32)


class _Where(NamedTuple):
    """What each of a code's bits belongs to.

    Attributes:
      block, group: whose word it is in; the last block where the bit is not used.
      bit: its place in the word.
      used: whether there is such a word.
    """

    block: Array
    group: Array
    bit: Array
    used: Array


def _where(depths: Array, block: int, total: int) -> _Where:
    xp = namespace(depths)
    depths = xp.astype(depths, xp.int32)
    sent = depths < _NONE
    width = xp.where(sent, depths + 1, 1)
    cost = xp.where(sent, (xp.full_like(depths, block) >> xp.minimum(depths, _NONE)) * width, 0)
    ends = xp.cumulative_sum(cost, dtype=xp.int32)
    place = xp.arange(total, dtype=xp.int32)
    own = xp.searchsorted(ends, place, side="right")
    own = xp.astype(xp.minimum(own, depths.shape[0] - 1), xp.int32)
    inside = place - xp.take(ends - cost, own)
    width = xp.take(width, own)
    return _Where(own, inside // width, inside % width, inside < xp.take(cost, own))


def _allowed(depths: Array, block: int) -> Array:
    """The depths, none for those that no block of this size can have."""
    xp = namespace(depths)
    return xp.where(depths < block.bit_length(), depths, xp.full_like(depths, _NONE))


def _write(numbers: Array, top: Array, drawn: Array) -> Array:
    """The places in the grid below or above, by random bits, so that the mean is right."""
    xp, most = namespace(numbers), halves.read(top)
    grid = xp.asarray(_GRID)
    ratio = numbers / xp.where(most > 0, most, xp.ones_like(most))
    below = xp.clip(xp.searchsorted(grid, ratio, side="right") - 1, 0, 254)
    low, high = xp.take(grid, below), xp.take(grid, below + 1)
    chance = xp.astype(drawn >> 8, xp.float32) * 2.0**-24
    return xp.astype(below, xp.uint8) + xp.astype(chance < (ratio - low) / (high - low), xp.uint8)


def _read(places: Array, top: Array) -> Array:
    xp = namespace(places)
    return xp.take(xp.asarray(_GRID), xp.astype(places, xp.int32)) * halves.read(top)


def _usual_along(block: int) -> np.ndarray:
    """⟨r, q⟩ / ‖r‖ of normal coordinates, for each depth."""
    groups = block >> np.arange(block.bit_length())
    return (_LARGEST[: len(groups)] * groups / math.sqrt(block)).astype(np.float32)


def _expected_largest() -> np.ndarray:
    """The expected length of the longest of 1, 2, 4, … 4096 normal numbers, ∫ 1 − P(all < x) dx."""
    x = (np.arange(8_000) + 0.5) / 1_000
    below = np.array([math.erf(y / math.sqrt(2)) for y in x.tolist()])
    return np.array([np.sum(1 - below**m) / 1_000 for m in 2 ** np.arange(13)])


_LARGEST = _expected_largest()


def _error(bits: float, size: int) -> float:
    """Of normal weights in many blocks: of two depths there are as many as the bits allow."""
    block = hadamard.block_of(size)
    depths = np.arange(block.bit_length())
    costs = (depths + 1) / 2.0**depths
    errors = 2.0**depths / _LARGEST[: len(depths)] ** 2 - 1
    return float(np.interp(bits, costs[::-1], errors[::-1]))

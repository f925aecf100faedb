r"""A code of any length for a model of any size: the codec `peaks`.

Up to 1 bit per weight it sends the largest coordinate of every group of rotated ones; above, it is
`eden` with 2, 3 or 4 bits, and float32 where that fits.

A block x of 4,096 weights is rotated, r = R x, and its coordinates are shuffled into groups of 2^j.
Of each group the place of the largest is sent, in j bits, and its sign. With q_i = ±1 there and 0
elsewhere,

    decoded = R⁻¹ (s · q),    s = ‖r‖² / ⟨r, q⟩

is unbiased over rotations, as in `eden`. Of m normal coordinates the largest is about √(2 ln m)
deviations long: saying which one it is takes log₂ m bits, and tells more than as many signs do.

The error of a block falls with its bits, so a number of bits does least harm when each block has
them in proportion to its norm: a block's groups are small where much has changed. A block that is
not worth the fewest groups is sent by chance, and counts 1/p. Where all blocks may be sent, each
has a depth j and a scale; where a message is too short for that, blocks that are sent have a place
in a list of numbered slots, and nothing is written of the others. So what is fixed in a code does
not grow with the model: 32 bytes are enough for a billion weights, with an error to match.

References:
  Vargaftik et al. EDEN: Communication-Efficient and Robust Distributed Mean Estimation, 2022.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from taciturn.checks import number
from taciturn.core import hashing
from taciturn.core.arrays import Array, Scalar, by_rows, namespace, one_if, put
from taciturn.core.codecs import floats, hadamard, packing, shares
from taciturn.core.codecs.codec import Code, Codec, Form, Lengths, single
from taciturn.core.codecs.eden import eden, eden_rows, scale_of
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.codecs.shares import DEPTH, LEAST, NONE, SCALE, draw, layout, share_out
from taciturn.core.parts import Amount
from taciturn.errors import InputError

_LONGER = (eden(2), eden(3), eden(4), floats.float32())  # above 1 bit per weight
_WORD = 2 * hadamard.BLOCK - 1  # the largest: a place and a sign
# ⟨r, q⟩ over what is usual that a scale is made for: of one weight alone, 0.26 is left.
_LEAST_ALONG = 0.25
# What scales are multiples of, of the largest: two for every factor of 2.
_GRID = np.concatenate([[0.0], 2.0 ** ((np.arange(31) - 30) / 2)]).astype(np.float32)
_GRID_ERROR = 0.011  # of a scale that is drawn from the grid: its variance over its square
# The expected length of the longest of 1, 2, 4, … 4096 normal numbers, ∫ 1 − P(all < x) dx.
_BELOW = np.array([math.erf((x + 0.5) / 1_000 / math.sqrt(2)) for x in range(8_000)])
_LARGEST = np.array([np.sum(1 - _BELOW**m) / 1_000 for m in 2 ** np.arange(13)])


def peaks(length: float | str = "4kB") -> Codec:
    """The largest of each group of rotated weights, in as many bytes as are wanted.

    Args:
      length: of a code: bytes, as in 4kB, at least 32; a share of what float32 takes, as in 1%; or
        a number of bits for each weight.
    """
    if isinstance(length, int | float):
        bits = number("length", length, "(0, 32]")
        return _codec(bits, lambda size: _of_bits(bits, size))
    amount = Amount.of(length)
    if amount.is_share:
        return _codec(amount, lambda size: math.ceil(amount.value * 4 * size))
    if amount.value < LEAST:
        raise InputError(f"`length` must be at least {LEAST} bytes, got {amount}.")
    return _codec(amount, lambda size: int(amount.value))


def _codec(length: Any, wanted: Callable[[int], int]) -> Codec:
    """Codes of as many bytes as are wanted for so many weights, or as few as there can be."""

    def chosen(size: int) -> Codec:
        nbytes = fit(size, max(LEAST, wanted(size)))
        fitting = [codec for codec in _LONGER if codec.nbytes(size) <= nbytes]
        return fitting[-1] if fitting else _groups(nbytes)

    return Codec(
        "peaks", (("length", length),),
        encode=lambda update, key: chosen(update.shape[0]).encode(update, key),
        decode=lambda code, key, size: chosen(size).decode(code, key, size),
        forms=lambda size: chosen(size).forms(size),
        norm_range=lambda norm, size: chosen(size).norm_range(norm, size),
        error=lambda size: chosen(size).error(size), unbiased=True,
        lengths=Lengths(_at, fit, through),
    )  # fmt: skip


def _of_bits(bits: float, size: int) -> int:
    """Bytes of so many bits for each weight; above 1, as many as `eden` has with its scales."""
    if bits <= 1:
        return math.ceil(bits * size / 8)
    blocks = hadamard.blocks_of(size)
    return math.ceil(blocks * (bits * hadamard.block_of(size) / 8 + 2))


@functools.lru_cache(maxsize=4096)
def _at(nbytes: int) -> Codec:
    return _codec(Amount.of(f"{nbytes}B"), lambda size: nbytes)


def fit(size: int, nbytes: Any) -> Any:
    """The longest code that has no more bytes, which may be traced."""
    longest = shares.longest(size)
    fitting = nbytes - one_if(nbytes > longest) * (nbytes - longest)
    for codec in _LONGER:
        more = codec.nbytes(size)
        fitting = fitting + one_if(nbytes >= more) * (more - fitting)
    return fitting


def through(update: Array, key: Array, nbytes: Any) -> Array:
    """What is decoded of a code of so many bytes, one of `fit`, which may be traced."""
    xp, size, update = namespace(update), update.shape[0], single(update)
    rows = _rows(update, key, nbytes)
    more = [nbytes >= codec.nbytes(size) for codec in _LONGER]
    bits = 2 + one_if(more[1]) + one_if(more[2])
    rows = xp.where(more[0], eden_rows(update, key, bits), rows)
    read = hadamard.rotate_back(rows, key)
    return xp.where(more[-1], update, xp.reshape(read, (-1,))[:size])


def _groups(nbytes: int) -> Codec:
    """The codec whose codes have so many bytes."""
    of = functools.partial
    return Codec(
        "groups", (("nbytes", nbytes),), encode=of(_encode, nbytes=nbytes),
        decode=of(_decode, nbytes=nbytes), forms=of(_forms, nbytes=nbytes),
        error=of(_error, nbytes=nbytes), norm_range=of(_norm_range, nbytes=nbytes), unbiased=True,
    )  # fmt: skip


def _forms(size: int, nbytes: int) -> tuple[Form, ...]:
    """Numbers of blocks where they are listed, depths, scales, the largest of these, and words."""
    slots, listed, room = layout(size, nbytes)
    listing = packing.position_forms(slots, hadamard.blocks_of(size) + 1) if listed else ()
    depths, scales, words = packed_bytes(slots, DEPTH), packed_bytes(slots, SCALE), room // 8
    numbers = Form("u1", (depths,)), Form("u1", (scales,))
    return *listing, *numbers, Form("<u2", (1,), True), Form("u1", (words,))


def _encode(update: Array, key: Array, nbytes: int) -> Code:
    xp, size, update = namespace(update), update.shape[0], single(update)
    block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
    slots, listed, room = layout(size, nbytes)
    shared = share_out(hadamard.squares(update), size, nbytes)
    depths, chances = draw(*shared, size, nbytes, key)
    numbers = xp.arange(blocks, dtype=xp.int32)
    if listed:  # slots that are left over have the number of no block
        numbers = packing.repeated(xp.astype(depths < NONE, xp.int32), slots)
        depths = xp.take(xp.concat([depths, xp.full_like(depths[:1], NONE)]), numbers)
        chances = xp.take(xp.concat([chances, xp.ones_like(chances[:1])]), numbers)
    words, scales, top = _find(hadamard.take(update, numbers), numbers, depths, chances, key)
    own, group, bit, used = _where(depths, block, room)
    index = xp.take(_first_group(depths, block), own) + group
    words = xp.astype(words[own, xp.where(used, index, 0)], xp.int32)
    inside = words >> xp.maximum(block.bit_length() - xp.take(depths, own), 1)
    data = used & ((xp.where(bit == 0, words, inside >> xp.maximum(bit - 1, 0)) & 1) == 1)
    listing = packing.write_positions(numbers, blocks + 1) if listed else ()
    return *listing, pack(depths, DEPTH), pack(scales, SCALE), top, pack(data, 1)


def _decode(code: Code, key: Array, size: int, nbytes: int) -> Array:
    *listing, depths, scales, top, data = code
    xp, (slots, _, room) = namespace(data), layout(size, nbytes)
    block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
    numbers = xp.arange(blocks, dtype=xp.int32)
    if listing:
        numbers = packing.read_positions(listing[0], listing[1], slots, blocks + 1)
    depths = unpack(depths, DEPTH, slots, np.int32)
    # None for those that no block of this size can have, nor one that does not exist.
    depths = xp.where((depths < block.bit_length()) & (numbers < blocks), depths, NONE)
    own, group, bit, used = _where(depths, block, room)
    row = xp.concat([unpack(data, 1, room, np.int32), xp.zeros((16,), dtype=xp.int32)])
    words = sum(row[i : i + room] << i for i in range(block.bit_length()))
    depth = xp.take(depths, own)
    inside = (words >> 1) & ((xp.ones_like(depth) << depth) - 1)
    groups = xp.full_like(depth, block) >> depth
    shuffled = xp.minimum(inside * groups + group, block - 1)
    place = own * block + xp.take(xp.asarray(_shuffled(block)), shuffled)
    place = xp.where(used & (bit == 0), place, slots * block)  # where a word begins
    each = xp.take(_read(unpack(scales, SCALE, slots), top), own)
    values = xp.where((words & 1) == 1, each, -each)
    spread = put(place, values, slots * block + 1)
    rows = xp.reshape(spread[:-1], (slots, block))

    def back(q: Array, first: int) -> tuple[Array]:
        return (hadamard.rotate_back(q, key, numbers[first : first + q.shape[0]]),)

    (turned,) = by_rows(back, rows)
    # A block that does not exist is the last one, and dropped.
    return xp.reshape(put(numbers, turned, (blocks + 1, block)), (-1,))[:size]


def _rows(update: Array, key: Array, nbytes: Scalar) -> Array:
    """What a code of so many bytes says, which may be traced: blocks to be rotated back."""
    xp, size = namespace(update), update.shape[0]
    block, blocks = hadamard.block_of(size), hadamard.cut(update)
    shared = share_out(hadamard.squares(update), size, nbytes)
    depths, chances = draw(*shared, size, nbytes, key)
    numbers = xp.arange(blocks.shape[0], dtype=xp.int32)
    words, written, top = _find(blocks, numbers, depths, chances, key)
    place = xp.asarray(_shuffled(block).argsort().astype(np.int32))[None, :]
    sent = (depths < NONE)[:, None]
    groups = xp.full_like(depths, block) >> xp.where(depths < NONE, depths, 0)
    index = _first_group(depths, block)[:, None] + (place & (groups - 1)[:, None])
    words = xp.astype(xp.take_along_axis(words, index, axis=1), xp.int32)
    scales = _read(written, top)[:, None]
    q = xp.where((words & 1) == 1, scales, -scales)
    return xp.where(sent & ((words >> 1) == place), q, 0.0)


def _norm_range(norm: Scalar, size: int, nbytes: int) -> tuple[Scalar, Scalar]:
    # ⟨x, decoded⟩ of a block that is sent is ‖x‖², so it is no shorter than x. Lost are those that
    # were not drawn, which are the short ones; and no scale is more than four times what it is for
    # normal coordinates. Steps of norms and groups are coarse.
    return 0.6 * norm, 1.25 * norm * math.sqrt(1 + _error(size, nbytes=nbytes)) / _LEAST_ALONG


@functools.lru_cache(maxsize=1024)
def _error(size: int, nbytes: int) -> float:
    """The expected error of normal weights, whose blocks are all alike."""
    block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
    shared = share_out(np.ones(blocks, np.float32), size, nbytes)
    depths, chances = draw(*shared, size, nbytes, np.zeros(2, np.uint32))
    depths = depths[depths < NONE].astype(int)
    captured = (block >> depths) * _LARGEST[depths] ** 2 / block  # ⟨r, q⟩² / (‖r‖² ‖q‖²)
    return float((1 + _GRID_ERROR) * np.mean(1 / captured) / chances.min() - 1)


def _find(
    rows: Array, numbers: Array, depths: Array, chances: Array, key: Array
) -> tuple[Array, Array, Array]:
    """The words of all groups of some blocks, the blocks' scales in the grid, and what the grid is
    multiplied by."""
    xp, block = namespace(rows), rows.shape[1]
    order = xp.asarray(_shuffled(block))

    def work(x: Array, first: int) -> tuple[Array, Array, Array]:
        own = numbers[first : first + x.shape[0]]
        turned = hadamard.rotate(x, key, own)
        return xp.sum(x * x, axis=1), *_tournament(xp.take(turned, order, axis=1))

    squares, words, lengths = by_rows(work, rows)
    sent = depths < NONE
    row = xp.where(sent, depths, 0)
    along = xp.take_along_axis(lengths, row[:, None], axis=1)[:, 0]
    groups = block >> np.arange(block.bit_length())
    usual = (_LARGEST[: len(groups)] * groups / math.sqrt(block)).astype(np.float32)
    least = _LEAST_ALONG * xp.take(xp.asarray(usual), row)
    exact = scale_of(squares, along, least) / chances
    exact = xp.where(sent, exact, 0.0)
    top = floats.halves_above(xp.max(exact, keepdims=True))
    drawn = hashing.bits_at(hashing.fold(key, hashing.SCALES), numbers)
    return words, _write(exact, top, drawn), top


def _tournament(r: Array) -> tuple[Array, Array]:
    """The words of all groups of one, then of two, of four … of every block: twice the place of the
    largest coordinate, and 1 more where that is positive. And for each size of groups the sum over
    them of that coordinate's length.

    A length and a word share 32 bits, so that the larger of two is one instruction: the length has
    ten bits behind the point, and counts as the middle of what they stand for.
    """
    xp = namespace(r)
    place = 2 * xp.arange(r.shape[1], dtype=xp.uint32)[None, :]
    lengths = r.view(xp.uint32) & (0x7FFFFFFF - _WORD)
    both = lengths | place | xp.astype(r > 0, xp.uint32)
    words, sums = [], []
    while True:
        words.append(xp.astype(both & _WORD, xp.uint16))
        sums.append(xp.sum(((both | _WORD) - (_WORD >> 1)).view(xp.float32), axis=1))
        if not (half := both.shape[1] // 2):
            return xp.concat(words, axis=1), xp.stack(sums, axis=1)
        both = xp.maximum(both[:, :half], both[:, half:])


@functools.cache
def _shuffled(block: int) -> np.ndarray:
    """The coordinates of a block in the order in which they are grouped, the same for all keys.

    Of a few equal weights at places that a Hadamard matrix treats alike, only every second, fourth
    or eighth coordinate may be left. Shuffled, they are in all groups, and not in some alone.
    """
    return hashing.bits(np.zeros(2, np.uint32), (block,)).argsort(kind="stable").astype(np.int32)


def _first_group(depths: Array, block: int) -> Array:
    """Where the words of groups of this depth begin; 0 for blocks that are not sent."""
    xp = namespace(depths)
    twice = xp.full_like(depths, 2 * block)
    return xp.where(depths < NONE, twice - (twice >> xp.minimum(depths, NONE)), 0)


def _where(depths: Array, block: int, total: int) -> tuple[Array, Array, Array, Array]:
    """What each of a code's bits belongs to: the block, which is the last one where the bit is not
    used, the group, the place in the group's word, and whether it is used."""
    xp, sent = namespace(depths), depths < NONE
    width = xp.where(sent, depths + 1, 1)
    cost = xp.where(sent, (xp.full_like(depths, block) >> xp.minimum(depths, NONE)) * width, 0)
    ends = xp.cumulative_sum(cost, dtype=xp.int32)
    place = xp.arange(total, dtype=xp.int32)
    own = xp.searchsorted(ends, place, side="right")
    own = xp.astype(xp.minimum(own, depths.shape[0] - 1), xp.int32)
    inside = place - xp.take(ends - cost, own)
    width = xp.take(width, own)
    return own, inside // width, inside % width, inside < xp.take(cost, own)


def _write(numbers: Array, top: Array, drawn: Array) -> Array:
    """The places in the grid below or above, by random bits, so that the mean is right."""
    xp, most = namespace(numbers), floats.read_halves(top)
    grid = xp.asarray(_GRID)
    ratio = numbers / xp.where(most > 0, most, 1.0)
    below = xp.clip(xp.searchsorted(grid, ratio, side="right") - 1, 0, len(_GRID) - 2)
    low, high = xp.take(grid, below), xp.take(grid, below + 1)
    chance = xp.astype(drawn >> 8, xp.float32) * 2.0**-24
    return xp.astype(below, xp.uint8) + xp.astype(chance < (ratio - low) / (high - low), xp.uint8)


def _read(places: Array, top: Array) -> Array:
    xp = namespace(places)
    return xp.take(xp.asarray(_GRID), xp.astype(places, xp.int32)) * floats.read_halves(top)

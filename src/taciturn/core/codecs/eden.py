r"""EDEN: a random rotation, few bits for each coordinate, one scale for each block.

A block x of the update is rotated, r = R x. Below one bit, ⌈b · block⌉ coordinates S are drawn and
their signs sent; from one bit on, all coordinates are sent as Lloyd–Max levels q(r) of a normal
distribution, which is what rotated coordinates look like. With q_i = 0 outside of S,

    decoded = R⁻¹ (s · q),    s = ‖r‖² / ⟨r, q⟩

keeps ⟨x, decoded⟩ = ‖x‖² in every draw, and so is unbiased over rotations. With feedback the scale
is that of least error, s = ⟨r, q⟩ / ‖q‖².

Of 2, 4, 8 or 16 equal weights at places that a Hadamard matrix treats alike, now and then only one
coordinate in as many is not 0, and few or none of these are drawn. So that s has a bound, mean |r|
over S counts as a quarter of r's rms at the least: one such block in some thousands is then decoded
too short.

References:
  Vargaftik et al. EDEN: Communication-Efficient and Robust Distributed Mean Estimation, 2022.
  Vargaftik et al. DRIVE: One-bit Distributed Mean Estimation, 2021.
"""

import math

import numpy as np

from taciturn.checks import flag, number
from taciturn.core import hashing
from taciturn.core.arrays import Array, Scalar, by_rows, namespace
from taciturn.core.codecs import floats, hadamard
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.errors import InputError

# Positive levels of the best quantiser of a standard normal, and its squared error.
LEVELS = {
    1: (0.7978846,),
    2: (0.4527800, 1.5104176),
    3: (0.2450940, 0.7560052, 1.3439092, 2.1519457),
    4: (0.1283950, 0.3880483, 0.6567589, 0.9423404, 1.2562309, 1.6180464, 2.0690172, 2.7326357),
}
_SIGNED = {bits: np.array([*(-x for x in levels[::-1]), *levels], np.float32)
           for bits, levels in LEVELS.items()}  # fmt: skip
_DISTORTION = {1: 0.3633802, 2: 0.1174819, 3: 0.0345478, 4: 0.0095011}
_FEWEST = 64  # coordinates of a block: fewer would now and then miss all that there is
_LEAST = 0.25  # mean |r| over rms that a scale is made for; 0.8 is usual


def eden(bits: float, feedback: bool = False) -> Codec:
    """A random rotation and few bits for each weight: 0.02 to 1, then 2, 3 or 4.

    Args:
      bits: for each weight. Below 1, that share of the rotated coordinates has one.
      feedback: True for the way down: the scale of least error, and not the unbiased one.
    """
    feedback = flag("feedback", feedback)
    bits = number("bits", bits, "[0.02, 4]")
    if bits > 1 and bits not in LEVELS:
        raise InputError(f"`bits` must be in [0.02, 1], or 2, 3 or 4, got {bits:g}.")
    whole = max(1, int(bits))

    def forms(size: int) -> tuple[Form, ...]:
        blocks = hadamard.blocks_of(size)
        signs = Form("u1", (packed_bytes(blocks * kept(size, bits), whole),))
        return signs, Form("<u2", (blocks,), True)

    def encode(update: Array, key: Array) -> Code:
        xp, size, update = namespace(update), update.shape[0], single(update)
        block, count = hadamard.block_of(size), kept(size, bits)
        places = _places(key, size, count)
        # From 2 bits on, no block is far from usual.
        least = _LEAST * LEVELS[1][0] * count / math.sqrt(block) if whole == 1 else 0.0

        def work(x: Array, first: int) -> tuple[Array, Array]:
            r = hadamard.rotate(x, key, first)
            squares = xp.sum(x * x, axis=1)
            chosen = r if places is None else xp.take(r, places, axis=1)
            index, level = _quantize(chosen, squares, whole)
            along = xp.sum(chosen * level, axis=1)
            if feedback:
                return index, along / xp.sum(level * level, axis=1)
            return index, scale_of(squares, along, least)

        index, scales = by_rows(work, hadamard.cut(update))
        written = floats.nearest_halves(scales) if feedback else floats.drawn_halves(scales, key)
        return pack(xp.reshape(index, (-1,)), whole), written

    def decode(code: Code, key: Array, size: int) -> Array:
        data, scales = code[0], floats.read_halves(code[1])
        xp = namespace(scales)
        blocks, block, count = hadamard.blocks_of(size), hadamard.block_of(size), kept(size, bits)
        places = _places(key, size, count)
        index = xp.reshape(unpack(data, whole, blocks * count), (blocks, count))
        levels = xp.asarray(_SIGNED[whole], dtype=scales.dtype)

        def work(rows: Array, first: int) -> tuple[Array]:
            values = xp.take(levels, xp.astype(rows, xp.int32))
            values = values * scales[first : first + rows.shape[0], None]
            if places is not None:
                values = _spread(values, places, block)
            return (hadamard.rotate_back(values, key, first),)

        (turned,) = by_rows(work, index)
        return xp.reshape(turned, (-1,))[:size]

    captured = min(1.0, bits) * (1 - _DISTORTION[whole])  # ⟨r, q⟩² / (‖r‖² ‖q‖²)
    return Codec(
        "eden", (("bits", bits), ("feedback", feedback)), encode=encode, decode=decode, forms=forms,
        norm_range=lambda norm, size: _norm_range(norm, size, bits, feedback),
        error=lambda size: 1 - captured if feedback else 1 / captured - 1, unbiased=not feedback,
        feedback=feedback,
    )  # fmt: skip


def _norm_range(norm: Scalar, size: int, bits: float, feedback: bool) -> tuple[Scalar, Scalar]:
    # ⟨r, q⟩ / (‖r‖ ‖q‖) for 1 bit is mean |r| over rms, times √(count / block). 16 equal weights
    # leave one coordinate in 16 in 5e-4 of all rotations, and 32 one in 32 in 2e-8; of those, 3
    # deviations fewer than usual are drawn once in a thousand times.
    count, block = kept(size, bits), hadamard.block_of(size)
    least = _LEAST if bits < 2 else 0.607
    sure = least if count == block else max(0.0, least - 3 / math.sqrt(count))
    part, whole = math.sqrt(count / block), size % block == 0
    if feedback:
        # Of a block that is filled up, ⟨x, decoded⟩ / ‖x‖ is left where the update ends.
        return 0.995 * norm * (sure * part) ** (1 if whole else 2), 1.005 * norm
    # A scale is off by 1 part in 128 at the most.
    return 0.99 * (1.0 if whole else sure / least) * norm, 1.01 * norm / (least * part)


def eden_rows(update: Array, key: Array, bits: Scalar) -> Array:
    """What is decoded of a code with 2, 3 or 4 bits, which may be traced, but not rotated back."""
    xp, x = namespace(update), hadamard.cut(update)
    r, squares = hadamard.rotate(x, key), xp.sum(x * x, axis=1)
    unit = _in_deviations(r, squares)
    borders, steps = xp.asarray(np.array([_borders(bits) for bits in (2, 3, 4)]))[bits - 2]
    q = xp.zeros_like(r) - xp.sum(steps) / 2
    for i in range(borders.shape[0]):
        q = q + xp.where(unit > borders[i], steps[i], 0.0)
    scales = floats.drawn_halves(scale_of(squares, xp.sum(r * q, axis=1), 0.0), key)
    return q * floats.read_halves(scales)[:, None]


def _borders(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Borders between levels, and by how much a level rises there; as many as 4 bits have."""
    levels, missing = _SIGNED[bits], (0, 16 - 2**bits)
    borders = np.pad((levels[1:] + levels[:-1]) / 2, missing, constant_values=np.inf)
    return borders, np.pad(np.diff(levels), missing)


def scale_of(squares: Array, along: Array, least: Scalar) -> Array:
    """‖r‖² / ⟨r, q⟩ of every block, where ⟨r, q⟩ counts as at least so many times r's norm."""
    xp = namespace(squares)
    along = xp.maximum(along, least * xp.sqrt(squares))
    some = along > 0
    return xp.where(some, squares / xp.where(some, along, 1.0), along)


def kept(size: int, bits: float) -> int:
    """Coordinates of a block that are sent."""
    block = hadamard.block_of(size)
    return min(block, max(_FEWEST, math.ceil(block * bits)))


def _places(key: Array, size: int, count: int) -> Array | None:
    """The coordinates that are sent, the same in all blocks of a message; None for all."""
    xp, block = namespace(key), hadamard.block_of(size)
    if count == block:
        return None
    order = xp.argsort(hashing.bits(hashing.fold(key, hashing.COORDINATES), (block,)), stable=True)
    return xp.sort(order[:count])


def _quantize(r: Array, squares: Array, bits: int) -> tuple[Array, Array]:
    """The number of each coordinate's level and the level, in units of the block's rms."""
    xp = namespace(r)
    if bits == 1:
        positive = r > 0
        level = xp.asarray(LEVELS[1][0], dtype=r.dtype)
        return xp.astype(positive, xp.uint8), xp.where(positive, level, -level)
    unit, levels = _in_deviations(r, squares), _SIGNED[bits]
    index = xp.zeros(r.shape, dtype=xp.uint8)
    for border in (levels[1:] + levels[:-1]) / 2:
        index = index + xp.astype(unit > float(border), xp.uint8)
    return index, xp.take(xp.asarray(levels, dtype=r.dtype), xp.astype(index, xp.int32))


def _in_deviations(r: Array, squares: Array) -> Array:
    """The coordinates over their block's rms."""
    xp = namespace(r)
    rms = xp.sqrt(squares / r.shape[1])[:, None]
    return r / xp.where(rms > 0, rms, 1.0)


def _spread(values: Array, places: Array, block: int) -> Array:
    """The values at their places, and 0 elsewhere."""
    if isinstance(values, np.ndarray):
        tiles = np.zeros((values.shape[0], block), values.dtype)
        tiles[:, places] = values
        return tiles
    xp = namespace(values)
    # A gather instead of a scatter, which a GPU is slow at: every coordinate's place among those
    # that were sent, or the column of zeros behind them.
    every, count = xp.arange(block), len(places)
    where = xp.searchsorted(places, every)
    sent = xp.take(places, xp.minimum(where, count - 1)) == every
    where = xp.where(sent, where, count)
    padded = xp.concat([values, xp.zeros((values.shape[0], 1), dtype=values.dtype)], axis=1)
    return xp.take(padded, where, axis=1)

r"""As many bits as a client is given, in the better of two codes, or in `peaks`.

A *level* is a number of bits per weight: 1/128 to 1 in steps of √2, then 2, 3 and 4. On the first
rungs is `draw_k`, one for each level up to 1 bit, on the others `eden`, from 1/45 bits on. Where a
few weights hold most of an update, the error of `draw_k` is smaller. On the ladder `PEAKS` every
level is one rung: `peaks` up to 1 bit, then `eden`. Which rung a client stands on is its rule's
choice and goes into the message's header, so a code's length still depends on nothing but size and
rung.

A compiled program does not know the rung when it is made: `through` computes what the server
decodes for a rung that is traced. In `eden`, signs outside of the coordinates that are sent count
as 0, and borders between levels that a rung does not have lie at infinity.
"""

import dataclasses

import numpy as np

from taciturn.core.arrays import Array, Scalar, library, namespace
from taciturn.core.codecs import hadamard, halves
from taciturn.core.codecs.codec import Codec, single
from taciturn.core.codecs.draw_k import counted, decoded, draw_k, draws, share_of
from taciturn.core.codecs.eden import LEVELS, eden, kept, least_along, order, scale
from taciturn.core.codecs.peaks import peaks, room
from taciturn.core.codecs.peaks import through as through_peaks
from taciturn.core.hashing import bits as random_bits
from taciturn.core.hashing import fold

BITS = (*(2.0 ** (i / 2 - 7) for i in range(15)), 2.0, 3.0, 4.0)
_SHARES = tuple(share_of(bits) for bits in BITS if bits <= 1)
_EDEN = tuple(bits for bits in BITS if bits >= 0.02)
_BETWEEN = np.sqrt(np.array(BITS[1:]) * np.array(BITS[:-1]))  # in proportion, half-way
_MOST = 16  # values that a weight may have in `eden`
RUNGS = (*(draw_k(share) for share in _SHARES), *(eden(bits) for bits in _EDEN))
_PEAKS = tuple(bits for bits in BITS if bits <= 1)
_PEAK_RUNGS = tuple(peaks(bits) if bits <= 1 else eden(bits) for bits in BITS)


def level_of(bits: Scalar) -> Scalar:
    """The number of the level that is nearest to so many bits per weight, in proportion."""
    xp = library(bits)
    found = xp.zeros_like(xp.asarray(bits), dtype=xp.int32)
    for between in _BETWEEN.tolist():
        found = found + xp.astype(xp.asarray(bits > between), xp.int32)
    return found


def rung_of(bits: Scalar, evenness: Scalar) -> Scalar:
    """The rung with so many bits per weight whose error is smaller.

    Args:
      bits: per weight; the nearest level is taken.
      evenness: ‖x‖₁² / (size ‖x‖²) of the update. This over the share of `draw_k`, less 1, is its
        error.
    """
    level = level_of(bits)
    xp = namespace(level)
    limits = xp.asarray(_limits(), dtype=xp.float32)
    drawn = evenness < xp.take(limits, level)
    return xp.where(drawn, level, level + (len(RUNGS) - len(BITS)))


def _limits() -> list[float]:
    """Below which evenness `draw_k` is better, for each level."""
    lacking = len(BITS) - len(_EDEN)
    both = zip(_SHARES[lacking:], RUNGS[len(_SHARES) :], strict=False)
    found = [np.inf] * lacking + [share * (1 + code.error) for share, code in both]
    return found + [0.0] * (len(BITS) - len(found))


def through(update: Array, key: Array, rung: Array) -> Array:
    """What the server decodes of an update that was written on a rung, which may be traced."""
    xp, update = namespace(update), single(update)
    most = len(_SHARES)
    counts = xp.asarray([counted(update.shape[0], share) for share in _SHARES], dtype=xp.int32)
    drawn = draws(update, key, counts[xp.clip(rung, 0, most - 1)])
    turned = _through_eden(update, key, xp.clip(rung - most, 0, len(_EDEN) - 1))
    return xp.where(rung < most, decoded(update, *drawn), turned)


def _through_peaks(update: Array, key: Array, rung: Array) -> Array:
    """The same on the ladder `PEAKS`."""
    xp, update = namespace(update), single(update)
    most = len(_PEAKS)
    totals = xp.asarray([room(update.shape[0], bits) for bits in _PEAKS], dtype=xp.int32)
    peaked = through_peaks(update, key, totals[xp.clip(rung, 0, most - 1)])
    last = len(_EDEN) - 1
    turned = _through_eden(update, key, xp.clip(rung - len(BITS) + 1 + last, 0, last))
    return xp.where(rung < most, peaked, turned)


def _through_eden(update: Array, key: Array, place: Array) -> Array:
    """The same for the rungs of `eden`, by their place among these."""
    xp, size = namespace(update), update.shape[0]
    block, blocks = hadamard.block_of(size), hadamard.blocks_of(size)
    counts = xp.asarray([kept(size, min(1.0, bits)) for bits in _EDEN], dtype=xp.int32)
    rank = xp.argsort(order(key, block), stable=True)
    sent = (rank < counts[place])[None, :]
    borders, levels = (xp.asarray(table)[place] for table in _tables())
    x = hadamard.cut(update)
    r = hadamard.rotate(x, key, 0)
    squares = xp.sum(x * x, axis=1)
    rms = xp.sqrt(squares / block)[:, None]
    unit = r / xp.where(rms > 0, rms, xp.ones_like(rms))
    index = xp.zeros(r.shape, dtype=xp.int32)
    for i in range(_MOST - 1):
        index = index + xp.astype(unit > borders[i], xp.int32)
    q = xp.where(sent, xp.take(levels, index), 0.0)
    least = xp.asarray([least_along(size, bits) for bits in _EDEN], dtype=x.dtype)[place]
    scales = scale(squares, xp.sum(r * q, axis=1), least)
    scales = halves.read(halves.drawn(scales, random_bits(fold(key, 4), (blocks,))))
    return xp.reshape(hadamard.rotate_back(q * scales[:, None], key, 0), (-1,))[:size]


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Borders between levels, filled up with infinity, and levels of every rung of `eden`."""
    borders = np.full((len(_EDEN), _MOST - 1), np.inf, np.float32)
    levels = np.zeros((len(_EDEN), _MOST), np.float32)
    for i, bits in enumerate(_EDEN):
        positive = np.array(LEVELS[max(1, int(bits))], np.float32)
        own = np.concatenate([-positive[::-1], positive])
        levels[i, : len(own)] = own
        borders[i, : len(own) - 1] = (own[1:] + own[:-1]) / 2
    return borders, levels


# Without a rung it is its lowest one.
LADDER: Codec = dataclasses.replace(
    RUNGS[0], name="ladder", params=(), rungs=RUNGS, through=through
)
PEAKS: Codec = dataclasses.replace(
    _PEAK_RUNGS[0], name="ladder", params=(("codec", "peaks"),), rungs=_PEAK_RUNGS,
    through=_through_peaks,
)  # fmt: skip

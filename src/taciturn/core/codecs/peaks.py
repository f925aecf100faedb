"""A code of any length for a model of any size: the codec `peaks`.

Up to 1 bit per weight it is what `taciturn.core.codecs.groups` writes; above, it is `eden` with 2,
3 or 4 bits, and float32 where that fits.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from taciturn.checks import number
from taciturn.core.arrays import Array, namespace, one_if
from taciturn.core.codecs import groups, hadamard, shares
from taciturn.core.codecs.codec import Codec, Lengths, single
from taciturn.core.codecs.eden import eden
from taciturn.core.codecs.eden import rows as eden_rows
from taciturn.core.codecs.floats import float32
from taciturn.core.parts import Amount
from taciturn.errors import InputError

LEAST = shares.LEAST
_LONGER = (eden(2), eden(3), eden(4), float32())  # above 1 bit per weight


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
        return fitting[-1] if fitting else groups.groups(nbytes)

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
    rows = groups.rows(update, key, nbytes)
    more = [nbytes >= codec.nbytes(size) for codec in _LONGER]
    bits = 2 + one_if(more[1]) + one_if(more[2])
    rows = xp.where(more[0], eden_rows(update, key, bits), rows)
    read = hadamard.rotate_back(rows, key)
    return xp.where(more[-1], update, xp.reshape(read, (-1,))[:size])

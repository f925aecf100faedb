"""Small whole numbers, and positions, in few bits.

Numbers are in bytes of eight bits, the first in the lowest place. Positions are k numbers below n,
in order, in about k (2 + log₂(n / k)) bits, always as many: the lower bits of every position stand
as they are, and the upper ones, which never fall from one position to the next, are written as a
row of bits: position i with upper part u sets bit u + i.

References:
  Elias. Efficient Storage and Retrieval by Content and Address of Static Files, 1974.
"""

from typing import Any

import numpy as np

from taciturn.core.arrays import Array, namespace, one_if
from taciturn.core.codecs.codec import Form


def packed_bytes(count: Any, bits: int) -> Any:
    """How many bytes so many numbers of so many bits take; their number may be traced."""
    return -(-count * bits // 8)


def pack(numbers: Array, bits: int) -> Array:
    """Numbers below 2^bits, a flat vector, as bytes."""
    xp = namespace(numbers)
    if bits != 1:
        numbers = (numbers[:, None] >> xp.arange(bits, dtype=numbers.dtype)[None, :]) & 1
    flat = xp.astype(xp.reshape(numbers, (-1,)), xp.uint8, copy=False)
    return xp.packbits(flat, bitorder="little")


def unpack(data: Array, bits: int, count: int, dtype: Any = np.uint8) -> Array:
    """The first so many numbers of so many bits in these bytes."""
    xp = namespace(data)
    flat = xp.astype(xp.unpackbits(data, count=count * bits, bitorder="little"), dtype, copy=False)
    if bits == 1:
        return flat
    planes = xp.reshape(flat, (count, bits)) << xp.arange(bits, dtype=dtype)[None, :]
    return xp.sum(planes, axis=1, dtype=dtype)


def low_bits(count: Any, size: int) -> Any:
    """Lower bits of a position that stand as they are; the number of positions may be traced."""
    return sum(one_if(size // count >= (1 << i)) for i in range(1, size.bit_length()))


def _row(count: Any, size: int) -> Any:
    """Bits in the row of upper parts."""
    return count + ((size - 1) >> low_bits(count, size)) + 1


def position_bytes(count: Any, size: int) -> tuple[Any, Any]:
    """Bytes of the lower and of the upper bits of so many positions, which may be traced."""
    return packed_bytes(count * low_bits(count, size), 1), packed_bytes(_row(count, size), 1)


def position_forms(count: int, size: int) -> tuple[Form, ...]:
    """Of the lower and the upper bits of so many positions below `size`."""
    return tuple(Form("u1", (length,)) for length in position_bytes(count, size))


def write_positions(positions: Array, size: int) -> tuple[Array, Array]:
    """Sorted positions as bytes."""
    xp, count = namespace(positions), positions.shape[0]
    bits = low_bits(count, size)
    at = (positions >> bits) + xp.arange(count, dtype=positions.dtype)
    row = xp.arange(_row(count, size), dtype=positions.dtype)
    where = xp.clip(xp.searchsorted(at, row), 0, count - 1)
    upper = xp.take(at, where) == row
    return pack(positions, bits), pack(upper, 1)


def read_positions(low: Array, upper: Array, count: int, size: int) -> Array:
    """The positions in these bytes; wrong bytes give positions too, all below `size`."""
    xp = namespace(low)
    bits = low_bits(count, size)
    at = repeated(unpack(upper, 1, _row(count, size)), count)
    high = at - xp.arange(count, dtype=xp.int32)
    return xp.clip((high << bits) + unpack(low, bits, count, np.int32), 0, size - 1)


def repeated(times: Array, count: int) -> Array:
    """The first `count` positions, each as often as `times` says; filled up with `len(times)`."""
    xp = namespace(times)
    # The i-th of them is where this sum first reaches i + 1.
    seen = xp.cumulative_sum(times, dtype=xp.int32)
    found = xp.searchsorted(seen, xp.arange(1, count + 1, dtype=xp.int32))
    return xp.astype(found, xp.int32)

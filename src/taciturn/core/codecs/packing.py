"""Small whole numbers in few bits: bytes of eight bits, the first in the lowest place."""

from typing import Any

import numpy as np

from taciturn.core.arrays import Array, namespace


def packed_bytes(count: Any, bits: int) -> Any:
    """How many bytes so many numbers of so many bits take; their number may be traced."""
    return -(-count * bits // 8)


def pack(numbers: Array, bits: int) -> Array:
    """Numbers below 2^bits, a flat vector, as bytes."""
    if isinstance(numbers, np.ndarray):
        planes: Array = np.asarray(numbers, np.uint8)[:, None]
        if bits > 1:
            planes = (planes >> np.arange(bits, dtype=np.uint8)[None, :]) & 1
        return np.packbits(planes.reshape(-1), bitorder="little")
    xp = namespace(numbers)
    places = xp.arange(bits, dtype=xp.uint8)[None, :]
    planes = xp.astype(numbers, xp.uint8)[:, None] >> places
    flat = xp.reshape(planes & 1, (-1,))
    missing = packed_bytes(numbers.shape[0], bits) * 8 - flat.shape[0]
    flat = xp.concat([flat, xp.zeros((missing,), dtype=xp.uint8)])
    eights = xp.reshape(flat, (-1, 8)) << xp.arange(8, dtype=xp.uint8)[None, :]
    return xp.sum(eights, axis=1, dtype=xp.uint8)


def unpack(data: Array, bits: int, count: int) -> Array:
    """The first so many numbers of so many bits in these bytes, as uint8."""
    if isinstance(data, np.ndarray):
        flat = np.unpackbits(data, count=count * bits, bitorder="little")
    else:
        xp = namespace(data)
        eights = (data[:, None] >> xp.arange(8, dtype=xp.uint8)[None, :]) & 1
        flat = xp.reshape(eights, (-1,))[: count * bits]
    if bits == 1:
        return flat
    xp = namespace(flat)
    planes = xp.reshape(flat, (count, bits)) << xp.arange(bits, dtype=xp.uint8)[None, :]
    return xp.sum(planes, axis=1, dtype=xp.uint8)

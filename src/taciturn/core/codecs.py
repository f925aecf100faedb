"""Codecs: how an update that is spoken is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from taciturn.core.arrays import Array
from taciturn.core.parts import Part
from taciturn.errors import InputError


@dataclass(frozen=True)
class Codec(Part):
    """Writes updates down.

    Attributes:
      write: `(update) -> bytes`.
      read: `(bytes, size) -> update`, a NumPy array.
      nbytes: `(size) -> int`, exactly how many bytes `write` gives for so many weights.
    """

    write: Callable[[Array], bytes] = field(kw_only=True, compare=False, repr=False)
    read: Callable[[bytes, int], np.ndarray] = field(kw_only=True, compare=False, repr=False)
    nbytes: Callable[[int], int] = field(kw_only=True, compare=False, repr=False)


def float32() -> Codec:
    """Four bytes per weight, little-endian, as they are."""

    def write(update: Array) -> bytes:
        return np.asarray(update).astype("<f4", copy=False).tobytes()

    def read(data: bytes, size: int) -> np.ndarray:
        if len(data) != 4 * size:
            raise InputError(f"{size} float32 weights take {4 * size} bytes, got {len(data)}.")
        return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)

    return Codec("float32", write=write, read=read, nbytes=lambda size: 4 * size)

"""What every codec is: pure functions that write an update down and read it back.

A *code* is a tuple of arrays whose shapes depend on the number of weights alone, so that a compiled
program can make one and its bytes are known before anything is sent. The *key* is two words that
both sides know (`taciturn.core.hashing`): masks and rotations are drawn from it and never travel.

With *feedback* a client keeps what a codec left out, its residual e: it encodes x = Δ + e, and e
becomes x − decoded. That needs the form of least error, which is a contraction, ‖x − decoded‖² ≤
(1 − δ) ‖x‖²: around an unbiased form, whose error may be larger than x, residuals grow without end.

References:
  Karimireddy et al. Error Feedback Fixes SignSGD and other Gradient Compression Schemes, 2019.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace
from taciturn.core.parts import Part
from taciturn.errors import InputError

Code = tuple[Array, ...]


class Form(NamedTuple):
    """The dtype and shape of an array of a code, and whether it holds upper halves of float32."""

    dtype: str
    shape: tuple[int, ...]
    upper: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Lengths(NamedTuple):
    """Of a codec whose codes can have any length."""

    at: Callable[[int], "Codec"]  # the codec whose codes have so many bytes
    # (size, bytes) -> bytes of the longest code that has no more; the number may be traced
    fit: Callable[[int, Any], Any]
    # (update, key, bytes) -> what is decoded of a code of so many; a traced number that `fit` gave
    through: Callable[[Array, Array, Any], Array]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Codec(Part):
    """Writes updates down.

    Attributes:
      encode: `(update, key) -> code`; the update is a flat vector of float32.
      decode: `(code, key, size) -> update`.
      forms: `(size) -> forms` of the arrays of a code for so many weights.
      error: `(size) -> error`, the expected ‖decoded − update‖² / ‖update‖² of a dense update of
        so many weights, over keys; 0 where nothing is lost.
      unbiased: whether the expected decoded update is the update, over keys.
      norm_range: `(norm, size) -> (low, high)`: the norm of what is decoded from an update of this
        norm lies outside with a probability below 1e-6.
      feedback: whether clients keep what was left out; the codec then has its least-error form.
      lengths: of a codec whose codes can have any length, for rules that give each client a number
        of bytes.
    """

    encode: Callable[[Array, Array], Code]
    decode: Callable[[Code, Array, int], Array]
    forms: Callable[[int], tuple[Form, ...]]
    error: Callable[[int], float]
    unbiased: bool
    norm_range: Callable[[Scalar, int], tuple[Scalar, Scalar]]
    feedback: bool = False
    lengths: Lengths | None = None

    @property
    def structure(self) -> tuple[Any, ...]:
        """All arguments: a codec's numbers set shapes."""
        return (self.name, *self.params)

    def stretch(self, size: int) -> float:
        """The norm of what is decoded of a dense update, over the update's."""
        error = self.error(size)
        return math.sqrt(1 + error if self.unbiased else 1 - error)

    def at(self, nbytes: int) -> "Codec":
        """The codec whose codes have so many bytes; itself where no rule gives it a length."""
        return self if self.lengths is None or not nbytes else self.lengths.at(nbytes)

    def nbytes(self, size: int) -> int:
        """Exactly how many bytes a code for so many weights has."""
        return sum(form.nbytes for form in self.forms(size))


def single(update: Array) -> Array:
    """The update in float32, which is what is written down."""
    return namespace(update).astype(update, np.float32, copy=False)


def to_bytes(codec: Codec, code: Code, size: int) -> bytes:
    """A code as bytes, little-endian, one array behind another."""
    arrays = zip(code, codec.forms(size), strict=True)
    return b"".join(
        np.ascontiguousarray(array, np.dtype(form.dtype)).tobytes() for array, form in arrays
    )


def from_bytes(codec: Codec, data: bytes, size: int) -> Code:
    """The code in these bytes, or an error if they cannot be one."""
    if len(data) != codec.nbytes(size):
        raise InputError(
            f"{size} weights take {codec.nbytes(size)} bytes in `{codec.name}`, got {len(data)}."
        )
    found, start = [], 0
    for form in codec.forms(size):
        flat = np.frombuffer(data, np.dtype(form.dtype), math.prod(form.shape), start)
        finite = (flat & 0x7F80) != 0x7F80 if form.upper else np.isfinite(flat)
        if not finite.all():
            raise InputError(f"A code of `{codec.name}` has numbers that are not finite.")
        found.append(flat.reshape(form.shape).astype(flat.dtype.newbyteorder("=")))
        start += form.nbytes
    return tuple(found)

r"""Quantised weights: each on one of 2^bits levels, chosen at random so that the mean is right.

In a block with largest size M, levels lie evenly from −M to M, Δ = 2M / (2^bits − 1) apart. A
weight goes to one of its two neighbours with the probability that makes it unbiased.

References:
  Alistarh et al. QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017.
"""

import math

from taciturn.checks import whole
from taciturn.core import hashing
from taciturn.core.arrays import Array, Scalar, in_rows, namespace
from taciturn.core.codecs import floats
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack

_BLOCK = 256
# The largest of so many normal draws is about this many deviations away.
_LARGEST = 2.83


def quantize(bits: float) -> Codec:
    """So many bits per weight, 1 to 8, at random so that the mean is right.

    Args:
      bits: for each weight.
    """
    is_whole = isinstance(bits, float) and bits.is_integer()
    bits = whole("bits", int(bits) if is_whole else bits, 1, 8)
    steps = 2**bits - 1

    def encode(update: Array, key: Array) -> Code:
        xp, size, blocks = namespace(update), update.shape[0], in_rows(single(update), _BLOCK)
        written = floats.halves_above(xp.max(xp.abs(blocks), axis=1))
        largest = floats.read_halves(written)
        apart = xp.where(largest > 0, largest, 1.0)[:, None] * (2 / steps)
        place = xp.reshape(blocks / apart + steps / 2, (-1,))[:size]
        drawn = hashing.bits(hashing.fold(key, hashing.LEVELS), (size,))
        chance = xp.astype(drawn >> 8, blocks.dtype) * 2.0**-24
        index = xp.clip(xp.floor(place + chance), 0, steps)
        return pack(xp.astype(index, xp.uint8), bits), written

    def decode(code: Code, key: Array, size: int) -> Array:
        data, largest = code[0], floats.read_halves(code[1])
        xp = namespace(largest)
        index = xp.astype(unpack(data, bits, size), largest.dtype)
        apart = xp.repeat(largest, _BLOCK)[:size] * (2 / steps)
        return (index - steps / 2) * apart

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        # No weight moves by more than one step, and M ≤ ‖x‖ in every block.
        most = 2 / steps * math.sqrt(min(size, _BLOCK))
        return norm * max(0.0, 0.999 - 1.01 * most), norm * (1.001 + 1.01 * most)

    error = _LARGEST**2 - 1 if bits == 1 else (_LARGEST * 2 / steps) ** 2 / 6
    return Codec(
        "quantize", (("bits", bits),), encode=encode, decode=decode, norm_range=norm_range,
        forms=lambda size: (
            Form("u1", (packed_bytes(size, bits),)), Form("<u2", (-(-size // _BLOCK),), True)
        ),
        error=lambda size: error, unbiased=True,
    )  # fmt: skip

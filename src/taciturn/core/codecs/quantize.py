r"""Quantised weights: each on one of 2^bits levels, chosen at random so that the mean is right.

In a block with largest size M, levels lie evenly from −M to M, Δ = 2M / (2^bits − 1) apart. A
weight goes to one of its two neighbours with the probability that makes it unbiased.

With feedback there is no chance in it: a weight goes to the nearest of levels that lie from −f M to
f M, and these are scaled to least error, by ⟨x, q⟩ / ‖q‖². Of a few f, the best is taken: few bits
are better off when the largest weights are cut. With 1 bit, that is each sign times the mean size.

References:
  Alistarh et al. QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017.
  Seide et al. 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
  Training of Speech DNNs, 2014.
"""

import math

from taciturn.checks import flag, whole
from taciturn.core.arrays import Array, Scalar, in_rows, namespace
from taciturn.core.codecs import bf16
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.hashing import LEVELS, fold
from taciturn.core.hashing import bits as random_bits

_BLOCK = 256
# The largest of so many normal draws is about this many deviations away.
_LARGEST = 2.83
_SHARES = (0.75, 0.5, 0.25)  # f, beside 1
# What the nearest of 2, 4, … 256 levels leave of normal blocks.
_LEAST = (0.362, 0.120, 0.0383, 0.0117, 3.23e-3, 7.83e-4, 1.93e-4, 4.77e-5)


def quantize(bits: float, feedback: bool = False) -> Codec:
    """So many bits per weight, 1 to 8, at random so that the mean is right.

    Args:
      bits: for each weight.
      feedback: True for the way down: the nearest level and the scale of least error.
    """
    feedback = flag("feedback", feedback)
    is_whole = isinstance(bits, float) and bits.is_integer()
    bits = whole("bits", int(bits) if is_whole else bits, 1, 8)
    steps = 2**bits - 1

    def forms(size: int) -> tuple[Form, ...]:
        scales = Form(bf16.DTYPE, (-(-size // _BLOCK),), True)
        return Form("u1", (packed_bytes(size, bits),)), scales

    def encode(update: Array, key: Array) -> Code:
        xp, size, blocks = namespace(update), update.shape[0], in_rows(single(update), _BLOCK)
        largest = xp.max(xp.abs(blocks), axis=1)
        if feedback:
            index, largest = _nearest(blocks, largest, size, steps)
            return pack(xp.reshape(index, (-1,))[:size], bits), bf16.nearest(largest)
        written = bf16.up(largest)
        largest = bf16.read(written)
        apart = xp.where(largest > 0, largest, 1.0)[:, None] * (2 / steps)
        place = xp.reshape(blocks / apart + steps / 2, (-1,))[:size]
        drawn = random_bits(fold(key, LEVELS), (size,))
        chance = xp.astype(drawn >> 8, blocks.dtype) * 2.0**-24
        index = xp.clip(xp.floor(place + chance), 0, steps)
        return pack(xp.astype(index, xp.uint8), bits), written

    def decode(code: Code, key: Array, size: int) -> Array:
        data, largest = code[0], bf16.read(code[1])
        xp = namespace(largest)
        index = xp.astype(unpack(data, bits, size), largest.dtype)
        apart = xp.repeat(largest, _BLOCK)[:size] * (2 / steps)
        return (index - steps / 2) * apart

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        if feedback:  # sizes of x and q are ordered alike: ⟨x, q⟩ is at least ‖x‖ ‖q‖ / √block
            return 0.995 * norm / math.sqrt(min(size, _BLOCK)), 1.005 * norm
        # No weight moves by more than one step, and M ≤ ‖x‖ in every block.
        most = 2 / steps * math.sqrt(min(size, _BLOCK))
        return norm * max(0.0, 0.999 - 1.01 * most), norm * (1.001 + 1.01 * most)

    drawn = _LARGEST**2 - 1 if bits == 1 else (_LARGEST * 2 / steps) ** 2 / 6
    return Codec(
        "quantize", (("bits", bits), ("feedback", feedback)),
        encode=encode, decode=decode, forms=forms, norm_range=norm_range,
        error=lambda size: _LEAST[bits - 1] if feedback else drawn,
        unbiased=not feedback, feedback=feedback,
    )  # fmt: skip


def _nearest(blocks: Array, largest: Array, size: int, steps: int) -> tuple[Array, Array]:
    """The number of each weight's nearest level, and the highest level of each block."""
    xp = namespace(blocks)
    places = blocks / xp.where(largest > 0, largest, 1.0)[:, None] * (steps / 2)
    inside = xp.reshape(xp.arange(blocks.size) < size, blocks.shape)  # the last one is filled up

    def cut_at(share: float) -> tuple[Array, Array, Array]:
        """What is captured of each block's squares, the scale, and the numbers of levels."""
        index = xp.clip(xp.floor(places / share + (steps / 2 + 0.5)), 0, steps)
        q = xp.where(inside, index - steps / 2, 0.0)
        along, squares = xp.sum(places * q, axis=1), xp.sum(q * q, axis=1)
        return along * along / squares, along / squares, xp.astype(index, xp.uint8)

    most, scale, index = cut_at(1.0)
    for share in _SHARES if steps > 1 else ():
        captured, its_scale, its_index = cut_at(share)
        better = captured > most
        most, scale = xp.where(better, captured, most), xp.where(better, its_scale, scale)
        index = xp.where(better[:, None], its_index, index)
    return index, scale * largest

r"""k draws of an update's weights, with chances in proportion to their size, that count alike.

With h = ‖x‖₁ / k, the weight x_i is drawn p_i = |x_i| / h times on average: ⌊p_i⌋ or ⌈p_i⌉ times, a
large one several times. All draws together are

    decoded_i = sign(x_i) · h · (number of times that i was drawn)

which is unbiased for every update. What counts is how unequal its weights are: the error is about
‖x‖₁² / (k ‖x‖²) − 1. Updates of most models have a few large weights and many that hardly move, and
then so few bits do less harm here than in `eden`, which makes all weights alike first.

Draws are systematic: the p_i lie end to end on a line, and every whole number on it, shifted by a
random offset, draws the weight that it falls on. Lengths are kept in fixed point: whole numbers add
up to the same sum in any order, so NumPy and JAX draw the same.

References:
  Wangni et al. Gradient Sparsification for Communication-Efficient Distributed Optimization, 2018.
"""

import math

import numpy as np

from taciturn.checks import number
from taciturn.core.arrays import BLOCK, Array, Scalar, namespace
from taciturn.core.codecs import elias_fano, halves
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.hashing import bits as random_bits
from taciturn.core.hashing import fold

_FRACTION = 20  # bits behind the point of a length
_MOST = 2047  # times that one weight is drawn
_LEAST = 1e-30  # of h: what is smaller is written as nothing
_FEWEST = 8  # draws: h is rounded up, and of one alone nothing might be left
_SLACK = 1.0005  # so that sums of float32 that were rounded down do not make one draw too many


def draw_k(share: float) -> Codec:
    """As many draws as this share of the weights, with chances in proportion to their size.

    Args:
      share: draws per weight, above 0 and at most 1.
    """
    share = number("share", share, 0.0, 1.0, "(0, 1]")

    def forms(size: int) -> tuple[Form, ...]:
        count = counted(size, share)
        return (*elias_fano.forms(count, size + 1), Form("u1", (packed_bytes(count, 1),)),
                Form(halves.DTYPE, (1,)))  # fmt: skip

    def encode(update: Array, key: Array) -> Code:
        xp, size, update = namespace(update), update.shape[0], single(update)
        count = counted(size, share)
        written = _written(update, count)
        positions = _positions(update, key, count, written)
        positive = xp.take(update, xp.minimum(positions, size - 1)) > 0
        return *elias_fano.write(positions, size + 1), pack(positive, 1), written

    def decode(code: Code, key: Array, size: int) -> Array:
        low, upper, signs, draw = *code[:3], halves.read(code[3])
        xp, count = namespace(draw), counted(size, share)
        positions = elias_fano.read(low, upper, count, size + 1)
        steps = xp.where(unpack(signs, 1, count) == 1, xp.ones_like(draw), -xp.ones_like(draw))
        times = xp.zeros((size + 1,), dtype=draw.dtype)
        if isinstance(times, np.ndarray):
            np.add.at(times, positions, steps)
        else:
            times = times.at[positions].add(steps)
        return times[:size] * draw

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        # A weight that is drawn at all counts half of itself at the least and twice at the most,
        # or h; and Σ h² over all draws is ‖x‖₁² / k or, where one weight is large, ‖x‖₁ max / most.
        alike = size / counted(size, share) + math.sqrt(size) / _MOST
        return 0.49 * norm, 1.01 * norm * math.sqrt(4 + alike)

    return Codec(
        "draw_k", (("share", share),), encode=encode, decode=decode, forms=forms,
        norm_range=norm_range, error=_error(share), unbiased=True,
    )  # fmt: skip


def counted(size: int, share: float) -> int:
    """How many draws there are."""
    return max(_FEWEST, math.ceil(size * share))


def draws(update: Array, key: Array, count: Scalar) -> tuple[Array, Array]:
    """How many times each weight is drawn, and h as it is written.

    Args:
      update: a flat vector of float32.
      key: two words that both sides know.
      count: the most draws, which may be traced.
    """
    written = _written(update, count)
    return _times(update, _unit(written), _offset(key))[0], written


def _written(update: Array, count: Scalar) -> Array:
    """h, rounded up."""
    xp = namespace(update)
    sizes = xp.abs(update)
    total = xp.sum(sizes, dtype=xp.float32) * _SLACK
    count = xp.astype(xp.asarray(count), xp.float32)
    return halves.up(xp.reshape(xp.maximum(total / count, xp.max(sizes) / _MOST), (1,)))


def _unit(written: Array) -> Array:
    """1 / h in fixed point; 0 where the update is nothing."""
    xp, draw = namespace(written), halves.read(written)
    counts = draw > _LEAST
    unit = xp.where(counts, 2.0**_FRACTION / xp.where(counts, draw, 1.0), 0.0)
    return xp.astype(unit, xp.float32)


def _offset(key: Array) -> Array:
    return random_bits(fold(key, 5), (1,)) >> (32 - _FRACTION)


def _times(update: Array, unit: Array, start: Array) -> tuple[Array, Array]:
    """How many times each weight is drawn, and where on the line each ends."""
    xp = namespace(update)
    lengths = xp.astype(xp.abs(update) * unit, xp.uint32)
    # Sums wrap around at 2³²; how many whole numbers lie between two of them is right all the same.
    ends = xp.cumulative_sum(lengths, dtype=xp.uint32) + start
    times = (ends >> _FRACTION) - ((ends - lengths) >> _FRACTION)
    return times & ((1 << (32 - _FRACTION)) - 1), ends


def _positions(update: Array, key: Array, count: int, written: Array) -> Array:
    """Of the draws, sorted; behind the last one, those of no weight."""
    size = update.shape[0]
    unit, start = _unit(written), _offset(key)
    if not isinstance(update, np.ndarray):
        return elias_fano.repeated(_times(update, unit, start)[0], count)
    positions = np.full(count, size, np.int32)
    taken = 0
    for low in range(0, size, BLOCK):  # which stays in the cache
        times, ends = _times(update[low : low + BLOCK], unit, start)
        drawn = np.flatnonzero(times)
        drawn = np.repeat(drawn, times[drawn])[: count - taken]
        positions[taken : taken + len(drawn)] = low + drawn
        taken, start = taken + len(drawn), ends[-1:]
    return positions


def decoded(update: Array, times: Array, written: Array) -> Array:
    """What the server decodes of these draws."""
    xp = namespace(update)
    signed = xp.where(update > 0, halves.read(written), -halves.read(written))
    return signed * xp.astype(times, xp.float32)


def share_of(bits: float) -> float:
    """The largest share whose draws take no more than so many bits per weight."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        lower = math.floor(math.log2(1 / middle))
        if middle * (lower + 2) + 0.5**lower <= bits:
            low = middle
        else:
            high = middle
    return low


def _error(share: float) -> float:
    """Of normal weights: E f (1 − f) h², f being what is behind the point of p."""
    sizes = np.linspace(0.0, 8.0, 80_001)
    density = np.exp(-sizes * sizes / 2) * math.sqrt(2 / math.pi) * (sizes[1] - sizes[0])
    draw = math.sqrt(2 / math.pi) / share
    part = sizes / draw % 1
    return float(np.sum(density * part * (1 - part)) * draw * draw)

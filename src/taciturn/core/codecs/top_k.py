"""The largest weights of an update as float32, and nothing of the others.

References:
  Aji, Heafield. Sparse Communication for Distributed Gradient Descent, 2017.
"""

import math

from taciturn.checks import flag, number
from taciturn.core.arrays import Array, Scalar, namespace
from taciturn.core.codecs import elias_fano
from taciturn.core.codecs.codec import Code, Codec, Form, single


def top_k(share: float, feedback: bool = False) -> Codec:
    """The largest weights as they are, the others as 0.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """
    feedback = flag("feedback", feedback)
    share = number("share", share, 0.0, 1.0, "(0, 1]")

    def forms(size: int) -> tuple[Form, ...]:
        count = kept(size, share)
        return *elias_fano.forms(count, size), Form("<f4", (count,))

    def encode(update: Array, key: Array) -> Code:
        update = single(update)
        positions = largest(update, kept(update.shape[0], share))
        written = elias_fano.write(positions, update.shape[0])
        return *written, namespace(update).take(update, positions)

    def decode(code: Code, key: Array, size: int) -> Array:
        low, upper, values = code
        return put(elias_fano.read(low, upper, kept(size, share), size), values, size)

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        return 0.999 * norm * math.sqrt(kept(size, share) / size), 1.001 * norm

    # Of a normal, what lies beyond the quantile c has 2 (c φ(c) + Q(c)) of the squares.
    return Codec(
        "top_k", (("share", share), ("feedback", feedback)),
        encode=encode, decode=decode, forms=forms, norm_range=norm_range,
        error=1 - share_of_squares(share), unbiased=False, feedback=feedback,
    )  # fmt: skip


def kept(size: int, share: float) -> int:
    """How many weights are sent."""
    return max(1, math.ceil(size * share))


def largest(update: Array, count: int) -> Array:
    """The positions of the largest weights, sorted; of equals, the first."""
    xp = namespace(update)
    order = xp.argsort(-xp.abs(update), stable=True)
    return xp.astype(xp.sort(order[:count]), xp.int32)


def put(positions: Array, values: Array, size: int) -> Array:
    """A vector with these values at these positions, and 0 elsewhere."""
    xp = namespace(values)
    row = xp.arange(size, dtype=positions.dtype)
    where = xp.clip(xp.searchsorted(positions, row), 0, positions.shape[0] - 1)
    return xp.where(xp.take(positions, where) == row, xp.take(values, where), 0.0)


def share_of_squares(share: float) -> float:
    """What the largest weights have of the squared norm, where weights are normal."""
    from statistics import NormalDist

    normal = NormalDist()
    if share >= 1:
        return 1.0
    cut = normal.inv_cdf(1 - share / 2)
    return 2 * cut * normal.pdf(cut) + share

"""The largest weights of an update as float32, and nothing of the others.

References:
  Aji, Heafield. Sparse Communication for Distributed Gradient Descent, 2017.
"""

import math

import numpy as np

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
        error=lambda size: 1 - share_of_squares(share), unbiased=False, feedback=feedback,
    )  # fmt: skip


def kept(size: int, share: float) -> int:
    """How many weights are sent."""
    return max(1, math.ceil(size * share))


def largest(update: Array, count: int) -> Array:
    """The positions of the largest weights, sorted; of equals, the first.

    Nothing is sorted for it: the size that so many weights have at the least is found first.
    """
    xp, size = namespace(update), update.shape[0]
    sizes = xp.abs(update)
    sizes = xp.where(sizes >= 0, sizes, 0.0)  # what is no number counts as 0
    if isinstance(sizes, np.ndarray):
        least = np.partition(sizes, size - count)[size - count]
        above, equal = np.flatnonzero(sizes > least), np.flatnonzero(sizes == least)
        found = np.concatenate([above, equal[: count - len(above)]])
        return np.sort(found).astype(np.int32)
    bits = sizes.view(xp.int32)  # in the order of the sizes, which are not negative
    least = _nth(bits, count)
    above, equal = bits > least, bits == least
    needed = count - xp.sum(above, dtype=xp.int32)
    taken = above | (equal & (xp.cumulative_sum(equal, dtype=xp.int32) <= needed))
    return elias_fano.repeated(taken, count)


def _nth(numbers: Array, count: int) -> Array:
    """The `count`-th largest of whole numbers that are not negative, bit by bit from the first.

    A pass over memory for each bit is little beside a sort, which is slow in compiled programs.
    """
    xp = namespace(numbers)
    found = xp.zeros((), dtype=xp.int32)
    for place in reversed(range(31)):
        higher = found | (1 << place)
        enough = xp.sum(numbers >= higher, dtype=xp.int32) >= count
        found = xp.where(enough, higher, found)
    return found


def put(positions: Array, values: Array, size: int) -> Array:
    """A vector with these values at these positions, and 0 elsewhere."""
    empty = namespace(values).zeros(size, dtype=values.dtype)
    if isinstance(empty, np.ndarray):
        empty[positions] = values
        return empty
    return empty.at[positions].set(values)


def share_of_squares(share: float) -> float:
    """What the largest weights have of the squared norm, where weights are normal."""
    from statistics import NormalDist

    normal = NormalDist()
    if share >= 1:
        return 1.0
    cut = normal.inv_cdf(1 - share / 2)
    return 2 * cut * normal.pdf(cut) + share

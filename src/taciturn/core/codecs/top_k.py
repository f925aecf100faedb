"""The largest weights of an update as float32, and nothing of the others.

References:
  Aji, Heafield. Sparse Communication for Distributed Gradient Descent, 2017.
"""

import math
from statistics import NormalDist

import numpy as np

from taciturn.checks import flag, number
from taciturn.core.arrays import Array, Scalar, largest_where, namespace, put
from taciturn.core.codecs import elias_fano
from taciturn.core.codecs.codec import Code, Codec, Form, single


def top_k(share: float, feedback: bool = False) -> Codec:
    """The largest weights as they are, the others as 0.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """
    feedback = flag("feedback", feedback)
    share = number("share", share, "(0, 1]")

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

    return Codec(
        "top_k", (("share", share), ("feedback", feedback)),
        encode=encode, decode=decode, forms=forms, norm_range=norm_range,
        error=lambda size: 1 - _share_of_squares(share), unbiased=False, feedback=feedback,
    )  # fmt: skip


def kept(size: int, share: float) -> int:
    """How many weights are sent."""
    return max(1, math.ceil(size * share))


def largest(update: Array, count: int) -> Array:
    """The positions of the largest weights, sorted; of equals, the first."""
    xp, size = namespace(update), update.shape[0]
    sizes = xp.abs(update)
    sizes = xp.where(sizes >= 0, sizes, 0.0)  # what is no number counts as 0
    if isinstance(sizes, np.ndarray):
        least = np.partition(sizes, size - count)[size - count]
        above, equal = np.flatnonzero(sizes > least), np.flatnonzero(sizes == least)
        found = np.concatenate([above, equal[: count - len(above)]])
        return np.sort(found).astype(np.int32)
    bits = sizes.view(xp.int32)  # in the order of the sizes, which are not negative
    # A pass over memory for each bit is little beside a sort, which is slow in compiled programs.
    least = largest_where(lambda n: xp.sum(bits >= n, dtype=xp.int32) >= count, 31, xp)
    above, equal = bits > least, bits == least
    needed = count - xp.sum(above, dtype=xp.int32)
    taken = above | (equal & (xp.cumulative_sum(equal, dtype=xp.int32) <= needed))
    return elias_fano.repeated(taken, count)


def _share_of_squares(share: float) -> float:
    """What the largest of normal weights have of the squared norm: 2 (c φ(c) + Q(c)) beyond c."""
    normal = NormalDist()
    cut = normal.inv_cdf(1 - share / 2)
    return 2 * cut * normal.pdf(cut) + share

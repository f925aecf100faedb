"""The largest weights of an update, as they are or as ±μ, and nothing of the others.

References:
  Aji, Heafield. Sparse Communication for Distributed Gradient Descent, 2017.
  Sattler et al. Robust and Communication-Efficient Federated Learning from Non-IID Data, 2019.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from taciturn.checks import flag, number
from taciturn.core.arrays import Array, Scalar, largest_where, namespace, put
from taciturn.core.codecs import floats, packing
from taciturn.core.codecs.codec import Code, Codec, Form, single

_NORMAL = NormalDist()


def top_k(share: float, feedback: bool = False) -> Codec:
    """The largest weights as they are, the others as 0.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """
    return _codec(
        "top_k", share, feedback, write=lambda values: (values,), read=lambda code, count: code[0],
        forms=lambda count: (Form("<f4", (count,)),),
        norm_range=lambda norm, count, size: (0.999 * norm * math.sqrt(count / size), 1.001 * norm),
        # What the largest of normal weights have of the squared norm: 2 (c φ(c) + Q(c)) beyond c.
        captured=lambda share, cut: 2 * cut * _NORMAL.pdf(cut) + share,
    )  # fmt: skip


def sparse_ternary(share: float, feedback: bool = False) -> Codec:
    """The largest weights as plus or minus their mean size, the others as 0.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """

    def write(values: Array) -> Code:
        xp = namespace(values)
        mean = xp.reshape(xp.mean(xp.abs(values)), (1,))
        return packing.pack(values > 0, 1), floats.nearest_halves(mean)

    def read(code: Code, count: int) -> Array:
        signs, mean = code[0], floats.read_halves(code[1])
        return namespace(mean).where(packing.unpack(signs, 1, count) == 1, mean, -mean)

    return _codec(
        "sparse_ternary", share, feedback, write, read,
        lambda count: (Form("u1", (packing.packed_bytes(count, 1),)), Form("<u2", (1,), True)),
        # μ √k: at most √(Σ of the k largest squares), and one weight may hold all of them.
        norm_range=lambda norm, count, size: (0.995 * norm / size**0.5, 1.005 * norm),
        # ⟨x, decoded⟩² / (‖x‖² ‖decoded‖²) of normal weights: k μ² / ‖x‖².
        captured=lambda share, cut: (2 * _NORMAL.pdf(cut)) ** 2 / share,
    )  # fmt: skip


def _codec(
    name: str, share: float, feedback: bool, write: Callable[[Array], Code],
    read: Callable[[Code, int], Array], forms: Callable[[int], tuple[Form, ...]],
    norm_range: Callable[[Scalar, int, int], tuple[Scalar, Scalar]],
    captured: Callable[[float, float], float],
) -> Codec:  # fmt: skip
    """The codec that sends the positions of the largest weights, and what `write` makes of them."""
    feedback = flag("feedback", feedback)
    share = number("share", share, "(0, 1]")

    def encode(update: Array, key: Array) -> Code:
        update, size = single(update), update.shape[0]
        positions = largest(update, kept(size, share))
        values = namespace(update).take(update, positions)
        return *packing.write_positions(positions, size), *write(values)

    def decode(code: Code, key: Array, size: int) -> Array:
        count = kept(size, share)
        positions = packing.read_positions(code[0], code[1], count, size)
        return put(positions, read(code[2:], count), size)

    return Codec(
        name, (("share", share), ("feedback", feedback)), encode=encode, decode=decode,
        forms=lambda size: packing.position_forms(kept(size, share), size)
        + forms(kept(size, share)),
        norm_range=lambda norm, size: norm_range(norm, kept(size, share), size),
        error=lambda size: 1 - captured(share, _NORMAL.inv_cdf(1 - share / 2)),
        unbiased=False, feedback=feedback,
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
    return packing.repeated(taken, count)

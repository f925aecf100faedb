"""Codecs that the default is measured against and that win nowhere: they are not in the package."""

import numpy as np

import taciturn
from taciturn.core.arrays import Array, Scalar, namespace, put
from taciturn.core.codecs import Codec, floats, packing
from taciturn.core.codecs.codec import Code, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.codecs.sparse import kept, largest
from taciturn.core.hashing import bits as random_bits
from taciturn.core.hashing import fold


def subset(share: float) -> Codec:
    """A random subset of the weights as float32, one of every 1 / share, divided by the share.

    Args:
      share: of the weights that are sent, above 0 and at most 1.

    References:
      Konečný et al. Federated Learning: Strategies for Improving Communication Efficiency, 2016.
    """

    def positions(key: Array, size: int) -> Array:
        """One at a random place in each of as many equal stretches."""
        xp, count = namespace(key), kept(size, share)
        edges = xp.asarray(np.arange(count + 1) * size // count, dtype=xp.uint32)
        wide = edges[1:] - edges[:-1]
        return xp.astype(edges[:-1] + random_bits(fold(key, 2), (count,)) % wide, xp.int32)

    def decode(code: Code, key: Array, size: int) -> Array:
        return put(positions(key, size), code[0] * (size / kept(size, share)), size)

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        return 0.0, 1.001 * norm * size / kept(size, share)

    return Codec(
        "subset", (("share", share),), norm_range=norm_range,
        error=lambda size: 1 / share - 1, unbiased=True,
        encode=lambda update, key: (
            namespace(update).take(single(update), positions(key, update.shape[0])),
        ),
        decode=decode, forms=lambda size: (Form("<f4", (kept(size, share),)),),
    )  # fmt: skip


def top_k_2bit(share: float, feedback: bool = True) -> Codec:
    """The largest weights in two bits each: the sign, and one of two sizes.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """

    def forms(size: int) -> tuple[Form, ...]:
        count = kept(size, share)
        return (*packing.position_forms(count, size), Form("u1", (packed_bytes(count, 2),)),
                Form("<u2", (2,)))  # fmt: skip

    def encode(update: Array, key: Array) -> Code:
        xp, size, update = namespace(update), update.shape[0], single(update)
        positions = largest(update, kept(size, share))
        values = xp.take(update, positions)
        sizes = xp.abs(values)
        large = sizes > xp.mean(sizes)
        means = [
            xp.sum(xp.where(mask, sizes, 0.0)) / xp.maximum(xp.sum(mask), 1)
            for mask in (~large, large)
        ]
        words = xp.astype(values > 0, xp.uint8) + 2 * xp.astype(large, xp.uint8)
        two = floats.nearest_halves(xp.astype(xp.stack(means), xp.float32))
        return *packing.write_positions(positions, size), pack(words, 2), two

    def decode(code: Code, key: Array, size: int) -> Array:
        low, upper, words, means = *code[:3], floats.read_halves(code[3])
        xp, count = namespace(means), kept(size, share)
        words = unpack(words, 2, count)
        sizes = xp.where(words >= 2, means[1], means[0])
        values = xp.where((words & 1) == 1, sizes, -sizes)
        return put(packing.read_positions(low, upper, count, size), values, size)

    return Codec(
        "top_k_2bit", (("share", share), ("feedback", feedback)), encode=encode, decode=decode,
        forms=forms, norm_range=lambda norm, size: (0.0, 1.01 * norm),
        error=lambda size: 0.9, unbiased=False,
        feedback=feedback,
    )  # fmt: skip


def register() -> None:
    """Gives them their names in the texts of policies."""
    for codec in (subset, top_k_2bit):
        taciturn.register("codec", codec)

"""The largest weights of an update as ±μ, their mean size, and 0 for the others.

References:
  Sattler et al. Robust and Communication-Efficient Federated Learning from Non-IID Data, 2019.
"""

from statistics import NormalDist

from taciturn.checks import flag, number
from taciturn.core.arrays import Array, Scalar, namespace, put
from taciturn.core.codecs import bf16, elias_fano
from taciturn.core.codecs.codec import Code, Codec, Form, single
from taciturn.core.codecs.packing import pack, packed_bytes, unpack
from taciturn.core.codecs.top_k import kept, largest


def sparse_ternary(share: float, feedback: bool = False) -> Codec:
    """The largest weights as plus or minus their mean size, the others as 0.

    Args:
      share: of the weights that are sent, above 0 and at most 1.
      feedback: whether clients keep what was left out and add it to what they say next.
    """
    feedback = flag("feedback", feedback)
    share = number("share", share, "(0, 1]")

    def forms(size: int) -> tuple[Form, ...]:
        count = kept(size, share)
        return (*elias_fano.forms(count, size), Form("u1", (packed_bytes(count, 1),)),
                Form(bf16.DTYPE, (1,), True))  # fmt: skip

    def encode(update: Array, key: Array) -> Code:
        xp, size, update = namespace(update), update.shape[0], single(update)
        positions = largest(update, kept(size, share))
        values = xp.take(update, positions)
        mean = xp.reshape(xp.mean(xp.abs(values)), (1,))
        return *elias_fano.write(positions, size), pack(values > 0, 1), bf16.nearest(mean)

    def decode(code: Code, key: Array, size: int) -> Array:
        low, upper, signs, mean = *code[:3], bf16.read(code[3])
        xp, count = namespace(mean), kept(size, share)
        positive = unpack(signs, 1, count) == 1
        values = xp.where(positive, mean, -mean)
        return put(elias_fano.read(low, upper, count, size), values, size)

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        # μ √k: at most √(Σ of the k largest squares), and one weight may hold all of them.
        return 0.995 * norm / size**0.5, 1.005 * norm

    return Codec(
        "sparse_ternary", (("share", share), ("feedback", feedback)),
        encode=encode, decode=decode, forms=forms, norm_range=norm_range,
        error=lambda size: 1 - _captured(share), unbiased=False, feedback=feedback,
    )  # fmt: skip


def _captured(share: float) -> float:
    """⟨x, decoded⟩² / (‖x‖² ‖decoded‖²) of normal weights: k μ² / ‖x‖²."""
    normal = NormalDist()
    return (2 * normal.pdf(normal.inv_cdf(1 - share / 2))) ** 2 / share

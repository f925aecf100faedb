"""Floating-point numbers of 32 and of 16 bits, as they are."""

import math

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace
from taciturn.core.codecs import bf16
from taciturn.core.codecs.codec import Code, Codec, Form


def float32() -> Codec:
    """Four bytes per weight: nothing is lost."""
    return Codec(
        "float32",
        encode=lambda update, key: (update,),
        decode=lambda code, key, size: code[0],
        forms=lambda size: (Form("<f4", (size,)),),
        norm_range=lambda norm, size: (0.999 * norm, 1.001 * norm),
        error=lambda size: 0.0, unbiased=True,
    )  # fmt: skip


def float16() -> Codec:
    """Two bytes per weight, IEEE's half precision; what is above 65,504 in size becomes that."""

    def encode(update: Array, key: Array) -> Code:
        xp = namespace(update)
        return (xp.astype(xp.clip(update, -65504.0, 65504.0), xp.float16),)

    def norm_range(norm: Scalar, size: int) -> tuple[Scalar, Scalar]:
        tiny = 2.0**-25 * math.sqrt(size)  # below 2⁻¹⁴ the grid does not get any finer
        return 0.998 * norm - tiny, 1.001 * norm + tiny

    return Codec(
        "float16", encode=encode,
        decode=lambda code, key, size: namespace(code[0]).astype(code[0], np.float32),
        forms=lambda size: (Form("<f2", (size,)),),
        norm_range=norm_range, error=lambda size: 2.0**-24, unbiased=False,
    )  # fmt: skip


def bfloat16() -> Codec:
    """Two bytes per weight, the upper half of a float32, rounded to the nearest."""
    return Codec(
        "bfloat16",
        encode=lambda update, key: (bf16.nearest(update),),
        decode=lambda code, key, size: bf16.read(code[0]),
        forms=lambda size: (Form(bf16.DTYPE, (size,), True),),
        norm_range=lambda norm, size: (0.995 * norm, 1.005 * norm),
        error=lambda size: 2.0**-17, unbiased=False,
    )  # fmt: skip

"""Codecs: how an update that is spoken is written down."""

from taciturn.core.codecs.codec import Codec, Form, from_bytes, to_bytes
from taciturn.core.codecs.eden import eden
from taciturn.core.codecs.floats import bfloat16, float16, float32
from taciturn.core.codecs.peaks import peaks
from taciturn.core.codecs.quantize import quantize
from taciturn.core.codecs.sparse import sparse_ternary, top_k

__all__ = [
    "Codec", "Form", "bfloat16", "eden", "float16", "float32",
    "from_bytes", "peaks", "quantize", "sparse_ternary", "to_bytes", "top_k",
]  # fmt: skip

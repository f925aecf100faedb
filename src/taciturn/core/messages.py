"""Messages: what a client says, and how it is written down to the byte.

A written message is a header of 24 bytes and, when the client speaks, its update in the policy's
codec. What the server sends down has the same header (with the context instead of the norm) and
the weights as float32, or what moves the public model, in the policy's codec for the way down.
"""

import math
import struct
from typing import NamedTuple

import numpy as np

from taciturn.core.arrays import Array, Scalar, norm
from taciturn.core.codecs import Codec, from_bytes, to_bytes
from taciturn.errors import InputError

# Version, speaks, nothing, weights, examples, norm, norm of what was encoded, probability.
# n_k need not be whole: it is what weighs.
_HEADER = struct.Struct("<BBxxIffff")
_VERSION = 5
OVERHEAD = _HEADER.size


class Message(NamedTuple):
    """What a client says.

    Attributes:
      examples: n_k, how many examples it trained on.
      norm: m_k = ‖Δ_k‖, before any codec.
      update: Δ_k, on the server as decoded; None from a client that stays silent.
        With feedback, what was left out before is in it: Δ_k + e_k.
      encoded_norm: ‖Δ_k + e_k‖ with feedback; None where it is the norm.
      probability: how likely it was to speak, where the rule says so: it then counts 1/p times.
      nbytes: of its code, where its codec's have any length.
    """

    examples: Scalar
    norm: Scalar
    update: Array | None
    encoded_norm: Scalar | None = None
    probability: Scalar = 1.0
    nbytes: int = 0


def with_residual(message: Message, residual: Array | None) -> Message:
    """The message with what was left out before, e_k, in its update; silence stays silence.

    Once it is encoded, e_k becomes Δ_k + e_k, which is the update here, less what is decoded. That
    of a client that stays silent is left alone.
    """
    if message.update is None or residual is None:
        return message
    update = message.update + residual
    return message._replace(update=update, encoded_norm=norm(update))


def through(message: Message, codec: Codec, key: Array) -> Message:
    """The message as the server reads it: encoded and decoded, without the bytes in between."""
    update = message.update
    if update is None:
        return message
    size, nbytes = update.shape[0], 0
    if codec.lengths is not None and message.nbytes:
        codec = codec.at(codec.lengths.fit(size, message.nbytes))
        nbytes = codec.nbytes(size)
    decoded = codec.decode(codec.encode(update, key), key, size)
    return message._replace(update=decoded, nbytes=nbytes)


def write(message: Message, codec: Codec, key: Array | None = None) -> bytes:
    """The message as bytes: `OVERHEAD` bytes, and the code of one who speaks.

    Args:
      message: what the client says; its update is the raw one.
      codec: the policy's.
      key: two words that the server knows too; codecs without chance do not look at it.
    """
    size, payload = 0, b""
    encoded = message.norm if message.encoded_norm is None else message.encoded_norm
    examples = float(message.examples)
    if not 0 <= examples < math.inf:
        raise InputError(f"`examples` must be in [0, inf), got {message.examples!r}.")
    if message.update is not None:
        size = message.update.shape[0]
        if codec.lengths is not None and message.nbytes:
            codec = codec.at(codec.lengths.fit(size, message.nbytes))
        payload = to_bytes(codec, codec.encode(message.update, key), size)
    try:
        header = _HEADER.pack(
            _VERSION, message.update is not None, size, examples, float(message.norm),
            float(encoded), float(message.probability),
        )  # fmt: skip
    except (struct.error, OverflowError, ValueError) as error:
        raise InputError(f"The message cannot be written down: {error}.") from None
    return header + payload


def read(
    data: bytes, codec: Codec, key: Array | None = None, weights: int | None = None
) -> Message:
    """The message that `write` wrote, or an error that says what is wrong with the bytes.

    Its update is what the code says: for a codec with loss, not the one that was written.

    Args:
      data: the bytes.
      codec: the policy's.
      key: that of the one who wrote.
      weights: how many the model has, where it is known. A short code of any length may else say
        that it is for billions of them.
    """
    if len(data) < OVERHEAD:
        raise InputError(f"A message has at least {OVERHEAD} bytes, got {len(data)}.")
    version, speaks, size, examples, length, encoded, chance = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise InputError(f"The message has version {version}, this program reads {_VERSION}.")
    if speaks and weights is not None and size != weights:
        raise InputError(f"The message has {size} weights, the model has {weights}.")
    nbytes = len(data) - OVERHEAD if speaks and codec.lengths is not None else 0
    if nbytes:
        codec = codec.at(nbytes)
    expected = OVERHEAD + (codec.nbytes(size) if speaks and size else 0)
    if len(data) != expected:
        raise InputError(f"The message must have {expected} bytes, got {len(data)}.")
    if not speaks:
        return Message(examples, length, None, None, chance)
    if not size:  # of a model without weights there is nothing to decode
        return Message(examples, length, np.zeros(0, np.float32), encoded, chance)
    code = from_bytes(codec, data[OVERHEAD:], size)
    return Message(examples, length, codec.decode(code, key, size), encoded, chance, nbytes)

r"""The way down: a public model P that everyone can rebuild, and short messages that move it.

The server keeps its weights θ and the public model P. After every round it sends

    c = C(θ − P),    P ← P + γ · decode(c),    γ = 1 + e / 2

where C is the policy's codec for the way down in its form of least error, a contraction, and e is
what it leaves out of a dense difference (`Codec.error`). What is left out makes P late, and going a
little further makes up for it; on average it still is a contraction:

    ‖θ − P‖² ← (1 − (1 − e)(1 − e²/4)) ‖θ − P‖²

Clients train from P and report updates against P; the server's step moves θ. What C left out stays
in θ − P and is sent later: error feedback on the server.

The *version* of P is the number of messages so far, one for each round; version 0 is what a seed
gives that both sides know. A client that has version v needs the messages since, or P whole where
that is shorter or where the server no longer keeps them all.

References:
  Gruntkowska, Tyurin, Richtárik. EF21-P and Friends: Improved Theoretical Communication Complexity
  for Distributed Optimization with Bidirectional Compression, 2023.
"""

import numpy as np

from taciturn.core.arrays import Array, namespace
from taciturn.core.codecs import Codec, float32
from taciturn.core.codecs.codec import Code
from taciturn.core.policy import Policy
from taciturn.core.server import ServerState


def moved(codec: Codec, public: Array, code: Code, key: Array) -> Array:
    """P after a message, on either side."""
    xp = namespace(public)
    decoded = (1 + codec.error(public.shape[0]) / 2) * codec.decode(code, key, public.shape[0])
    return public + xp.astype(decoded, public.dtype, copy=False)


def publish(policy: Policy, state: ServerState, key: Array) -> ServerState:
    """The server's state after its message; unchanged without a codec for the way down."""
    if not policy.has_public:
        return state
    code = policy.down.encode(state.weights - state.public, key)
    return state._replace(public=moved(policy.down, state.public, code, key))


def trained_from(state: ServerState) -> Array:
    """The weights that clients get: P where there is one, else θ."""
    return state.weights if state.public is None else state.public


def most_kept(codec: Codec, size: int) -> int:
    """How many messages are together no longer than the model: to keep more does not pay."""
    return float32().nbytes(size) // codec.nbytes(size)


def download_bytes(
    codec: Codec, missed: np.ndarray, size: int, kept: int | None = None
) -> np.ndarray:
    """The bytes that each client downloads which has missed so many messages; with float32, the
    model's. The server keeps `kept` messages; None for as many as pay."""
    whole = float32().nbytes(size)
    if codec == float32():
        return np.full(missed.shape, whole, np.int64)
    pay = most_kept(codec, size)
    most = pay if kept is None else min(kept, pay)
    return np.where(missed <= most, missed.astype(np.int64) * codec.nbytes(size), whole)

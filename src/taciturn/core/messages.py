"""Messages: what a client says."""

from typing import NamedTuple

from taciturn.core.arrays import Array, Scalar

# Bytes of every message beside its code: version and kind (4), and 4 each for the number of
# weights, examples, norm, norm of what was encoded, and probability. What the server sends has as
# many.
OVERHEAD = 24


class Message(NamedTuple):
    """What a client says.

    Attributes:
      examples: n_k, how many examples it trained on. It need not be whole: it is a weight.
      norm: m_k = ‖Δ_k‖, before any codec.
      update: Δ_k, on the server as decoded; None from a client that stays silent.
      encoded_norm: with feedback the norm of what was encoded, ‖Δ_k + e_k‖; None where that is m_k.
      probability: how likely it was to speak, where the rule says so: it then counts 1/p times.
      nbytes: of its code, where the rule gives each client a length; else 0.
    """

    examples: Scalar
    norm: Scalar
    update: Array | None
    encoded_norm: Scalar | None = None
    probability: Scalar = 1.0
    nbytes: int = 0

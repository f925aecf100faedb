"""Messages: what a client says."""

from typing import NamedTuple

from taciturn.core.arrays import Array, Scalar

# Bytes of every message beside its code: version and kind (4), and 4 each for the number of
# weights, examples, norm, norm of what was encoded, and probability. What the server sends has as
# many.
OVERHEAD = 24


class Message(NamedTuple):
    """What a client says."""

    examples: Scalar  # n_k, what its update weighs; it need not be whole
    norm: Scalar  # m_k = ‖Δ_k‖, before any codec
    update: Array | None  # Δ_k, on the server as decoded; None from a client that stays silent
    encoded_norm: Scalar | None = None  # with feedback ‖Δ_k + e_k‖; None where that is m_k
    probability: Scalar = 1.0  # how likely it was to speak, where the rule says so: it counts 1/p
    nbytes: int = 0  # of its code, where the rule gives each client a length

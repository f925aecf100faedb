"""Rules: who speaks.

A rule is three pure functions. The server keeps `state`, broadcasts `state.context` (one number)
with the weights, and learns from the tally of the round; a client decides with `speaks`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from taciturn.checks import flag, number
from taciturn.core.arrays import Scalar, namespace
from taciturn.core.parts import Part
from taciturn.core.tally import Tally


@dataclass(frozen=True)
class Rule(Part):
    """Decides who speaks.

    Attributes:
      init: `() -> state`, a NamedTuple of numbers with a field `context`.
      speaks: on the client, `(norm, uniform, context) -> bool`; `uniform` is a draw from [0, 1).
      learn: on the server, `(state, tally) -> state`.
      has_threshold: whether `context` is a threshold. Silence then means `norm <= context`, and the
        server takes a silent client's norm as that at most.
    """

    init: Callable[[], Any] = field(kw_only=True, compare=False, repr=False)
    speaks: Callable[[Scalar, Scalar, Scalar], Scalar] = field(
        kw_only=True, compare=False, repr=False
    )
    learn: Callable[[Any, Tally], Any] = field(kw_only=True, compare=False, repr=False)
    has_threshold: bool = field(kw_only=True, compare=False, repr=False)


class Constant(NamedTuple):
    """State of a rule that does not learn."""

    context: Scalar


class Adaptive(NamedTuple):
    """State of `adaptive`: the threshold, and how many deviations below the mean it lies."""

    context: Scalar
    k: Scalar


def full() -> Rule:
    """Everyone speaks: plain federated averaging."""
    return Rule("full", init=lambda: Constant(-math.inf), speaks=_above, learn=_same,
                has_threshold=False)  # fmt: skip


def fixed(threshold: float) -> Rule:
    """A client speaks when the norm of its update exceeds a constant: m_k > τ.

    Args:
      threshold: τ, at least 0.
    """
    threshold = number("threshold", threshold, 0.0, math.inf, "[0, inf]")
    return Rule("fixed", (("threshold", threshold),), init=lambda: Constant(threshold),
                speaks=_above, learn=_same, has_threshold=True)  # fmt: skip


def adaptive(k: float = 1.0, weighted: bool = True) -> Rule:
    r"""A client speaks when its norm exceeds a threshold that follows the norms of the last round.

        τ_0 = 0,    τ_{t+1} = mean(m) − k · std(m)

    over all norms of round t, silent clients included, with std in its population form. When the
    norms hardly differ (std < 1e-6 · mean) they say nothing about who matters, and τ_{t+1} = 0:
    everyone speaks.

    The paper has k = 1 and reads as an unweighted mean; its authors' code weights by n_k.

    Args:
      k: how many deviations below the mean the threshold lies. Larger is more talkative.
      weighted: whether mean and deviation are weighted by the clients' example counts n_k.

    References:
      Ribero, Vikalo. Communication-Efficient Federated Learning via Optimal Client Sampling, 2020.
    """
    k = number("k", k, -math.inf, math.inf, "(-inf, inf)")
    weighted = flag("weighted", weighted)

    def learn(state: Adaptive, tally: Tally) -> Adaptive:
        norms = tally.norms if weighted else tally.norms_unweighted
        mean, std = norms.mean, norms.deviation()
        xp = namespace(std)
        threshold = mean - state.k * std
        informative = (std >= 1e-6 * mean) & (std > 0) & xp.isfinite(threshold)
        return Adaptive(xp.where(informative, threshold, xp.zeros_like(threshold)), state.k)

    return Rule("adaptive", (("k", k), ("weighted", weighted)), init=lambda: Adaptive(0.0, k),
                speaks=_above, learn=learn, has_threshold=True)  # fmt: skip


def random(probability: float) -> Rule:
    """Every client speaks with the same probability, whatever its update.

    Args:
      probability: in [0, 1].
    """
    probability = number("probability", probability, 0.0, 1.0, "[0, 1]")
    return Rule("random", (("probability", probability),), init=lambda: Constant(probability),
                speaks=lambda norm, uniform, context: uniform < context, learn=_same,
                has_threshold=False)  # fmt: skip


def _above(norm: Scalar, uniform: Scalar, context: Scalar) -> Scalar:
    return norm > context


def _same(state: Any, tally: Tally) -> Any:
    return state

"""The client's side of a round: trained weights in, message out (the paper's Algorithm 2)."""

import math

import numpy as np

from taciturn.core import arrays
from taciturn.core.arrays import Array, Scalar, check_flat
from taciturn.core.messages import Message
from taciturn.core.rules import Rule
from taciturn.errors import InputError


def respond(
    rule: Rule, weights: Array, trained: Array, examples: float, context: Scalar, uniform: Scalar
) -> Message:
    """What a client says after training.

    Args:
      rule: the policy's rule.
      weights: θ_t, what the server sent.
      trained: θ_k, what training made of it.
      examples: n_k, how many examples it trained on.
      context: what the server broadcast with the weights.
      uniform: a draw from [0, 1) that nobody else uses; only rules with chance look at it.

    Returns:
      The message. A client whose weights are no longer finite stays silent and reports a norm of
      NaN, which the server rejects.
    """
    check_flat(weights)
    if trained.shape != weights.shape:
        raise InputError(
            f"The trained weights must have {weights.shape[0]} entries like the model, "
            f"got shape {tuple(trained.shape)}."
        )
    if not (math.isfinite(examples) and examples > 0):
        raise InputError(f"`examples` must be above 0, got {examples!r}.")
    with np.errstate(over="ignore", invalid="ignore"):
        update = trained - weights
        norm, speaks = decide(rule, arrays.norm(update), context, uniform)
    return Message(examples, norm, update if speaks else None)


def decide(rule: Rule, norm: Scalar, context: Scalar, uniform: Scalar) -> tuple[Scalar, bool]:
    """The norm that a client reports and whether it speaks, where the norm of its update is known.

    Args:
      rule, context, uniform: as for `respond`.
      norm: m_k. Where it is not finite, the client reports NaN and stays silent.
    """
    if not math.isfinite(float(norm)):
        return math.nan, False
    return norm, bool(rule.speaks(norm, uniform, context))

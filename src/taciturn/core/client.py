"""The client's side of a round: trained weights in, message out (the paper's Algorithm 2)."""

import math
from typing import Any, NamedTuple

import numpy as np

from taciturn.core import arrays
from taciturn.core.arrays import Array, Scalar, check_flat
from taciturn.core.messages import Message
from taciturn.core.rules import Rule, Situation
from taciturn.errors import InputError


def respond(
    rule: Rule,
    weights: Array,
    trained: Array,
    examples: float,
    context: Any,
    uniform: Scalar,
    *,
    loss: Scalar = math.nan,
    silence: Scalar = 0,
) -> Message:
    """What a client says after training.

    Args:
      rule: the policy's rule.
      weights: θ_t, what the server sent.
      trained: θ_k, what training made of it.
      examples: n_k, how many examples it trained on.
      context: what the server broadcast with the weights.
      uniform, loss, silence: as in `Situation`; a rule looks at those that it names.

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
        situation = Situation(arrays.norm(update), uniform, loss, silence, examples)
    decision = decide(rule, situation, context)
    spoken = update if decision.speaks else None
    return Message(
        examples, decision.norm, spoken, probability=decision.probability, nbytes=decision.nbytes
    )


class Decision(NamedTuple):
    """Whether a client speaks, the norm that it reports, how likely it was to speak, and how many
    bytes its code may have, where the rule says so."""

    speaks: bool
    norm: Scalar
    probability: Scalar
    nbytes: int = 0


def decide(rule: Rule, situation: Situation, context: Any) -> Decision:
    """What a client does, where its situation is known.

    Where the norm is not finite, the client reports NaN and stays silent.
    """
    if not math.isfinite(float(situation.norm)):
        return Decision(False, math.nan, 1.0)
    chance = 1.0 if rule.probability is None else rule.probability(situation, context)
    nbytes = 0 if rule.nbytes is None else int(rule.nbytes(situation, context))
    return Decision(bool(rule.speaks(situation, context)), situation.norm, chance, nbytes)

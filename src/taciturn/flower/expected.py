"""What a rule says of a node, by what the server knows of it: its word, where it has one, counts
less."""

from typing import Any

import numpy as np

from taciturn.core.rules import Rule, Situation
from taciturn.errors import InputError
from taciturn.flower.replies import Reply


def nbytes(reply: Reply, rule: Rule, context: Any) -> int:
    """Of the code that the rule gives a node, by what it reports; 0 where it gives no bytes."""
    return 0 if rule.nbytes is None else int(rule.nbytes(_situation(reply), context))


def check_length(reply: Reply, rule: Rule, context: Any) -> None:
    """Raises where a code is longer than the rule gave its node; 1.1 is more than a rounding."""
    if reply.code is None or rule.nbytes is None:
        return
    if len(reply.code) > 1.1 * (given := nbytes(reply, rule, context)):
        raise InputError(
            f"its code has {len(reply.code)} bytes, and `{rule.name}` gave it {given}."
        )


def set_probability(reply: Reply, rule: Rule, context: Any) -> None:
    """Sets how likely a node was to speak, where the rule looks at nothing that the server does not
    know: one that says a small number of itself would count many times."""
    known = set(rule.looks_at) <= {"norm", "uniform", "examples"}
    if rule.probability is not None and known and reply.probability < 1:
        reply.probability = float(rule.probability(_situation(reply), context))


def _situation(reply: Reply) -> Situation:
    return Situation(np.float64(reply.norm or 0.0), 0.5, examples=np.float64(reply.examples))

"""Strategies that compare replies: how many they need, and what is done with fewer."""

import math
from typing import Any

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from taciturn.core.rules import Rule, adaptive

_COMPARING = (flower.Krum, flower.MultiKrum, flower.Bulyan, flower.FedMedian, flower.FedTrimmedAvg)


def compares(inner: Strategy) -> bool:
    """Whether a strategy compares replies: copies of one stand-in would win there."""
    return isinstance(inner, _COMPARING)


def robust(rule: Rule) -> Rule:
    """The rule for a strategy that throws replies away: no threshold must follow these."""
    return adaptive(**dict(rule.params) | {"robust": True}) if rule.name == "adaptive" else rule


def needs(inner: Strategy) -> int:
    """How many replies a strategy needs to do what it is for; 1 where nothing is known of it.

    Bulyan skips a round with fewer. The others take it and let a bad reply through: MultiKrum
    chooses all of them where there are no more than it is to choose, and a trimmed mean of few
    trims nobody.
    """
    bad = _bad(inner, 0)
    if isinstance(inner, flower.Bulyan):
        return 4 * bad + 3
    if isinstance(inner, flower.MultiKrum):  # Krum is one, too
        return max(2 * bad + 3, bad + inner.num_nodes_to_select if bad else 0)
    if isinstance(inner, flower.FedTrimmedAvg) and inner.beta:
        found = math.ceil(1 / inner.beta)
        return found + (int(inner.beta * found) < 1)  # the product is rounded
    return 1


def trimmed_mean(inner: Strategy, replies: int) -> Strategy:
    """What takes the place of a strategy that has fewer speakers than it needs.

    It leaves out the largest and smallest values of each weight, as many as the strategy bears bad
    replies and at least one, and takes the mean of the others.

    Args:
      inner: the strategy.
      replies: how many there are, those of silent clients among them.
    """
    own: Any = inner
    trimmed = min(max(1, _bad(inner, replies)), (replies - 1) // 2)
    return flower.FedTrimmedAvg(
        weighted_by_key=own.weighted_by_key,
        arrayrecord_key=own.arrayrecord_key,
        train_metrics_aggr_fn=own.train_metrics_aggr_fn,
        beta=(trimmed + 0.25) / replies,  # times `replies`, it is rounded down
    )


def _bad(inner: Strategy, replies: int) -> int:
    """How many bad replies of so many a strategy is told to bear."""
    if isinstance(inner, flower.FedTrimmedAvg):
        return int(inner.beta * replies)
    return int(getattr(inner, "num_malicious_nodes", 0))

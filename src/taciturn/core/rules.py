"""Rules: who speaks.

A rule is a few pure functions. The server keeps `state`, broadcasts a *context* made from it with
the weights, and learns from the tally of the round; a client looks at its own situation and
decides with `speaks`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taciturn.checks import flag, number
from taciturn.core.arrays import Scalar, namespace
from taciturn.core.parts import Part
from taciturn.core.tally import Tally
from taciturn.errors import InputError, UnknownName


class Situation(NamedTuple):
    """What a client knows when it decides; what the rule does not look at may be missing.

    Attributes:
      norm: m_k = ‖Δ_k‖.
      uniform: a draw from [0, 1) that nobody else uses.
      loss: its mean training loss over the local steps.
      silence: how many times in a row it was asked and stayed silent.
      examples: n_k.
    """

    norm: Scalar
    uniform: Scalar = 0.0
    loss: Scalar = math.nan
    silence: Scalar = 0
    examples: Scalar = 1.0


@dataclass(frozen=True)
class Rule(Part):
    """Decides who speaks.

    Attributes:
      init: `() -> state`, a tuple of numbers.
      broadcast: on the server, `(state) -> context`, a NamedTuple of numbers. A field `threshold`
        is a promise: a silent client's norm is that at most, and the server takes it as no more.
      speaks: on the client, `(situation, context) -> bool`.
      learn: on the server, `(state, tally) -> state`.
      looks_at: the fields of `Situation` that `speaks` and `probability` need.
      probability: on the client, `(situation, context) -> p`, how likely it was to speak, for rules
        that choose at random and by more than chance. The update of one who spoke then counts 1/p
        times, so that the mean over all draws is that of everyone. None counts everyone once.
    """

    init: Callable[[], Any] = field(kw_only=True, compare=False, repr=False)
    broadcast: Callable[[Any], Any] = field(
        default=lambda state: state, kw_only=True, compare=False, repr=False
    )
    speaks: Callable[[Situation, Any], Scalar] = field(kw_only=True, compare=False, repr=False)
    learn: Callable[[Any, Tally], Any] = field(
        default=lambda state, tally: state, kw_only=True, compare=False, repr=False
    )
    looks_at: tuple[str, ...] = field(default=("norm",), kw_only=True, compare=False, repr=False)
    probability: Callable[[Situation, Any], Scalar] | None = field(
        default=None, kw_only=True, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.looks_at:
            if name not in Situation._fields:
                raise UnknownName(f"thing for `{self.name}` to look at", name, Situation._fields)


class Nothing(NamedTuple):
    """State and context of a rule that needs none."""


class Threshold(NamedTuple):
    """A client speaks when its norm exceeds it."""

    threshold: Scalar


class Chance(NamedTuple):
    """A client speaks with this probability."""

    probability: Scalar


class Adaptive(NamedTuple):
    """State of `adaptive`: the threshold, and how many deviations below the mean it lies."""

    threshold: Scalar
    k: Scalar


def full() -> Rule:
    """Everyone speaks: plain federated averaging."""
    return Rule("full", init=Nothing, speaks=lambda situation, context: situation.norm >= 0)


def fixed(threshold: float) -> Rule:
    """A client speaks when the norm of its update exceeds a constant: m_k > τ.

    Args:
      threshold: τ, at least 0.
    """
    threshold = number("threshold", threshold, 0.0, math.inf, "[0, inf]")
    return Rule("fixed", (("threshold", threshold),), init=lambda: Threshold(threshold),
                speaks=_above)  # fmt: skip


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
                broadcast=lambda state: Threshold(state.threshold), speaks=_above,
                learn=learn)  # fmt: skip


def random(probability: float) -> Rule:
    """Every client speaks with the same probability, whatever its update.

    Args:
      probability: in [0, 1].
    """
    probability = number("probability", probability, 0.0, 1.0, "[0, 1]")
    return Rule("random", (("probability", probability),), init=lambda: Chance(probability),
                speaks=lambda situation, context: situation.uniform < context.probability,
                looks_at=("uniform",))  # fmt: skip


class Sampling(NamedTuple):
    """State of `optimal`: what n·m is multiplied by, the least probability, the share wanted."""

    scale: Scalar
    floor: Scalar
    share: Scalar


class Chances(NamedTuple):
    """Context of `optimal`: p = n·m·scale, but no less than the floor."""

    scale: Scalar
    floor: Scalar


def optimal(share: float, floor: float = 0.05) -> Rule:
    r"""A client speaks with a probability in proportion to what its update weighs, and counts 1/p.

        p_k = min(1, max(floor, share · N · n_k m_k / Σ_j n_j m_j))

    which has the least variance of all that let so many speak, if the sum is that of this round.
    The paper asks for it in a second exchange; here it is that of the last round, scaled to this
    one's clients. In the first round everyone speaks. With a stand-in that counts the mean is right
    on average: `zero` is the paper's estimator, `ou` and `last` take what they forecast out of the
    variance; with `ignore` it is divided by Σ n/p.

    Args:
      share: of the clients that speak, on average and before p is cut off at 1; above 0.
      floor: the least probability, above 0, so that nobody counts without bound.

    References:
      Chen, Horváth, Richtárik. Optimal Client Sampling for Federated Learning, 2020.
    """
    share = number("share", share, 0.0, 1.0, "(0, 1]")
    floor = number("floor", floor, 0.0, 1.0, "(0, 1]")
    for name, value in (("share", share), ("floor", floor)):
        if not value:
            raise InputError(f"`{name}` must be above 0, got {value:g}.")

    def probability(situation: Situation, context: Chances) -> Scalar:
        p = situation.examples * situation.norm * context.scale
        xp = namespace(p) if hasattr(p, "__array_namespace__") else np
        return xp.clip(p, context.floor, 1.0)

    def learn(state: Sampling, tally: Tally) -> Sampling:
        asked = tally.norms_unweighted.weight
        weighed = tally.norms.weight * tally.norms.mean
        xp = namespace(weighed)
        known = weighed > 0
        scale = state.share * asked / xp.where(known, weighed, xp.ones_like(weighed))
        everyone = xp.full_like(weighed, _EVERYONE)
        return Sampling(xp.where(known, scale, everyone), state.floor, state.share)

    return Rule("optimal", (("share", share), ("floor", floor)),
                init=lambda: Sampling(_EVERYONE, floor, share),
                broadcast=lambda state: Chances(state.scale, state.floor),
                speaks=lambda own, context: own.uniform < probability(own, context),
                probability=probability, learn=learn,
                looks_at=("norm", "uniform", "examples"))  # fmt: skip


_EVERYONE = 1e30  # n·m times this is above 1, and finite


def _above(situation: Situation, context: Threshold) -> Scalar:
    return situation.norm > context.threshold

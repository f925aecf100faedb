"""Rules: who speaks.

A rule is a few pure functions. The server keeps `state`, broadcasts a *context* made from it with
the weights, and learns from the tally of the round; a client decides by its own stats.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from taciturn.checks import flag, number, whole
from taciturn.core.arrays import Array, Scalar, namespace, ratio
from taciturn.core.parts import Part
from taciturn.core.tally import Tally
from taciturn.errors import InputError, UnknownName


class ClientStats(NamedTuple):
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rule(Part):
    """Decides who speaks.

    Attributes:
      init: `(size, rounds) -> state`, a tuple of numbers; `rounds` is None where nobody knows how
        many there will be.
      broadcast: on the server, `(state, asked) -> context`, a NamedTuple of numbers, for a round in
        which so many clients are asked. A field `threshold` is a promise: a silent client's norm is
        that at most, and the server takes it as no more.
      speaks: on the client, `(stats, context) -> bool`.
      learn: on the server, `(state, tally) -> state`.
      each: whether it learns from each norm, `Tally.each`: sums are not enough.
      looks_at: the fields of `ClientStats` that `speaks` and `probability` need.
      probability: on the client, `(stats, context) -> p`, how likely it was to speak, for rules
        that draw with unequal chances. The update of one who spoke then counts 1/p times, so that
        the mean over all draws is that of everyone. None counts everyone once.
      nbytes: on the client, `(stats, context) -> bytes` of its code, for rules that give each
        client a length of its own. The policy needs a codec with `lengths`, such as `peaks`.
    """

    init: Callable[[int, int | None], Any]
    broadcast: Callable[[Any, Scalar], Any] = lambda state, asked: state
    speaks: Callable[[ClientStats, Any], Scalar]
    learn: Callable[[Any, Tally], Any] = lambda state, tally: state
    each: bool = False
    looks_at: tuple[str, ...] = ("norm",)
    probability: Callable[[ClientStats, Any], Scalar] | None = None
    nbytes: Callable[[ClientStats, Any], Scalar] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.looks_at:
            if name not in ClientStats._fields:
                raise UnknownName(f"thing for `{self.name}` to look at", name, ClientStats._fields)


class Nothing(NamedTuple):
    """State and context of a rule that needs none."""


class Threshold(NamedTuple):
    """A client speaks when its norm exceeds it."""

    threshold: Scalar


class Chance(NamedTuple):
    """A client speaks with this probability."""

    probability: Scalar


class Adaptive(NamedTuple):
    """State of `adaptive`."""

    threshold: Scalar
    k: Scalar


class Robust(NamedTuple):
    """State of `adaptive,robust=true`."""

    threshold: Scalar
    k: Scalar
    median: Scalar  # of the last round's norms; 0 before the first
    fall: Scalar  # the factor by which norms are expected to fall from round to round
    spoke: Scalar  # how many did in the last round: if nobody did, norms had no reason to fall


def full() -> Rule:
    """Everyone speaks: plain federated averaging."""
    return Rule("full", init=lambda size, rounds: Nothing(),
                speaks=lambda stats, context: stats.norm >= 0)  # fmt: skip


def fixed(threshold: float) -> Rule:
    """A client speaks when the norm of its update exceeds a constant: m_k > τ.

    Args:
      threshold: τ, at least 0.
    """
    threshold = number("threshold", threshold, "[0, inf]")
    return Rule("fixed", (("threshold", threshold),), speaks=_above,
                init=lambda size, rounds: Threshold(threshold))  # fmt: skip


def adaptive(
    k: float = 1.0, weighted: bool = True, robust: bool = False, at_most: float | None = None
) -> Rule:
    r"""A client speaks when its norm exceeds a threshold that follows the norms of the last round.

        τ_0 = 0,    τ_{t+1} = mean(m) − k · std(m)

    over all norms of round t, silent clients included. When the norms hardly differ
    (std < 1e-6 · mean) they say nothing about who matters, and τ_{t+1} = 0: everyone speaks. The
    paper has k = 1 and reads as an unweighted mean; its authors' code weights by n_k.

    With `robust` it is for federations in which a client may lie, and for those whose first rounds
    are unlike the others:

        τ_{t+1} = f_t · (median(m) − k · max(1.4826 · MAD(m), median(m) / 10))
        f_t = min(median(m) / median of round t − 1, (1 + f_{t−1}) / 2),    f_0 = 0

    Every client has one vote, because what it weighs is what it says of itself; and one that is
    within a tenth of the median has as much to say as others. f expects norms to fall once more as
    they just fell. It is 0 after the first round, so everyone speaks in the second too; after a
    round in which nobody spoke it stays, because the model has.

    Args:
      k: how many deviations below the mean the threshold lies. Larger is more talkative.
      weighted: whether mean and deviation are weighted by the clients' example counts n_k.
      robust: whether the threshold follows median and MAD.
      at_most: how many times in a row a client may be silent when it is asked; None without end.

    References:
      Ribero, Vikalo. Communication-Efficient Federated Learning via Optimal Client Sampling, 2020.
    """
    k = number("k", k, "(-inf, inf)")
    weighted, robust, most = flag("weighted", weighted), flag("robust", robust), None
    if at_most is not None:
        integral = isinstance(at_most, float) and at_most.is_integer()  # as text has it
        most = whole("at_most", int(at_most) if integral else at_most)

    def learn(state: Adaptive, tally: Tally) -> Adaptive:
        norms = tally.norms if weighted else tally.norms_unweighted
        return Adaptive(_threshold(norms.mean, norms.deviation(), state.k), state.k)

    def learn_robustly(state: Robust, tally: Tally) -> Robust:
        norms = tally.each
        if norms is None:
            raise InputError(
                "This rule needs each norm: `tally.start(weights, each=True)` keeps them."
            )
        xp, median = namespace(norms), _median(norms)
        dtype, mad = median.dtype, _median(xp.abs(norms - median))
        deviation = xp.maximum(1.4826 * mad, median / 10)[()]  # 1.4826 MAD: that of a normal
        before, fall, spoke = (xp.asarray(number, dtype=dtype) for number in state[2:])
        fall = xp.where(spoke > 0, xp.minimum(ratio(median, before), (1 + fall) / 2), fall)
        threshold = fall * _threshold(median, deviation, state.k)
        return Robust(threshold, state.k, median, fall, xp.astype(tally.n_spoke, dtype))

    params = (("k", k), ("weighted", weighted), ("robust", robust), ("at_most", most))
    first = Robust(0.0, k, 0.0, 0.0, 1.0) if robust else Adaptive(0.0, k)
    return Rule("adaptive", params, init=lambda size, rounds: first,
                broadcast=lambda state, asked: Threshold(state.threshold),
                speaks=_above if most is None else
                lambda own, context: _above(own, context) | (own.silence >= most),
                learn=learn_robustly if robust else learn, each=robust,
                looks_at=("norm",) if most is None else ("norm", "silence"))  # fmt: skip


def random(probability: float) -> Rule:
    """Every client speaks with the same probability, whatever its update.

    Args:
      probability: in [0, 1].
    """
    probability = number("probability", probability, "[0, 1]")
    return Rule("random", (("probability", probability),),
                init=lambda size, rounds: Chance(probability),
                speaks=lambda stats, context: stats.uniform < context.probability,
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
    share = number("share", share, "(0, 1]")
    floor = number("floor", floor, "(0, 1]")

    def probability(stats: ClientStats, context: Chances) -> Scalar:
        p = stats.examples * stats.norm * context.scale
        return namespace(p).clip(p, context.floor, 1.0)

    def learn(state: Sampling, tally: Tally) -> Sampling:
        weighed = tally.norms.weight * tally.norms.mean
        scale = ratio(state.share * tally.norms_unweighted.weight, weighed, empty=_EVERYONE)
        return Sampling(scale, state.floor, state.share)

    return Rule("optimal", (("share", share), ("floor", floor)),
                init=lambda size, rounds: Sampling(_EVERYONE, floor, share),
                broadcast=lambda state, asked: Chances(state.scale, state.floor),
                speaks=lambda own, context: own.uniform < probability(own, context),
                probability=probability, learn=learn,
                looks_at=("norm", "uniform", "examples"))  # fmt: skip


_EVERYONE = 1e30  # n·m times this is above 1, and finite


def _above(stats: ClientStats, context: Threshold) -> Scalar:
    return stats.norm > context.threshold


def _threshold(mean: Scalar, deviation: Scalar, k: Scalar) -> Scalar:
    """`k` deviations below the mean; 0 where the norms hardly differ."""
    xp, threshold = namespace(deviation), mean - k * deviation
    informative = (deviation >= 1e-6 * mean) & (deviation > 0) & xp.isfinite(threshold)
    return xp.where(informative, threshold, 0.0)


def _median(x: Array) -> Scalar:
    """The lower median of those that are not NaN, so that one of two cannot raise it; 0 of none."""
    xp = namespace(x)
    if not x.shape[0]:
        return xp.zeros((), dtype=x.dtype)[()]
    count = xp.sum(~xp.isnan(x), dtype=xp.int32)
    middle = xp.sort(x)[xp.maximum(count - 1, 0) // 2]  # NaN is sorted behind all numbers
    return xp.where(count > 0, middle, 0.0)[()]

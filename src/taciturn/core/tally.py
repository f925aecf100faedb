"""The tally: the sums over clients that are all the server needs of a round.

Clients are added in any order, one by one or as a group whose sums are known: memory does not grow
with the cohort, and secure aggregation can deliver the sums. Only a rule that says so, `Rule.each`,
is given every client's norm beside them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import Array, Scalar, add_scaled, namespace, norm, ratio, zeros
from taciturn.core.codecs import Codec, float32
from taciturn.errors import InputError

_EXACT = float32()
# Bytes of every message, up or down, beside its code: version and kind (4), and 4 each for the
# number of weights, examples, norm, norm of what was encoded, and probability.
OVERHEAD = 24


class Message(NamedTuple):
    """What a client says."""

    examples: Scalar  # n_k, what its update weighs; it need not be whole
    norm: Scalar  # m_k = ‖Δ_k‖, before any codec
    update: Array | None  # Δ_k, on the server as decoded; None from a client that stays silent
    encoded_norm: Scalar | None = None  # with feedback ‖Δ_k + e_k‖; None where that is m_k
    probability: Scalar = 1.0  # how likely it was to speak, where the rule says so: it counts 1/p
    nbytes: int = 0  # of its code, where the rule gives each client a length


class Moments(NamedTuple):
    """Weight, mean, sum of squared deviations: where clients clip, Σ m² − (Σ m)² goes below 0."""

    weight: Scalar
    mean: Scalar
    m2: Scalar

    def deviation(self) -> Scalar:
        """The population form, √(Σ w (m − mean)² / Σ w); 0 when nothing was seen."""
        return namespace(self.m2).sqrt(ratio(self.m2, self.weight))


class Tally(NamedTuple):
    """What a round comes to."""

    # Σ n·Δ/p over the clients that spoke, each with probability p; p = 1 under most rules. Under
    # the stand-in `own`, what silent clients said last is in it too.
    spoken: Array
    n_spoke: Scalar
    n_silent: Scalar
    n_rejected: Scalar
    n_absent: Scalar  # clients that did not answer and are treated as silent
    nbytes: Scalar  # of the codes of those who spoke, where the codec has any length; else 0
    examples_spoke: Scalar  # Σ n/p over those who spoke
    # Σ n over the silent minus Σ n (1/p − 1) over those who spoke: with `examples_spoke` it makes
    # up the examples of everyone.
    examples_silent: Scalar
    examples_capped: Scalar  # the same with n·min(1, m/‖Δ̂‖) instead of n
    norms: Moments  # of all norms, weighted by n
    norms_unweighted: Moments
    each: Array | None = None  # every norm, NaN of who was rejected; None where no rule asks


class RoundConfig(NamedTuple):
    """What the server knows of a round before anyone answers."""

    context: Any  # the record that the rule broadcasts, such as a threshold or a probability
    silent_at_most: Scalar  # the largest norm that a silent client can have
    stand_in_norm: Scalar  # ‖Δ̂‖, of what stands in for a silent client; inf where it is not capped


def start(weights: Array, each: bool = False) -> Tally:
    """The tally of nobody; with `each`, it will keep every norm."""
    spoken = zeros(weights)
    nobody = namespace(weights).zeros((0,), dtype=spoken.dtype)
    return of(spoken, nobody, nobody, nobody > 0, RoundConfig((), 0.0, 0.0), each=each)


def add(
    tally: Tally, message: Message, config: RoundConfig, codec: Codec = _EXACT, *,
    last: Array | None = None,
) -> Tally:  # fmt: skip
    """The tally with one more client in it.

    A message that is not finite, that weighs nothing, or whose norm does not fit its update is
    counted as rejected and changes nothing else. Whole groups, and compiled programs, have `of`.

    `config` is what `server.open` returned for this round, `codec` what the message was written
    with, and `last` what the client said last, for a stand-in that needs it (`StandIn.own`).
    """
    update, spoken, xp = message.update, tally.spoken, namespace(tally.spoken)
    if update is not None and update.shape != spoken.shape:
        raise InputError(
            f"An update must have {spoken.shape[0]} weights like the model, "
            f"got shape {tuple(update.shape)}."
        )
    examples, norm_, chance = (
        xp.asarray(number, dtype=spoken.dtype)
        for number in (message.examples, message.norm, message.probability)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        right = (chance > 0) & (chance <= 1)
        if update is not None:
            actual, codec = xp.astype(norm(update), norm_.dtype), codec.at(message.nbytes)
            encoded = norm_
            if codec.feedback and message.encoded_norm is not None:
                encoded = xp.asarray(message.encoded_norm, dtype=norm_.dtype)
            right = right & fits(codec, encoded, actual, update.shape[0])
            if not codec.error(update.shape[0]):  # what a lossless code says is measured
                norm_ = actual
        one = of(
            spoken, examples[None], xp.where(right, norm_, math.nan)[None],
            xp.asarray([update is not None]), config, chance[None],
            each=tally.each is not None, nbytes=xp.asarray([message.nbytes]),
        )  # fmt: skip
        if one.n_spoke:
            spoken = add_scaled(spoken, examples / chance, update)
        if last is not None:
            spoken = add_scaled(spoken, one.examples_silent, last)
    added = {name: getattr(tally, name) + getattr(one, name) for name in Tally._fields[1:-3]}
    return Tally(
        spoken, **added,
        norms=_merged(tally.norms, one.norms),
        norms_unweighted=_merged(tally.norms_unweighted, one.norms_unweighted),
        each=None if tally.each is None else xp.concat([tally.each, one.each]),
    )  # fmt: skip


def fits(codec: Codec, reported: Scalar, actual: Scalar, size: int) -> Scalar:
    """Whether an update of the reported norm can have been decoded to one of the actual norm."""
    low, high = codec.norm_range(reported, size)
    return namespace(actual).isfinite(actual) & (low <= actual) & (actual <= high)


def of(
    spoken: Array, examples: Array, norms: Array, spoke: Array, config: RoundConfig,
    probabilities: Array | None = None, *, each: bool = False, nbytes: Array | None = None,
) -> Tally:  # fmt: skip
    """The tally of a group of clients; all but `config` and `each` have one entry per client.

    Args:
      spoken: but this one, Σ n·Δ/p over those of the group that spoke and have a finite norm.
      examples, norms: n_k and m_k. A client whose norm is not finite or below 0 is rejected.
      spoke: who spoke.
      config: what `server.open` returned for this round.
      probabilities: p of having spoken; all 1 where there are none.
      each: whether every norm is kept.
      nbytes: of the code of each that spoke, where their codec's have any length.
    """
    xp = namespace(norms)
    accepted = _accepted(examples, norms)
    silence = stands_in_for(examples, norms, spoke, probabilities)
    spoke, silent = accepted & spoke, accepted & ~spoke
    n = xp.where(accepted, xp.astype(examples, norms.dtype), 0.0)
    m = xp.where(accepted, norms, 0.0)
    # A threshold may lie below 0, a norm may not.
    most = xp.maximum(xp.asarray(config.silent_at_most, dtype=m.dtype), 0.0)
    m = xp.where(silent, xp.minimum(m, most), m)
    longest = xp.asarray(config.stand_in_norm, dtype=m.dtype) * xp.ones_like(m)
    share = xp.minimum(ratio(m, longest, empty=1.0), 1.0)
    whole = xp.asarray(0).dtype  # the widest whole numbers that the library has by itself
    nbytes = xp.zeros_like(spoke, dtype=whole) if nbytes is None else nbytes
    n_spoke, n_silent, n_rejected = (
        xp.sum(who, dtype=xp.int32) for who in (spoke, silent, ~accepted)
    )
    return Tally(
        spoken, n_spoke, n_silent, n_rejected, n_absent=xp.zeros((), dtype=xp.int32),
        nbytes=xp.sum(xp.where(spoke, nbytes, 0), dtype=whole),
        examples_spoke=xp.sum(xp.where(spoke, n - silence, 0.0)), examples_silent=xp.sum(silence),
        examples_capped=xp.sum(silence * share),
        norms=_moments(n, m), norms_unweighted=_moments(xp.astype(accepted, m.dtype), m),
        each=xp.where(accepted, m, math.nan) if each else None,
    )  # fmt: skip


def stands_in_for(
    examples: Array, norms: Array, spoke: Array, probabilities: Array | None = None
) -> Array:
    """What the stand-in weighs for each client; arguments are those of `of`.

    That is n for a silent one and 0 for a rejected one. One who spoke counts n (1/p − 1) beyond
    itself, and takes that away from the others' stand-in.
    """
    xp = namespace(norms)
    n = xp.where(_accepted(examples, norms), xp.astype(examples, norms.dtype), 0.0)
    if probabilities is None:
        return xp.where(spoke, 0.0, n)
    beyond = ratio(xp.ones_like(probabilities), probabilities, empty=1.0) - 1
    return n * xp.where(spoke, -beyond, 1.0)


def _accepted(examples: Array, norms: Array) -> Array:
    xp = namespace(norms)
    return xp.isfinite(norms) & (norms >= 0) & xp.isfinite(examples) & (examples > 0)


def with_absent(tally: Tally, count: int, config: RoundConfig) -> Tally:
    """The tally with so many clients that did not answer: silent, of mean weight and norm."""
    answered = int(tally.n_spoke + tally.n_silent)
    if not count or not answered:
        return tally
    examples = tally.norms.weight * count / answered
    share = min(1.0, float(ratio(tally.norms.mean, np.float64(config.stand_in_norm), empty=1.0)))
    return tally._replace(
        n_absent=tally.n_absent + count,
        examples_silent=tally.examples_silent + examples,
        examples_capped=tally.examples_capped + examples * share,
    )


def _moments(weight: Array, x: Array) -> Moments:
    xp = namespace(x)
    total = xp.sum(weight)
    mean = ratio(xp.sum(weight * x), total)
    return Moments(total, mean, xp.sum(weight * (x - mean) ** 2))


def _merged(a: Moments, b: Moments) -> Moments:
    """Chan, Golub, LeVeque, 1979."""
    weight = a.weight + b.weight
    share = ratio(b.weight, weight)
    gap = b.mean - a.mean
    return Moments(weight, a.mean + gap * share, a.m2 + b.m2 + gap * gap * a.weight * share)

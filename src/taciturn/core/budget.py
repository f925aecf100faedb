r"""The rule `budget`: so much upload, on average, spent where it counts most.

What `eden` with b bits per weight leaves in error is about 1.57 ‖Δ_k‖² / b, and client k's update
weighs n_k. So many bytes do least harm when

    b_k = c · n_k m_k

with at most 16 times the mean, so that no round is spent by a single client. Bits are rounded to a
level of `ladder`, and of its two codes with as many bits a client takes the one with less error;
with `codec=peaks` there is one code, whose error is smaller than that of either.
Below the lowest level b₁ it speaks with probability p = b_k / b₁ on it and counts 1/p: the same
upload, and right on average, as in `optimal`.

The server chooses c. It knows what n·m is like, from the rounds before, and what was spent too much
so far, its *debt* in rounds' worth:

    c = bits in the budget · e^(−gain · debt) / mean of n·m

A budget per round is the same in every round. One for the whole run rises from 0.2 times its mean
to 1.8 times: later rounds wash the errors of early ones out of the model, those of the last stay.
"""

from typing import NamedTuple

import numpy as np

from taciturn.checks import choice, whole
from taciturn.core.amounts import Amount
from taciturn.core.arrays import Scalar, library, namespace
from taciturn.core.codecs import Codec
from taciturn.core.codecs.ladder import BITS, LADDER, PEAKS, level_of, rung_of
from taciturn.core.messages import OVERHEAD
from taciturn.core.rules import Rule, Situation
from taciturn.core.standins import ignore
from taciturn.core.tally import Tally
from taciturn.errors import InputError

_LARGEST = 16.0  # times the mean is what a client may spend
_FLOOR = 0.05  # the least probability, so that nobody counts without bound
_GAIN = 0.2  # how fast debts are paid: most of one within 1 / gain rounds
_MOST_DEBT = 10.0  # rounds' worth that a budget per round remembers; a run's pays all back
# What the last round's n·m weigh beside those of the rounds before: 3 of t + 3 in round t, and 0.05
# at the least. The first round may have far longer updates than all others, and must be forgotten.
_FIRST_ONES, _NEW = 3.0, 0.05
_FIRST_BITS = 0.1  # of the first round, where what bytes are a share of is not known yet
_LEAST_BITS = 1e-4
_FIRST, _LAST = 0.2, 1.8  # times the mean is what the first and the last round of a run may spend
_SCARCE = 250.0  # bytes for an update below which small models were seen to lose points
_SILENT = ignore()
_LOOKS_AT: tuple[str, ...] = ("norm", "uniform", "examples")


class Budget(NamedTuple):
    """State of `budget`.

    Attributes:
      share: of the float32 upload that may be spent, on average; 0 where bytes are given.
      bytes: that may be spent in a round, on average; 0 where a share is given.
      rounds: so far.
      typical: the mean of n·m; 0 before the first round.
      debt: what was spent too much, in mean rounds' worth.
      scale, flat, most: see `Rates`.
      run: rounds over which the budget rises; 0 where all have the same.
    """

    share: Scalar
    bytes: Scalar
    rounds: Scalar
    typical: Scalar
    debt: Scalar
    scale: Scalar
    flat: Scalar
    most: Scalar
    run: Scalar


class Rates(NamedTuple):
    """Context of `budget`: a client has min(n·m·scale + flat, most) bits per weight."""

    scale: Scalar
    flat: Scalar
    most: Scalar


def budget(amount: str, per: str = "round", codec: str = "mixed") -> Rule:
    """So much upload: each client speaks with bits in proportion to what its update weighs.

    It brings the codec that it needs, with bits for each client, and the stand-in `ignore`.

    Args:
      amount: a share of what everyone would upload in float32, as in 1%, at most 12.5%, or 6.9%
        for a whole run; or bytes, as in 200kB or 2GB.
      per: what the amount is for: a round, so that every one has as much, or the whole run, where
        the first rounds have little and the last ones more.
      codec: what updates are written in: the better of `eden` and `draw_k`, or `peaks`.
    """
    wanted = Amount(amount)
    choice("per", per, ("round", "run"))
    choice("codec", codec, ("mixed", "peaks"))
    most = BITS[-1] / 32 / (_LAST if per == "run" else 1)
    if wanted.is_share and wanted > most:
        raise InputError(f"`amount` must be at most {100 * most:.3g}% per {per}, got {wanted}.")
    return _budget(wanted, per, codec, 0 if per == "round" else None)


def _budget(amount: Amount, per: str, codec: str, run: int | None) -> Rule:
    """The rule for a run of so many rounds: 0 for a budget per round, None where not known yet."""

    def init() -> Budget:
        if run is None:
            raise InputError("`per=run` needs the number of rounds: see `Policy.paced`.")
        share, bytes = (float(amount), 0.0) if amount.is_share else (0.0, amount / max(run, 1))
        first = 32 * share * float(pace(np.float32(0), run)) if share else _FIRST_BITS
        return Budget(share, bytes, 0.0, 0.0, 0.0, 0.0, first, first, float(run))

    def paced(rounds: int) -> Rule:
        return _budget(amount, per, codec, whole("rounds", rounds, 1))

    ladder, rung, looks_at = PEAKS, _level, _LOOKS_AT
    if codec == "mixed":
        ladder, rung, looks_at = LADDER, _rung, (*_LOOKS_AT, "evenness")
    return Rule(
        "budget", (("amount", amount), ("per", per), ("codec", codec)),
        init=init, broadcast=lambda state: Rates(state.scale, state.flat, state.most),
        speaks=lambda own, context: own.uniform < _probability(own, context),
        probability=_probability, rung=rung,
        learn=lambda state, tally: _learn(state, tally, ladder), looks_at=looks_at,
        stand_in=_SILENT, codec=ladder, paced=paced if per == "run" else None,
    )  # fmt: skip


def doubt(rule: Rule, size: int, cohort: int) -> str:
    """Why a model of this size cannot keep to a budget; empty where it can, and for other rules.

    Everyone sends a header, and one in twenty speaks whatever happens.
    """
    state = rule.init()
    if not isinstance(state, Budget) or rule.codec is None:
        return ""
    whole = 4 * size + OVERHEAD
    least = OVERHEAD + _FLOOR * min(code.nbytes(size) for code in rule.codec.rungs)
    wanted = state.share * whole or state.bytes / cohort
    if least <= 1.1 * wanted:
        return ""
    return (
        f"the budget of {dict(rule.params)['amount']} cannot be kept: with {size:,} weights, "
        f"headers and the least that clients may say take {100 * least / whole:.3g} % of the "
        f"float32 upload, {cohort * least:,.0f} bytes in a round"
    )


def scarce(rule: Rule, size: int, cohort: int) -> str:
    """Why a budget may leave a small model too little to learn from; empty where it does not."""
    state = rule.init()
    if not isinstance(state, Budget):
        return ""
    left = state.share * (4 * size + OVERHEAD) + state.bytes / cohort - OVERHEAD
    if left >= _SCARCE:
        return ""
    return (
        f"the budget of {dict(rule.params)['amount']} leaves {max(left, 0.0):,.0f} bytes for an "
        f"update of {size:,} weights: a model may learn little from so few; a larger budget, or "
        f"`full`, is safer"
    )


def _bits(own: Situation, context: Rates) -> Scalar:
    bits = own.examples * own.norm * context.scale + context.flat
    return library(bits).minimum(bits, context.most)


def _rung(own: Situation, context: Rates) -> Scalar:
    return rung_of(_bits(own, context), own.evenness)


def _level(own: Situation, context: Rates) -> Scalar:
    return level_of(_bits(own, context))


def _probability(own: Situation, context: Rates) -> Scalar:
    p = _bits(own, context) / BITS[0]
    return library(p).clip(p, _FLOOR, 1.0)


def pace(rounds: Scalar, run: Scalar) -> Scalar:
    """What the round after so many may spend, in means; a run that goes on stays at the last."""
    xp = namespace(rounds)
    run, one = xp.asarray(run, dtype=rounds.dtype), xp.ones_like(rounds)
    passed = xp.clip((rounds + 0.5) / xp.where(run > 0, run, one), 0.0, 1.0)
    return xp.where(run > 0, _FIRST + (_LAST - _FIRST) * passed, one)


def _learn(state: Budget, tally: Tally, ladder: Codec) -> Budget:
    size, asked = tally.spoken.shape[0], tally.norms_unweighted.weight
    weighed = tally.norms.weight * tally.norms.mean
    xp = namespace(weighed)
    answered = xp.where(asked > 0, asked, xp.ones_like(asked))
    # All in updates of float32, headers too.
    shares = xp.asarray([c.nbytes(size) / (4 * size) for c in ladder.rungs], dtype=asked.dtype)
    headers = asked * (OVERHEAD / (4 * size))
    spent = xp.sum(xp.astype(tally.rungs, asked.dtype) * shares) + headers
    even = state.share * (asked + headers) + state.bytes / (4 * size)
    rounds = xp.asarray(state.rounds, dtype=asked.dtype)
    target, following = even * pace(rounds, state.run), even * pace(rounds + 1, state.run)
    more = (spent - target) / xp.where(even > 0, even, xp.ones_like(even))
    most = xp.where(state.run > 0, xp.full_like(more, xp.inf), xp.full_like(more, _MOST_DEBT))
    debt = xp.clip(state.debt + more, -_MOST_DEBT, most)
    now = weighed / answered
    old = xp.where(state.typical > 0, xp.asarray(state.typical, dtype=now.dtype), now)
    newest = xp.clip(_FIRST_ONES / (rounds + _FIRST_ONES), _NEW, 1.0)
    typical = old + newest * (now - old)
    bits = xp.clip(32 * (following - headers) / answered, _LEAST_BITS, BITS[-1])
    known = typical > 0
    scale = bits * xp.exp(-_GAIN * debt) / xp.where(known, typical, xp.ones_like(typical))
    zero = xp.zeros_like(scale)
    return state._replace(
        rounds=rounds + 1, typical=typical, debt=debt, scale=xp.where(known, scale, zero),
        flat=xp.where(known, zero, bits), most=_LARGEST * bits,
    )  # fmt: skip

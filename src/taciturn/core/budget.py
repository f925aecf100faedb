r"""The rule `budget`: so much upload and no more, spent where it counts most.

What `eden` with b bits per weight leaves in error is about 1.57 ‖Δ_k‖² / b, and client k's update
weighs n_k. So many bytes do least harm when

    b_k = c · n_k m_k

with at most 16 times the mean, so that no round is spent by a single client. Bits are rounded to a
level of `ladder`, and of its two codes with as many bits a client takes the one with less error.
Below the lowest level b₁ it speaks with probability p = b_k / b₁ on it and counts 1/p: the same
upload, and right on average, as in `optimal`.

The server chooses c. It knows what n·m is like, from the rounds before, and what was spent too much
so far, its *debt* in rounds' worth:

    c = bits in the budget · e^(−gain · debt) / mean of n·m
"""

from typing import Any, NamedTuple

import numpy as np

from taciturn.checks import choice, whole
from taciturn.core.amounts import Amount
from taciturn.core.arrays import Scalar, namespace
from taciturn.core.codecs.ladder import BITS, LADDER, rung_of
from taciturn.core.messages import OVERHEAD
from taciturn.core.rules import Rule, Situation
from taciturn.core.standins import ignore
from taciturn.core.tally import Tally
from taciturn.errors import InputError

_LARGEST = 16.0  # times the mean is what a client may spend
_FLOOR = 0.05  # the least probability, so that nobody counts without bound
_GAIN = 0.2  # how fast debts are paid: most of one within 1 / gain rounds
_MOST_DEBT = 10.0  # rounds
# What the last round's n·m weigh beside those of the rounds before: 3 of t + 3 in round t, and 0.05
# at the least. The first round may have far longer updates than all others, and must be forgotten.
_FIRST_ONES, _NEW = 3.0, 0.05
_FIRST_BITS = 0.1  # of the first round, where what bytes are a share of is not known yet
_LEAST_BITS = 1e-4
_SILENT = ignore()


class Budget(NamedTuple):
    """State of `budget`.

    Attributes:
      share: of the float32 upload that may be spent; 0 where bytes are given.
      bytes: that may be spent in a round; 0 where a share is given.
      rounds: so far.
      typical: the mean of n·m; 0 before the first round.
      debt: what was spent too much, in rounds' worth.
      scale, flat, most: see `Rates`.
    """

    share: Scalar
    bytes: Scalar
    rounds: Scalar
    typical: Scalar
    debt: Scalar
    scale: Scalar
    flat: Scalar
    most: Scalar


class Rates(NamedTuple):
    """Context of `budget`: a client has min(n·m·scale + flat, most) bits per weight."""

    scale: Scalar
    flat: Scalar
    most: Scalar


def budget(amount: str, per: str = "round") -> Rule:
    """So much upload: each client speaks with bits in proportion to what its update weighs.

    It brings the codec that it needs, with bits for each client, and the stand-in `ignore`.

    Args:
      amount: a share of what everyone would upload in float32, as in 1%, at most 12%; or bytes, as
        in 200kB or 2GB.
      per: what bytes are for, a round or the whole run.
    """
    wanted = Amount(amount)
    choice("per", per, ("round", "run"))
    if wanted.is_share and wanted > BITS[-1] / 32:
        raise InputError(f"`amount` must be at most {100 * BITS[-1] / 32:g}%, got {wanted}.")
    return _budget(wanted, per, 1.0 if per == "round" or wanted.is_share else None)


def _budget(amount: Amount, per: str, rounds: float | None) -> Rule:
    """The rule where the amount is for so many rounds; None where that is not known yet."""

    def init() -> Budget:
        if rounds is None:
            raise InputError("`per=run` needs the number of rounds: see `Policy.paced`.")
        share, bytes = (float(amount), 0.0) if amount.is_share else (0.0, amount / rounds)
        first = 32 * share if share else _FIRST_BITS
        return Budget(share, bytes, 0.0, 0.0, 0.0, 0.0, first, first)

    def paced(count: int) -> Rule:
        return _budget(amount, per, float(whole("rounds", count, 1)))

    return Rule(
        "budget", (("amount", amount), ("per", per)),
        init=init, broadcast=lambda state: Rates(*state[-3:]),
        speaks=lambda own, context: own.uniform < _probability(own, context),
        probability=_probability, rung=_rung,
        learn=_learn, looks_at=("norm", "uniform", "examples", "evenness"),
        stand_in=_SILENT, codec=LADDER, paced=paced if rounds is None else None,
    )  # fmt: skip


def doubt(rule: Rule, size: int, cohort: int) -> str:
    """Why a model of this size cannot keep to a budget; empty where it can, and for other rules.

    Everyone sends a header, and one in twenty speaks whatever happens.
    """
    state = rule.init()
    if not isinstance(state, Budget):
        return ""
    whole = 4 * size + OVERHEAD
    least = OVERHEAD + _FLOOR * min(code.nbytes(size) for code in LADDER.rungs)
    wanted = state.share * whole or state.bytes / cohort
    if least <= 1.1 * wanted:
        return ""
    return (
        f"the budget of {dict(rule.params)['amount']} cannot be kept: with {size:,} weights, even "
        f"where hardly anybody speaks, {100 * least / whole:.3g} % of the float32 upload is sent, "
        f"{cohort * least:,.0f} bytes in a round"
    )


def _bits(own: Situation, context: Rates) -> Scalar:
    bits = own.examples * own.norm * context.scale + context.flat
    return _space(bits).minimum(bits, context.most)


def _rung(own: Situation, context: Rates) -> Scalar:
    return rung_of(_bits(own, context), own.evenness)


def _space(number: Scalar) -> Any:
    return namespace(number) if hasattr(number, "__array_namespace__") else np


def _probability(own: Situation, context: Rates) -> Scalar:
    p = _bits(own, context) / BITS[0]
    return _space(p).clip(p, _FLOOR, 1.0)


def _learn(state: Budget, tally: Tally) -> Budget:
    size, asked = tally.spoken.shape[0], tally.norms_unweighted.weight
    weighed = tally.norms.weight * tally.norms.mean
    xp = namespace(weighed)
    answered = xp.where(asked > 0, asked, xp.ones_like(asked))
    # All in updates of float32, headers too.
    shares = xp.asarray([c.nbytes(size) / (4 * size) for c in LADDER.rungs], dtype=asked.dtype)
    headers = asked * (OVERHEAD / (4 * size))
    spent = xp.sum(xp.astype(tally.rungs, asked.dtype) * shares) + headers
    target = state.share * (asked + headers) + state.bytes / (4 * size)
    debt = xp.clip(state.debt + spent / target - 1, -_MOST_DEBT, _MOST_DEBT)
    now = weighed / answered
    old = xp.where(state.typical > 0, xp.asarray(state.typical, dtype=now.dtype), now)
    rounds = xp.asarray(state.rounds, dtype=now.dtype)
    newest = xp.clip(_FIRST_ONES / (rounds + _FIRST_ONES), _NEW, 1.0)
    typical = old + newest * (now - old)
    bits = xp.clip(32 * (target - headers) / answered, _LEAST_BITS, BITS[-1])
    known = typical > 0
    scale = bits * xp.exp(-_GAIN * debt) / xp.where(known, typical, xp.ones_like(typical))
    zero = xp.zeros_like(scale)
    return Budget(
        state.share, state.bytes, rounds + 1, typical, debt, xp.where(known, scale, zero),
        xp.where(known, zero, bits), _LARGEST * bits,
    )  # fmt: skip

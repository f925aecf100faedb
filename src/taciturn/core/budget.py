r"""The rule `budget`: so many bytes, on average, spent where they count most.

A code of B bytes leaves an error of about ‖Δ_k‖² d / 8B in an update of d weights, and client k's
update weighs n_k. So many bytes do least harm when

    B_k = c · n_k m_k

with at most 16 times the mean, so that no round is spent by a single client. Below the shortest
code a client speaks with probability p = B_k / 32 and counts 1/p: the same upload, and right on
average, as in `optimal`.

The server chooses c. It knows the mean of n·m from the rounds before, and what was spent too much
so far, its *debt* in rounds' worth:

    c = bytes of the budget · e^(−gain · debt) / mean of n·m

Where it is known how many rounds there will be, bytes rise in a straight line, from 0.2 to 1.8
times their mean: later rounds wash the errors of early ones out of the model.
"""

import math
from typing import NamedTuple

from taciturn.checks import choice
from taciturn.core.arrays import Scalar, namespace
from taciturn.core.codecs.shares import LEAST
from taciturn.core.parts import Amount
from taciturn.core.rules import ClientStats, Rule
from taciturn.core.tally import OVERHEAD, Tally
from taciturn.errors import InputError

EACH, ROUND = 4e3, 40e3  # bytes of the default for each client, and for a round at the least
_LARGEST = 16.0  # times the mean is what a client may spend
_FLOOR = 0.05  # the least probability, so that nobody counts without bound
_GAIN = 0.2  # how fast debts are paid: most of one within 1 / gain rounds
_MOST_DEBT = 10.0  # rounds' worth that are remembered; a run of known length pays all back
# What the last round's n·m weigh beside those of the rounds before: 3 of t + 3 in round t, and 0.05
# at the least. The first round may have far longer updates than all others, and must be forgotten.
_FIRST_ONES, _NEW = 3.0, 0.05
_MOST_BYTES = 2.0**30  # of a code that a rule asks for: what 32 bits hold, with room to spare
_FIRST, _LAST = 0.2, 1.8  # times the mean is what the first and the last round of a run may spend


class Budget(NamedTuple):
    """State of `budget`."""

    each: Scalar  # bytes that may be spent for each client that is asked, on average
    least: Scalar  # bytes that may be spent in a round, however few are asked
    whole: Scalar  # bytes of the model in float32; a code never needs more
    rounds: Scalar  # so far
    typical: Scalar  # the mean of n·m; 0 before the first round
    debt: Scalar  # what was spent too much, in mean rounds' worth
    run: Scalar  # rounds over which bytes rise; 0 where nobody knows


class Rates(NamedTuple):
    """Context of `budget`: a client has min(n·m·scale + flat, most) bytes."""

    scale: Scalar
    flat: Scalar
    most: Scalar


def budget(amount: str | None = None, per: str = "round") -> Rule:
    """So many bytes: each client speaks in as many as its update weighs.

    Its policy has the codec `peaks`, which writes updates in any number of bytes, and the stand-in
    `ignore` where none is named. The arguments are those of `taciturn.budget`.
    """
    wanted = None if amount is None else Amount.of(amount)
    choice("per", per, ("round", "client", "run"))
    if wanted is None and per != "round":
        raise InputError(f"`per={per}` needs an amount, as in budget:4kB,per={per}.")

    def init(size: int, rounds: int | None) -> Budget:
        each, least = 0.0, 0.0
        if wanted is None:
            each, least = EACH, ROUND
        elif wanted.is_share:
            each = wanted.value * (4 * size + OVERHEAD)
        elif per == "client":
            each = wanted.value
        elif per == "round":
            least = wanted.value
        elif rounds is None:
            raise InputError("`per=run` needs the number of rounds.")
        else:
            least = wanted.value / max(rounds, 1)
        return Budget(each, least, 4.0 * size, 0.0, 0.0, 0.0, float(rounds or 0))

    return Rule(
        "budget", (("amount", wanted), ("per", per)), init=init,
        broadcast=_rates, speaks=lambda own, context: own.uniform < _probability(own, context),
        probability=_probability, nbytes=_nbytes, learn=_learn,
        looks_at=("norm", "uniform", "examples"),
    )  # fmt: skip


def extended(rule: Rule, state: Budget, size: int, rounds: int) -> Budget:
    """The state of a run that goes on and now has so many rounds: what was learned stays."""
    return rule.init(size, rounds)._replace(
        rounds=state.rounds, typical=state.typical, debt=state.debt
    )


def doubt(rule: Rule, size: int, cohort: int, rounds: int) -> str:
    """Why a model of this size cannot keep to a budget: everyone sends a header, and one in twenty
    speaks whatever happens. Empty where it can, and for other rules."""
    state = rule.init(size, rounds)
    if not isinstance(state, Budget):
        return ""
    wanted, least = _planned(state, cohort) / cohort, OVERHEAD + _FLOOR * LEAST
    if least <= 1.1 * wanted:
        return ""
    return (
        f"the budget of {dict(rule.params)['amount']} cannot be kept: with {size:,} weights, "
        f"headers and the least that clients may say take {100 * least / (4 * size):.3g} % of the "
        f"float32 upload, {cohort * least:,.0f} bytes in a round"
    )


def _planned(state: Budget, asked: Scalar) -> Scalar:
    """Bytes of a round in which so many are asked, headers and all, before its place in the run."""
    xp = namespace(asked)
    return xp.maximum(state.each * asked, state.least * xp.ones_like(asked))


def _rates(state: Budget, asked: Scalar) -> Rates:
    xp = namespace(state.debt)
    typical = xp.asarray(state.typical)
    planned = _planned(state, xp.asarray(asked, dtype=typical.dtype)) * _pace(state)
    mean = xp.maximum(planned / asked - OVERHEAD, 1.0) * xp.exp(-_GAIN * state.debt)
    known = (typical > 0) & (mean < state.whole)
    scale = mean / xp.where(known, typical, 1.0)
    return Rates(xp.where(known, scale, 0.0), xp.where(known, 0.0, mean), _LARGEST * mean)


def _bytes(own: ClientStats, context: Rates) -> Scalar:
    wanted = own.examples * own.norm * context.scale + context.flat
    return namespace(wanted).minimum(wanted, context.most)


def _nbytes(own: ClientStats, context: Rates) -> Scalar:
    """In sixteen steps for every factor of 2, so that rounding hardly ever decides."""
    wanted = _bytes(own, context)
    xp = namespace(wanted)
    wanted = xp.astype(xp.asarray(xp.clip(wanted, LEAST, _MOST_BYTES)), xp.float32)
    step = ((wanted.view(xp.uint32) >> 19) << 19).view(xp.float32)
    return xp.astype(step, xp.int32)


def _probability(own: ClientStats, context: Rates) -> Scalar:
    p = _bytes(own, context) / LEAST
    return namespace(p).clip(p, _FLOOR, 1.0)


def _pace(state: Budget) -> Scalar:
    """What a round may spend, in means; a run that goes on stays at the last."""
    xp = namespace(state.rounds)
    rounds, run = xp.asarray(state.rounds), xp.asarray(state.run)
    passed = xp.clip((rounds + 0.5) / xp.where(run > 0, run, 1.0), 0.0, 1.0)
    return xp.where(run > 0, _FIRST + (_LAST - _FIRST) * passed, 1.0)


def _learn(state: Budget, tally: Tally) -> Budget:
    answered = tally.norms_unweighted.weight
    xp = namespace(answered)
    some = xp.maximum(answered, 1.0)
    spent = xp.astype(tally.nbytes, answered.dtype) + answered * OVERHEAD
    debt = state.debt + spent / _planned(state, some) - _pace(state)
    most = xp.where(state.run > 0, math.inf, xp.full_like(debt, _MOST_DEBT))
    now = tally.norms.weight * tally.norms.mean / some
    old, rounds = (xp.asarray(x, dtype=now.dtype) for x in (state.typical, state.rounds))
    newest = xp.clip(_FIRST_ONES / (rounds + _FIRST_ONES), _NEW, 1.0)
    return state._replace(
        rounds=state.rounds + 1,
        typical=xp.where(old > 0, old + newest * (now - old), now),
        debt=xp.clip(debt, -_MOST_DEBT, most),
    )

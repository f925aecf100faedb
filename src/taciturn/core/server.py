"""The server's side of a round: a tally in, the next weights and threshold out (Algorithms 1, 3).

state = server.init(policy, weights)
opening = server.open(policy, state)          # broadcast state.weights and opening.context
heard = tally.start(state.weights)
for message in messages:
    heard = tally.add(heard, message, opening)
state, info = server.close(policy, state, heard)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import (
    Array,
    Scalar,
    add_scaled,
    check_flat,
    grow,
    in_blocks,
    namespace,
    norm_of,
    select,
)
from taciturn.core.policy import Policy
from taciturn.core.tally import Opening, Tally


class Optimizer(NamedTuple):
    """What the server does with the mean update.

    Attributes:
      init: `(weights) -> state`.
      apply: `(state, mean_update, weights, donate) -> (weights, state)`; with `donate` the memory
        of all three may be reused.
      choose: `(condition, new, old) -> state`, where the condition is traced. Tuples of arrays are
        the default; a state of another form brings its own.
    """

    init: Callable[[Array], Any]
    apply: Callable[[Any, Array, Array, bool], tuple[Array, Any]]
    choose: Callable[[Scalar, Any, Any], Any] = select


class ServerState(NamedTuple):
    """What the next round needs."""

    weights: Array
    rule: Any
    stand_in: Any
    optimizer: Any


class RoundInfo(NamedTuple):
    """What people look at.

    Attributes:
      spoke, silent, rejected: how many clients there were of each.
      threshold: the one that held in this round; NaN where the rule has none.
      norm_mean, norm_std: of the accepted norms, weighted by n.
    """

    spoke: Scalar
    silent: Scalar
    rejected: Scalar
    threshold: Scalar
    norm_mean: Scalar
    norm_std: Scalar


def averaging() -> Optimizer:
    """θ_{t+1} = θ_t + mean update: federated averaging."""

    def apply(state: Any, mean: Array, weights: Array, donate: bool) -> tuple[Array, Any]:
        return add_scaled(weights, 1.0, mean, donate=donate), state

    return Optimizer(lambda weights: (), apply)


def init(policy: Policy, weights: Array, optimizer: Optimizer | None = None) -> ServerState:
    """The state before the first round."""
    check_flat(weights)
    optimizer = optimizer or averaging()
    return ServerState(
        weights, policy.rule.init(), policy.stand_in.init(weights), optimizer.init(weights)
    )


def open(policy: Policy, state: ServerState) -> Opening:
    """What the server knows, and broadcasts, when a round begins."""
    context = state.rule.context
    silent_at_most = context if policy.rule.has_threshold else math.inf
    stand_in_norm: Scalar = math.inf
    if policy.stand_in.capped:
        stand_in_norm = norm_of(policy.stand_in.predict, state.stand_in)
    return Opening(context, silent_at_most, stand_in_norm)


def close(
    policy: Policy,
    state: ServerState,
    tally: Tally,
    optimizer: Optimizer | None = None,
    *,
    donate: bool = False,
) -> tuple[ServerState, RoundInfo]:
    r"""The state after a round.

        mean = (Σ_spoke n·Δ + Σ_silent n·Δ̂) / (Σ_spoke n + Σ_silent n)

    moves the weights and is what the stand-in learns from. A round in which nobody counts moves
    nothing. The rule learns from the norms of every round in which there are any, whether or not
    anyone counts: a threshold above all norms would else stay there for good.

    Args:
      policy: rule, stand-in and codec.
      state: the state before the round.
      tally: what was heard.
      optimizer: what is done with the mean; plain averaging by default.
      donate: lets NumPy reuse the memory of `state` and `tally`, which must not be read afterwards.
    """
    optimizer = optimizer or averaging()
    silent, total = weigh(policy, tally)
    counts = total > 0

    def step(state: ServerState) -> ServerState:
        def move(record: tuple[Array, Any]) -> tuple[Array, Any]:
            spoken, before = record
            mean = mean_update(policy, before, spoken, silent, total)
            if donate and policy.stand_in.growth:
                return mean, grow(before, policy.stand_in.growth, mean)
            return mean, policy.stand_in.learn(before, mean)

        mean, learned = in_blocks(move, (tally.spoken, state.stand_in), donate=donate)
        weights, slots = optimizer.apply(state.optimizer, mean, state.weights, donate)
        return ServerState(weights, state.rule, learned, slots)

    info = look(policy, state, tally)
    heard, rule = tally.norms.weight > 0, policy.rule.learn(state.rule, tally)
    if isinstance(counts, np.bool):  # a plain number: nothing is traced
        closed = step(state) if counts else state
        return (closed._replace(rule=rule) if heard else closed), info
    # Under JAX both ways are computed and one is chosen.
    new = step(state)
    chosen = optimizer.choose(counts, new.optimizer, state.optimizer)
    closed = select(counts, new._replace(optimizer=()), state._replace(optimizer=()))
    return closed._replace(rule=select(heard, rule, state.rule), optimizer=chosen), info


def weigh(policy: Policy, tally: Tally) -> tuple[Scalar, Scalar]:
    """What all stand-ins weigh together in the sum of updates, and what the sum is divided by."""
    stand_in = policy.stand_in
    silent = tally.examples_capped if stand_in.capped else tally.examples_silent
    total = tally.examples_spoke + (tally.examples_silent if stand_in.counts else 0.0)
    return silent, total


def mean_update(
    policy: Policy, stand_in: Any, spoken: Array, silent: Scalar, total: Scalar
) -> Array:
    """The mean over those who spoke and those who were stood in for; element-wise."""
    xp = namespace(total)
    # Where the numbers are plain, a round in which all spoke is spared the prediction.
    if not isinstance(silent, np.generic) or silent != 0:
        spoken = spoken + silent * policy.stand_in.predict(stand_in)
    return spoken / xp.where(total > 0, total, xp.ones_like(total))


def look(policy: Policy, state: ServerState, tally: Tally) -> RoundInfo:
    """What people look at of a round that began in `state`."""
    return RoundInfo(
        spoke=tally.n_spoke,
        silent=tally.n_silent,
        rejected=tally.n_rejected,
        threshold=state.rule.context if policy.rule.has_threshold else math.nan,
        norm_mean=tally.norms.mean,
        norm_std=tally.norms.deviation(),
    )

"""The server's side of a round: a tally in, the next weights and threshold out (Algorithms 1, 3).

state = server.init(policy, weights)
opening = server.open(policy, state.memory, asked)   # broadcast state.weights and opening.context
heard = tally.start(state.weights, policy.rule.each)
for message in messages:
    heard = tally.add(heard, message, opening, policy.codec)
state, info = server.close(policy, state, heard)

`close` is `learn`, which makes the mean update of the tally and remembers, and `step`, which moves
the weights by it. Where somebody else takes the step, as in Flower, there is `learn` alone.
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
    in_blocks,
    namespace,
    norm_of,
    or_zero,
    select,
    zeros,
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


class Memory(NamedTuple):
    """What the server learns from round to round: the states of rule and stand-in."""

    rule: Any
    stand_in: Any


class ServerState(NamedTuple):
    """What the next round needs.

    Attributes:
      weights: θ.
      memory: what was learned.
      optimizer: the optimiser's state.
      public: P, what clients train from; None where that is θ (`taciturn.core.downlink`).
    """

    weights: Array
    memory: Memory
    optimizer: Any
    public: Any = None


class RoundInfo(NamedTuple):
    """What people look at.

    Attributes:
      spoke, silent, rejected: how many clients there were of each.
      counts: whether enough of them count for the weights to move.
      threshold: the one that held in this round; NaN where the rule has none.
      norm_mean, norm_std: of the accepted norms, weighted by n.
      nbytes: of the codes of those who spoke, where their codec's have any length.
    """

    spoke: Scalar
    silent: Scalar
    rejected: Scalar
    counts: Scalar
    threshold: Scalar
    norm_mean: Scalar
    norm_std: Scalar
    nbytes: Scalar


def averaging(lr: Scalar = 1.0) -> Optimizer:
    """θ_{t+1} = θ_t + lr · mean update: federated averaging."""

    def apply(state: Any, mean: Array, weights: Array, donate: bool) -> tuple[Array, Any]:
        return add_scaled(weights, lr, mean, donate=donate), state

    return Optimizer(lambda weights: (), apply)


def remember(policy: Policy, weights: Array, rounds: int | None = None) -> Memory:
    """The memory before the first round of so many, where that is known."""
    check_flat(weights)
    return Memory(policy.rule.init(weights.shape[0], rounds), policy.stand_in.init(weights))


def init(
    policy: Policy, weights: Array, optimizer: Optimizer | None = None, rounds: int | None = None
) -> ServerState:
    """The state before the first round of so many, where that is known."""
    memory = remember(policy, weights, rounds)
    public = namespace(weights).asarray(weights, copy=True) if policy.has_public else None
    return ServerState(weights, memory, (optimizer or averaging()).init(weights), public)


def open(policy: Policy, memory: Memory, asked: Scalar) -> Opening:
    """What the server knows, and broadcasts, when a round begins in which so many are asked."""
    context = policy.rule.broadcast(memory.rule, asked)
    stand_in_norm: Scalar = math.inf
    if policy.stand_in.capped:
        stand_in_norm = norm_of(policy.stand_in.predict, memory.stand_in)
    return Opening(context, getattr(context, "threshold", math.inf), stand_in_norm)


def learn(
    policy: Policy, memory: Memory, tally: Tally, *, at_least: int = 1, donate: bool = False
) -> tuple[Array, Memory, RoundInfo]:
    r"""What a round teaches: the mean update, the memory after it, and what people look at.

        mean = (Σ_spoke n·Δ/p + Σ_silent n·Δ̂) / (Σ_spoke n/p + Σ_silent n)

    is what the stand-in learns from; it is 0 in a round in which nobody counts. The rule learns
    from the norms of every round in which there are any, whether or not anyone counts: a threshold
    above all norms would else stay there for good.

    Args:
      policy: rule, stand-in and codec.
      memory: that before the round.
      tally: what was heard.
      at_least: with fewer clients that count, nobody does.
      donate: lets NumPy reuse the memory of both, which must not be read afterwards.
    """
    stand_in = policy.stand_in
    weighed = weigh(policy, tally)
    counting = tally.n_spoke + (tally.n_silent + tally.n_absent if stand_in.counts else 0)
    counts = (weighed.total > 0) & (counting >= at_least)
    info = look(policy, memory, tally, counts)
    heard, rule = tally.norms.weight > 0, policy.rule.learn(memory.rule, tally)

    def move(record: tuple[Array, Any]) -> tuple[Array, Any]:
        spoken, before = record
        mean = mean_update(policy, before, spoken, weighed)
        return mean, stand_in.learn(before, mean)

    if isinstance(counts, np.bool):  # a plain number: nothing is traced
        rule = rule if heard else memory.rule
        if not counts:
            return zeros(tally.spoken), Memory(rule, memory.stand_in), info
        mean, learned = in_blocks(move, (tally.spoken, memory.stand_in), donate=donate)
        return mean, Memory(rule, learned), info
    # Under JAX both ways are computed and one is chosen.
    mean, learned = move((tally.spoken, memory.stand_in))
    remembered = Memory(select(heard, rule, memory.rule), select(counts, learned, memory.stand_in))
    return or_zero(counts, mean), remembered, info


def step(
    optimizer: Optimizer,
    slots: Any,
    weights: Array,
    mean: Array,
    counts: Scalar,
    *,
    donate: bool = False,
) -> tuple[Array, Any]:
    """The weights moved by the mean update, and the optimiser's state; both stay if nobody counts.

    Args:
      optimizer: what is done with the mean.
      slots: its state.
      weights: θ_t.
      mean, counts: from `learn`.
      donate: lets NumPy reuse the memory of all three.
    """
    if isinstance(counts, np.bool):
        return optimizer.apply(slots, mean, weights, donate) if counts else (weights, slots)
    moved, new = optimizer.apply(slots, mean, weights, donate)
    return select(counts, moved, weights), optimizer.choose(counts, new, slots)


def close(
    policy: Policy,
    state: ServerState,
    tally: Tally,
    optimizer: Optimizer | None = None,
    *,
    donate: bool = False,
) -> tuple[ServerState, RoundInfo]:
    """The state after a round: `learn`, then `step`.

    Args:
      policy: rule, stand-in and codec.
      state: the state before the round.
      tally: what was heard.
      optimizer: what is done with the mean; plain averaging by default.
      donate: lets NumPy reuse the memory of `state` and `tally`, which must not be read afterwards.
    """
    mean, memory, info = learn(policy, state.memory, tally, donate=donate)
    weights, slots = step(
        optimizer or averaging(), state.optimizer, state.weights, mean, info.counts, donate=donate
    )
    return ServerState(weights, memory, slots, state.public), info


class Weighed(NamedTuple):
    """What the sums of a round are multiplied and divided by.

    Attributes:
      silent: what all forecasts weigh together in the sum of updates.
      total: what the sum is divided by.
    """

    silent: Scalar
    total: Scalar


def weigh(policy: Policy, tally: Tally) -> Weighed:
    """What everyone weighs in the mean."""
    stand_in = policy.stand_in
    return Weighed(
        silent=tally.examples_capped if stand_in.capped else tally.examples_silent,
        total=tally.examples_spoke + (tally.examples_silent if stand_in.counts else 0.0),
    )


def stood_in(policy: Policy, stand_in: Any, weighed: Weighed) -> Array:
    """What all stand-ins add to the sum of updates; element-wise."""
    return weighed.silent * policy.stand_in.predict(stand_in)


def mean_update(policy: Policy, stand_in: Any, spoken: Array, weighed: Weighed) -> Array:
    """The mean over those who spoke and those who were stood in for; element-wise."""
    # Where the numbers are plain, a round in which all spoke is spared the prediction.
    if not isinstance(weighed.silent, np.generic) or weighed.silent != 0:
        spoken = spoken + stood_in(policy, stand_in, weighed)
    total = weighed.total
    xp = namespace(total)
    return spoken / xp.where(total > 0, total, xp.ones_like(total))


def look(policy: Policy, memory: Memory, tally: Tally, counts: Scalar) -> RoundInfo:
    """What people look at of a round that began with `memory`."""
    return RoundInfo(
        spoke=tally.n_spoke,
        silent=tally.n_silent,
        rejected=tally.n_rejected,
        counts=counts,
        threshold=getattr(policy.rule.broadcast(memory.rule, 1), "threshold", math.nan),
        norm_mean=tally.norms.mean,
        norm_std=tally.norms.deviation(),
        nbytes=tally.nbytes,
    )

"""The server's side of a round: a tally in, the next weights and threshold out (Algorithms 1, 3).

state = server.init(policy, weights)
config = server.open(policy, state.memory, asked)   # broadcast state.weights and config.context
heard = tally.start(state.weights, policy.rule.each)
for message in messages:
    heard = tally.add(heard, message, config, policy.codec)
state, info = server.close(policy, state, heard)

`close` is `learn`, which makes the mean update of the tally and remembers, and the step of an
optimiser. Where somebody else takes that step, as in Flower, there is `learn` alone.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from taciturn.core import arrays
from taciturn.core.arrays import Array, Scalar, namespace, select
from taciturn.core.policy import Policy
from taciturn.core.tally import RoundConfig, Tally


class Optimizer(NamedTuple):
    """What the server does with the mean update."""

    init: Callable[[Array], Any]  # (weights) -> state
    # (state, mean update, weights) -> (weights, state)
    apply: Callable[[Any, Array, Array], tuple[Array, Any]]
    # (condition, new, old) -> state, traced; for a state that is no tuple of arrays
    choose: Callable[[Scalar, Any, Any], Any] = select


class ServerMemory(NamedTuple):
    """What the server learns from round to round: the states of rule and stand-in."""

    rule: Any
    stand_in: Any


class ServerState(NamedTuple):
    """What the next round needs."""

    weights: Array  # θ
    memory: ServerMemory
    optimizer: Any  # its state
    public: Any = None  # P, what clients train from; None where that is θ (see `downlink`)


class RoundInfo(NamedTuple):
    """What people look at."""

    spoke: Scalar  # how many clients
    silent: Scalar
    rejected: Scalar
    counts: Scalar  # whether enough of them count for the weights to move
    threshold: Scalar  # that of this round; NaN where the rule has none
    norm_mean: Scalar  # of the accepted norms, weighted by n
    norm_std: Scalar
    nbytes: Scalar  # of the codes of those who spoke, where the codec has any length


def averaging(lr: Scalar = 1.0) -> Optimizer:
    """θ_{t+1} = θ_t + lr · mean update: federated averaging."""
    return Optimizer(
        init=lambda weights: (),
        apply=lambda state, mean, weights: (arrays.add_scaled(weights, lr, mean), state),
    )


def remember(policy: Policy, weights: Array, rounds: int | None = None) -> ServerMemory:
    """The memory before the first round of so many, where that is known."""
    arrays.check_flat(weights)
    return ServerMemory(policy.rule.init(weights.shape[0], rounds), policy.stand_in.init(weights))


def init(
    policy: Policy, weights: Array, optimizer: Optimizer | None = None, rounds: int | None = None
) -> ServerState:
    """The state before the first round of so many, where that is known."""
    memory = remember(policy, weights, rounds)
    public = namespace(weights).asarray(weights, copy=True) if policy.has_public else None
    return ServerState(weights, memory, (optimizer or averaging()).init(weights), public)


def open(policy: Policy, memory: ServerMemory, asked: Scalar) -> RoundConfig:
    """What the server knows, and broadcasts, when a round begins in which so many are asked."""
    context, stand_in = policy.rule.broadcast(memory.rule, asked), policy.stand_in
    longest = arrays.norm(memory.stand_in, stand_in.predict) if stand_in.capped else math.inf
    return RoundConfig(context, getattr(context, "threshold", math.inf), longest)


def learn(
    policy: Policy, memory: ServerMemory, tally: Tally, *, at_least: int = 1, donate: bool = False
) -> tuple[Array, ServerMemory, RoundInfo]:
    r"""What a round teaches: the mean update, the memory after it, and what people look at.

        mean = (Σ_spoke n·Δ/p + Σ_silent n·Δ̂) / (Σ_spoke n/p + Σ_silent n)

    is what the stand-in learns from; it is 0 in a round in which nobody counts, as nobody does
    where fewer than `at_least` would. The rule learns from the norms of every round in which there
    are any: a threshold above all norms would else stay there for good.

    With `donate`, NumPy may reuse the memory of both: do not read them afterwards.
    """
    stand_in = policy.stand_in
    silent = tally.examples_capped if stand_in.capped else tally.examples_silent
    total = tally.examples_spoke + (tally.examples_silent if stand_in.counts else 0.0)
    divisor = namespace(total).where(total > 0, total, 1.0)
    counting = tally.n_spoke + (tally.n_silent + tally.n_absent if stand_in.counts else 0)
    counts = (total > 0) & (counting >= at_least)
    info = RoundInfo(
        tally.n_spoke, tally.n_silent, tally.n_rejected, counts,
        getattr(policy.rule.broadcast(memory.rule, 1), "threshold", math.nan),
        tally.norms.mean, tally.norms.deviation(), tally.nbytes,
    )  # fmt: skip
    heard, rule = tally.norms.weight > 0, policy.rule.learn(memory.rule, tally)
    rule = select(heard, rule, memory.rule)
    if isinstance(counts, np.bool) and not counts:  # a plain number: nothing is traced
        return arrays.zeros(tally.spoken), ServerMemory(rule, memory.stand_in), info

    def move(record: tuple[Array, Any]) -> tuple[Array, Any]:
        spoken, before = record
        # Where the numbers are plain, a round in which all spoke is spared the prediction.
        if not isinstance(silent, np.generic) or silent != 0:
            spoken = spoken + silent * stand_in.predict(before)
        mean = spoken / divisor
        return mean, stand_in.learn(before, mean)

    mean, learned = arrays.in_blocks(move, (tally.spoken, memory.stand_in), donate=donate)
    mean = arrays.or_zero(counts, mean)
    return mean, ServerMemory(rule, select(counts, learned, memory.stand_in)), info


def close(
    policy: Policy, state: ServerState, tally: Tally, optimizer: Optimizer | None = None
) -> tuple[ServerState, RoundInfo]:
    """The state after a round: `learn`, and the weights moved by the mean update if anyone counts;
    without an optimiser, by plain averaging."""
    mean, memory, info = learn(policy, state.memory, tally)
    plain, optimizer = isinstance(info.counts, np.bool), optimizer or averaging()
    if plain and not info.counts:
        return state._replace(memory=memory), info
    weights, slots = optimizer.apply(state.optimizer, mean, state.weights)
    if not plain:  # under JAX the step is made in any case
        weights = select(info.counts, weights, state.weights)
        slots = optimizer.choose(info.counts, slots, state.optimizer)
    return ServerState(weights, memory, slots, state.public), info

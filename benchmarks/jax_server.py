"""The server's step on JAX arrays outside a simulation: one program for every array, in place.

XLA on a CPU makes a kernel for every output of a program. In one program for the whole step, each
computes again what it shares with the others, and donated memory is copied because one kernel reads
what another overwrites. A small program for each array passes over memory once, and nothing else.
"""

import functools
from typing import Any, NamedTuple

import jax

from taciturn.core import server
from taciturn.core.policy import Policy
from taciturn.core.tally import Tally


class Programs(NamedTuple):
    """What `close` runs; every program may reuse the memory of its first argument."""

    mean: Any  # (spoken, stand_in, weighed) -> mean update
    fields: tuple[tuple[str, Any], ...]  # (field, the state's other fields, mean) -> field
    learn: Any  # (stand_in, mean) -> stand_in, where there are no fields
    move: Any  # (weights, mean) -> weights
    rule: Any  # (rule, tally's scalars) -> rule


def close(
    policy: Policy, state: server.ServerState, tally: Tally
) -> tuple[server.ServerState, server.RoundInfo]:
    """As `taciturn.core.server.close` with plain averaging; `state` and `tally` are used up."""
    weighed = server.weigh(policy, tally)
    info = server.look(policy, state.memory, tally, weighed.total > 0)
    if not info.counts:
        return state, info
    programs = _programs(policy)
    rule = programs.rule(state.memory.rule, tally._replace(spoken=None))
    stand_in = state.memory.stand_in
    mean = programs.mean(tally.spoken, stand_in, weighed)
    for name, update in programs.fields:
        others = stand_in._replace(**{name: None})
        stand_in = stand_in._replace(**{name: update(getattr(stand_in, name), others, mean)})
    if not programs.fields:
        stand_in = programs.learn(stand_in, mean)
    memory = server.Memory(rule, stand_in)
    return server.ServerState(programs.move(state.weights, mean), memory, ()), info


@functools.cache
def _programs(policy: Policy) -> Programs:
    in_place = functools.partial(jax.jit, donate_argnums=0)

    def field(name: str, growth: Any) -> Any:
        return in_place(
            lambda value, others, mean: value + growth(others._replace(**{name: value}), mean)
        )

    return Programs(
        mean=in_place(
            lambda spoken, stand_in, weighed: server.mean_update(policy, stand_in, spoken, weighed)
        ),
        fields=tuple((name, field(name, growth)) for name, growth in policy.stand_in.growth),
        learn=jax.jit(policy.stand_in.learn),
        move=in_place(lambda weights, mean: weights + mean.astype(weights.dtype)),
        rule=jax.jit(policy.rule.learn),
    )

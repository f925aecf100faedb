"""The server's step in small programs is that of the core."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.core import server, tally
from taciturn.core.messages import Message
from taciturn.core.policy import parse

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import jax_server as compiled

POLICIES = ["adaptive+ou", "adaptive+ou,cap=true", "adaptive+zero", "adaptive+ignore", "full+last"]


@pytest.mark.parametrize("text", POLICIES)
def test_small_programs_take_the_step_of_the_core(text):
    policy = parse(text)
    rng = np.random.default_rng(0)
    ours = server.init(policy, np.zeros(50, np.float32))
    theirs = server.init(policy, jnp.zeros(50, jnp.float32))
    for turn in range(6):
        updates = rng.normal(size=(4, 50)).astype(np.float32)
        both = []
        for state in (ours, theirs):
            xp = np if state is ours else jnp
            opening = server.open(policy, state.memory, 4)
            heard = tally.start(state.weights)
            for k, update in enumerate(updates):
                silent = turn > 1 and k < 2
                message = Message(
                    k + 1.0, np.linalg.norm(update), None if silent else xp.asarray(update)
                )
                heard = tally.add(heard, message, opening)
            both.append(heard)
        ours, info = server.close(policy, ours, both[0])
        theirs, their_info = compiled.close(policy, theirs, both[1])
        np.testing.assert_allclose(theirs.weights, ours.weights, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(their_info.norm_mean, info.norm_mean, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(theirs), jax.tree.leaves(ours), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_round_in_which_nobody_counts_changes_nothing():
    policy = parse("adaptive+ou")
    state = server.init(policy, jnp.ones(5, jnp.float32))
    after, info = compiled.close(policy, state, tally.start(state.weights))
    assert after is state
    assert int(info.spoke) == 0

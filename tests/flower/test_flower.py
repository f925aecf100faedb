"""The mod and the wrapper in one process, round for round against the plain loop."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled
from flwr.serverapp import strategy as flower

from laconic.core import client, server, tally
from laconic.core.policy import parse
from laconic.flower import Laconic

NODES, SIZE = 5, 10
EXAMPLES = [10, 20, 30, 40, 50]


def targets(seed=0, nodes=NODES, size=SIZE):
    draws = np.random.default_rng(seed)
    spread = np.linspace(0.2, 2.0, nodes)[:, None]
    return (1 + spread * draws.standard_normal((nodes, size))).astype(np.float32)


def plain_loop(policy, wanted, rounds, examples=EXAMPLES, optimizer=None, rate=0.5):
    """The round of the core, for clients as in `pulled`."""
    policy = parse(policy)
    state = server.init(policy, np.zeros(wanted.shape[1], np.float32), optimizer)
    spoke = []
    for _ in range(rounds):
        opening = server.open(policy, state)
        heard = tally.start(state.weights)
        for target, n in zip(wanted, examples, strict=True):
            trained = state.weights + np.float32(rate) * (target - state.weights)
            heard = tally.add(
                heard,
                client.respond(policy.rule, state.weights, trained, n, opening.context, 0.0),
                opening,
            )
        state, info = server.close(policy, state, heard, optimizer)
        spoke.append(int(info.spoke))
    return state.weights, spoke


def federate(inner, policy, wanted, rounds=5, examples=EXAMPLES, grid=None, mods=None, **options):
    strategy = Laconic(inner, policy, **options)
    grid = grid or LocalGrid(pulled(wanted, examples, mods=mods), len(wanted))
    result = strategy.start(grid, model(wanted.shape[1]), num_rounds=rounds)
    return strategy, result


@pytest.mark.parametrize(
    "policy",
    ["full", "adaptive+ou", "adaptive,k=0+ou,cap=true", "adaptive,k=0+zero", "adaptive,k=-0.5+last",
     "adaptive,k=0+ignore", "fixed:1.0+ou", "adaptive,k=0+ou,mode=paper"],
)  # fmt: skip
def test_the_model_is_that_of_the_plain_loop(policy):
    wanted = targets()
    weights, spoke = plain_loop(policy, wanted, 6)
    strategy, result = federate(flower.FedAvg(fraction_evaluate=0.0), policy, wanted, 6)
    np.testing.assert_allclose(flat(result.arrays), weights, atol=1e-6)
    assert [row["spoke"] for row in strategy.history] == spoke
    if policy != "full":
        assert min(spoke) < NODES  # or nothing was tested

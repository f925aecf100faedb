"""The peers benchmark's own judgement: that all sides do the same work, or that it says so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    names = ("common", "run", "taciturn_side")
    yield lambda name: __import__(name)
    for name in names:
        sys.modules.pop(name, None)


def test_losses_that_differ_are_noticed(peers):
    def report(loss):
        return {"side": "", "seconds": [1.0], "examples": [2000], "loss": loss, "accuracy": 0.5,
                "weights": 1, "versions": {"python": "3"}, "device": None}  # fmt: skip

    ours = [report(loss) for loss in (2.0, 2.01, 1.99)]
    for pfl, without, agree in (
        (2.0, 3.0005, True),
        (2.0, 3.0020, False),  # rounding is not that large
        (2.3, 3.0005, False),  # nor is chance
    ):
        theirs = [report(loss) for loss in (pfl + 0.01, pfl - 0.01, pfl)]
        found = peers("run").summarise(
            "cnn", {"pfl": theirs, "taciturn": ours}, {"pfl": without, "taciturn": 3.0}
        )
        assert found["agree"] is agree


def test_the_plan_is_what_the_simulator_draws(peers):
    """One local step per client with the plan's examples gives the simulator's own result."""
    import jax
    import jax.numpy as jnp

    import taciturn

    common, side = peers("common"), peers("taciturn_side")
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 12)
    x = rng.standard_normal((sizes.sum(), 3)).astype(np.float32)
    data = common.Data(x, x[:, 0], sizes, x, x[:, 0])
    plan = side.export("cnn", data, seed=3, rounds=2)

    # A model that remembers, in order, what it is shown: w ← w / 2 + x.
    def loss(w, batch, key):
        return jnp.sum(w * jax.lax.stop_gradient(0.5 * w - batch["x"]), -1)

    def metrics(w, batch):
        ones = jnp.ones(len(batch["x"]))
        return {"accuracy": (0 * ones, ones), "loss": (0 * ones, ones)}

    task = taciturn.Task(
        "shown", taciturn.Stored.of({"x": x}, sizes), init=lambda key: jnp.zeros(3), loss=loss,
        metrics=metrics, test={"x": x}, batch=1, lr=1.0, clip=None,
    )  # fmt: skip
    history = taciturn.simulate(task, "full", rounds=2, cohort=common.COHORT, seeds=(3,))
    weights = np.zeros(3)
    for t in range(2):
        ends = []
        for slot, client in enumerate(plan.cohorts[t]):
            order = plan.order(t, slot, sizes[client])
            assert sorted(order) == list(range(sizes[client]))
            w = weights
            for i in order:
                w = w / 2 + x[data.starts[client] + i]
            ends.append(w)
        weights = np.average(ends, axis=0, weights=sizes[plan.cohorts[t]])
    np.testing.assert_allclose(history.weights[0], weights, rtol=1e-5, atol=1e-6)

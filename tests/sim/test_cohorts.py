"""A large cohort by hand: the federated average, what `own` repeats, what feedback keeps.

A client's rows do not differ, so that all clients train side by side in a few lines of NumPy.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from taciturn.sim import draws

BATCH, EPOCHS, LR, CLIP, ROUNDS = 4, 2, 0.5, 0.2, 3


def alike(population: int) -> tuple[taciturn.Task, dict[str, np.ndarray]]:
    """Logistic regression with four weights; each client's row and label, and how many it has."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (population, 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] + rng.normal(0, 1, population) > 0).astype(np.int32)
    data = {"x": x, "y": y, "rows": rng.integers(1, 10, population).astype(np.int32)}

    def losses(params: Any, batch: Any, key: Any = None) -> Any:
        scores = batch["x"] @ params["w"] + params["b"]
        return jax.nn.softplus(scores) - batch["y"] * scores

    rows = {name: np.repeat(data[name], data["rows"], axis=0) for name in ("x", "y")}
    return taciturn.Task(
        "alike", taciturn.Stored.of(rows, data["rows"]), test=rows,
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.zeros(())}, loss=losses,
        metrics=lambda params, batch: {"loss": (losses(params, batch), batch["y"] * 0 + 1)},
        batch=BATCH, epochs=EPOCHS, lr=LR, clip=CLIP,
    ), data  # fmt: skip


def train(weights: np.ndarray, data: dict[str, np.ndarray]) -> np.ndarray:
    """Every client's update in float64, all of them at a time; the bias comes first."""
    x = np.concatenate([np.ones((len(data["x"]), 1)), data["x"]], axis=1)
    steps = EPOCHS * -(-data["rows"] // BATCH)
    trained = np.tile(weights, (len(x), 1))
    for step in range(steps.max()):
        gradient = (1 / (1 + np.exp(-(trained * x).sum(1))) - data["y"])[:, None] * x
        length = np.linalg.norm(gradient, axis=1)
        scale = LR * np.minimum(1, CLIP / length) * (step < steps)
        trained -= scale[:, None] * gradient
    return trained - weights


@pytest.mark.parametrize("policy", ["random:0.5+zero+top_k:0.25,feedback=true", "random:0.5+own"])
def test_what_is_kept_of_a_client_stays_while_it_is_silent(policy: str) -> None:
    """All are asked in every round, and half of them speak.

    With feedback they send the largest of four weights; silence leaves alone what was left out, and
    adds nothing. With `own` the silent are counted with what they said last.
    """
    population, seed, own = 60, 3, policy.endswith("own")
    (task, data), weights = alike(population), np.zeros(4)
    n, residuals, last = data["rows"].astype(float), *np.zeros((2, population, 4))
    spoke = []
    for t in range(ROUNDS):
        keys = draws.round_keys(draws.run_keys(seed), t)
        speaks = np.zeros((population, 1), bool)
        asked = draws.cohort(keys, population, population)
        speaks[asked, 0] = draws.uniforms(keys, population) < 0.5
        said = train(weights, data) + residuals
        decoded = np.where(own | (np.abs(said).argmax(1)[:, None] == np.arange(4)), said, 0)
        residuals = np.where(speaks, said - decoded, residuals)
        last = np.where(speaks, decoded, own * last)
        weights = weights + n @ last / n.sum()
        spoke.append(int(speaks.sum()))
    history = taciturn.simulate(
        task, policy, rounds=ROUNDS, cohort=population, seeds=(seed,), lanes=7
    )
    np.testing.assert_array_equal(history.spoke[0], spoke)
    np.testing.assert_allclose(history.weights[0], weights, rtol=1e-4, atol=1e-6)

"""Large cohorts: thousands of clients a round give the federated average, and everyone counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import assert_agree

import taciturn
from taciturn.core.hashing import bits, fold

BATCH, EPOCHS, LR, CLIP, ROUNDS = 4, 2, 0.5, 0.2, 3


def table(population: int) -> dict[str, np.ndarray]:
    """A client's one example, label, and how many rows it has, all alike."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (population, 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] + rng.normal(0, 1, population) > 0).astype(np.int32)
    return {"x": x, "y": y, "rows": rng.integers(1, 10, population).astype(np.int32)}


def logistic(clients: taciturn.Generated, test: Any) -> taciturn.Task:
    """Logistic regression with four weights."""

    def losses(params: Any, batch: Any) -> Any:
        scores = batch["x"] @ params["w"] + params["b"]
        return scores, jax.nn.softplus(scores) - batch["y"] * scores

    def metrics(params: Any, batch: Any) -> Any:
        scores, loss = losses(params, batch)
        right = ((scores > 0) == (batch["y"] > 0)).astype(jnp.float32)
        return {"accuracy": (right, jnp.ones_like(right)), "loss": (loss, jnp.ones_like(right))}

    return taciturn.Task(
        "logistic",
        clients,
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.zeros(())},
        loss=lambda params, batch, key: losses(params, batch)[1],
        metrics=metrics,
        test=test,
        batch=BATCH,
        epochs=EPOCHS,
        lr=LR,
        clip=CLIP,
    )


def alike(population: int) -> taciturn.Task:
    """Clients whose rows do not differ, so that no order of them matters to what is learned."""
    data = table(population)
    clients = taciturn.Generated(
        population,
        9,
        lambda client, data: data["rows"][client],
        lambda client, index, data: {"x": data["x"][client], "y": data["y"][client]},
        data,
    )
    return logistic(clients, {"x": data["x"][:50], "y": data["y"][:50]})


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


def by_hand(population: int, k: float | None) -> dict[str, Any]:
    """Rounds in which all clients are asked; the silent, below mean − k·std, stand still."""
    data = table(population)
    n, weights, threshold = data["rows"].astype(float), np.zeros(4), 0.0
    found: dict[str, list[float]] = {"spoke": [], "threshold": [], "norm_mean": []}
    for _ in range(ROUNDS):
        updates = train(weights, data)
        norms = np.linalg.norm(updates, axis=1)
        speaks = norms > threshold if k is not None else np.ones(population, bool)
        weights = weights + (n * speaks) @ updates / n.sum()
        mean = np.average(norms, weights=n)
        found["spoke"].append(int(speaks.sum()))
        found["threshold"].append(threshold)
        found["norm_mean"].append(mean)
        if k is not None:
            threshold = mean - k * np.sqrt(np.average((norms - mean) ** 2, weights=n))
    return found | {"weights": weights}


@pytest.mark.parametrize(
    ("cohort", "lanes"),
    [(1_000, None), pytest.param(10_000, 16, marks=pytest.mark.nightly)],
    ids=["a thousand", "ten thousand"],
)
def test_a_large_cohort_is_the_federated_average_by_hand(cohort: int, lanes: int | None) -> None:
    arms = {"full": None, "adaptive,k=0+zero": 0.0, "adaptive,k=0.5+zero": 0.5}
    found = taciturn.compare(
        alike(cohort), {arm: arm for arm in arms}, rounds=ROUNDS, cohort=cohort, lanes=lanes,
        evaluate_every=ROUNDS,
    )  # fmt: skip
    for arm, k in arms.items():
        history, expected = found[arm], by_hand(cohort, k)
        assert history.cohort == cohort
        assert history.rejected.sum() == 0
        # Who spoke and who was silent are all of them: the means are over everyone's n.
        np.testing.assert_array_equal(history.spoke[0], expected["spoke"], arm)
        np.testing.assert_allclose(history.norm_mean[0], expected["norm_mean"], rtol=1e-5)
        np.testing.assert_allclose(history.weights[0], expected["weights"], rtol=1e-4, atol=1e-6)
        if k is not None:
            np.testing.assert_allclose(history.threshold[0], expected["threshold"], rtol=1e-4)
            assert history.spoke[0, 0] == cohort
            assert (history.spoke[0, 1:] > 0).all()
            assert (history.spoke[0, 1:] < cohort).all()


def apart(population: int) -> taciturn.Task:
    """Clients of 1 to 9 rows that all differ, drawn when they are asked for."""

    def key(client: Any) -> Any:
        return fold(jnp.array([1, 2], jnp.uint32), client)

    def example(client: Any, index: Any, data: Any) -> Any:
        drawn = bits(fold(key(client), index), (4,)).astype(jnp.float32) / 2.0**32 - 0.5
        return {"x": drawn[:3], "y": (drawn @ jnp.array([1.0, -2.0, 0.5, 0.5]) > 0).astype("i4")}

    clients = taciturn.Generated(
        population, 9, lambda client, data: 1 + key(client)[0] % 9, example
    )
    ask = jax.vmap(lambda i: example(10**8, i, ()))
    return logistic(clients, jax.tree.map(np.asarray, ask(jnp.arange(50))))


@pytest.mark.nightly
def test_a_thousand_of_a_million_are_the_plain_loop() -> None:
    arm = "adaptive,k=0+ou"
    found = assert_agree(apart(1_000_000), {arm: arm}, rounds=2, cohort=1_000)
    assert found[arm].spoke[0, 0] == 1_000
    assert 0 < found[arm].spoke[0, 1] < 1_000

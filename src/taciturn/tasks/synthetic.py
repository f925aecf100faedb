"""Two embedded tasks that are drawn in a moment: the paper's, and SYNTHETIC(1,1)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.checks import whole
from taciturn.tasks.clients import Batch, Stored
from taciturn.tasks.task import Task, classification


def synthetic(seed: int = 0) -> Task:
    """The paper's logistic regression: 10⁴ points of N(0, I) in R¹⁰⁰, split evenly on 100 clients.

    Labels are round(sigmoid(Xᵀβ)) with β of N(0, I); the paper prints round(Xᵀβ). It names no test
    set: here it is 2,000 more points of the same kind.
    """
    rng = np.random.default_rng(whole("seed", seed, 0))
    beta = rng.standard_normal(100)
    x = rng.standard_normal((12_000, 100)).astype(np.float32)
    y = np.round(1 / (1 + np.exp(-(x @ beta)))).astype(np.float32)

    def scored(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        scores = batch["x"] @ params["w"] + params["b"]
        return scores, jax.nn.softplus(scores) - batch["y"].astype(scores.dtype) * scores

    def metrics(params: Any, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        scores, losses = scored(params, batch)
        right = ((scores > 0) == (batch["y"] > 0)).astype(jnp.float32)
        one = jnp.ones_like(right)
        return {"accuracy": (right, one), "loss": (losses, one)}

    return Task(
        "synthetic",
        Stored.of({"x": x[:10_000], "y": y[:10_000]}, [100] * 100),
        init=lambda key: {"w": jnp.zeros(100), "b": jnp.zeros(())},
        loss=lambda params, batch, key: scored(params, batch)[1],
        metrics=metrics,
        test={"x": x[10_000:], "y": y[10_000:]},
    )


def synthetic_niid(seed: int = 0, clients: int = 100) -> Task:
    """SYNTHETIC(1,1): 60 dimensions, 10 classes, every client with a model and inputs of its own.

    Sizes are lognormal, 50 + e^N(4, 2); a tenth of every client is held out.

    References:
      Li et al. Federated Optimization in Heterogeneous Networks, 2018.
    """
    clients = whole("clients", clients, most=10_000)
    rng = np.random.default_rng(whole("seed", seed, 0))
    rows = rng.lognormal(4, 2, clients).astype(int) + 50
    scale = np.arange(1, 61) ** -0.6
    inputs, labels = [], []
    for count in rows:
        model_mean, input_mean = rng.standard_normal(2)
        weights = rng.normal(model_mean, 1, (60, 10))
        bias = rng.normal(model_mean, 1, 10)
        x = rng.normal(input_mean, 1, 60) + scale * rng.standard_normal((count, 60))
        inputs.append(x.astype(np.float32))
        labels.append((x @ weights + bias).argmax(1).astype(np.int32))

    loss, metrics = classification(lambda params, x, key: x @ params["w"] + params["b"])
    return Task(
        "synthetic-niid",
        Stored.of({"x": np.concatenate(inputs), "y": np.concatenate(labels)}, rows),
        init=lambda key: {"w": jnp.zeros((60, 10)), "b": jnp.zeros(10)},
        loss=loss,
        metrics=metrics,
        batch=10,
        lr=0.01,
        clip=None,
    )

"""Arrays that are no weights: nothing trains them, no codec writes them, nobody counts them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import assert_agree, noisy

import taciturn
from taciturn.core.buffers import is_buffer
from taciturn.sim.model import model_of, named_weights
from taciturn.tasks.task import Task

STATISTICS = {
    "running_mean": np.linspace(-1, 1, 20, dtype=np.float32),
    "running_var": np.geomspace(1e-4, 1, 20, dtype=np.float32),
}


def normalised() -> Task:
    """A linear model of 105 weights behind a BatchNorm that is frozen: gradients would move it."""

    def init(key: jax.Array) -> Any:
        norm = STATISTICS | {"num_batches_tracked": np.int32(7)}
        return {"b": jnp.zeros(5), "norm": norm, "w": jax.random.normal(key, (20, 5)) * 0.1}

    def predict(params: Any, x: jax.Array, key: Any) -> jax.Array:
        norm = params["norm"]
        scaled = (x - norm["running_mean"]) / jnp.sqrt(norm["running_var"] + 1e-5)
        return scaled @ params["w"] + params["b"]

    return noisy("normalised", init, predict, 5, (20,), [2, 7, 12, 5, 10, 17])


def test_frozen_statistics_stay_as_they_were_whatever_the_codec() -> None:
    """Else their noise would make a variance negative, and the loss NaN."""
    task, arms = normalised(), ("budget:300B", "full+quantize:1+down=quantize:1")
    found = assert_agree(task, {arm: arm for arm in arms}, cohort=4, lanes=1,
                         server_optimizer="adam", server_lr=0.1)  # fmt: skip
    for history in found.values():
        assert history.size == 105
        assert np.isfinite(history.loss[:, -1]).all()
        named = named_weights(task, history.seeds, history.weights)
        own = taciturn.as_model(task, history.weights[0])
        for model in (own, model_of(task, history.seeds[0], named)):
            assert model["norm"]["num_batches_tracked"] == 7
            for name, values in STATISTICS.items():
                np.testing.assert_array_equal(model["norm"][name], values)
            np.testing.assert_array_equal(model["w"], own["w"])
        assert taciturn.evaluate(task, history.weights[0])["loss"] == pytest.approx(
            history.loss[0, -1], rel=1e-4
        )


def test_statistics_are_found_by_the_names_that_frameworks_give_them() -> None:
    frameworks = "bn1.running_mean", "batch_stats.BatchNorm_0.mean", "norm.moving_variance"
    assert all(map(is_buffer, frameworks))
    assert not any(map(is_buffer, ("norm.mean", "running_mean.weight", "layer.bias")))

"""The OU illustration: its tests can tell an OU process from what is none."""

import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from experiments.paper import paths


def walk(rate, steps=3000, weights=200, heavy=False):
    rng = np.random.default_rng(1)
    shape = (steps, weights)
    noise = rng.standard_t(3, shape) if heavy else rng.normal(size=shape)
    path = np.zeros((steps + 1, weights))
    for t in range(steps):
        path[t + 1] = path[t] * np.exp(-rate) + 0.01 * noise[t]
    return paths.Paths(np.array(["w"] * weights), path, 84.0)


def test_an_ou_process_is_recognised_and_others_are_not():
    found = paths.measure(walk(0.05))
    assert found["unit_root_rejected_share"] == 100
    assert found["unit_root_rejected_in_last_epoch_share"] > 90
    assert found["increments_normal_share"] > 90
    assert found["rate_median"] == pytest.approx(0.05, rel=0.1)
    assert paths.measure(walk(0.0))["unit_root_rejected_share"] < 15
    assert paths.measure(walk(0.05, heavy=True))["increments_normal_share"] < 5


def test_a_control_has_the_fitted_medians():
    measured = paths.measure(walk(0.05, 2000, 40))
    again = paths.measure(paths.control(measured, seed=3))
    for name in ("rate_median", "volatility_median"):
        assert again[name] == pytest.approx(measured[name], rel=0.1)


def test_paths_are_those_of_plain_gradient_descent(monkeypatch):
    """On a small task of one client: fifty batches an epoch, every weight is followed."""
    x = np.random.default_rng(0).normal(size=(5050, 3)).astype(np.float32)
    data = {"x": x, "y": (x.sum(1) > 0).astype(np.int32)}
    loss, metrics = taciturn.classification(lambda p, x, key: x @ p["w"])
    task = taciturn.Task("one", taciturn.Stored.of(data, [5050]), loss=loss, metrics=metrics,
                         init=lambda key: {"w": jnp.zeros((3, 2))}, test=data)  # fmt: skip
    monkeypatch.setattr(paths, "load", lambda *args, **options: task)
    found = paths.train()
    assert found.paths.shape == (1 + 50 * paths.SETTINGS["epochs"].value, 6)
    assert found.accuracy > 80

"""The OU illustration: its tests can tell an OU process from what is none."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.paper import paths
from taciturn.tasks.task import Stored, Task, classification


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


def test_one_control_has_the_fitted_medians_and_the_other_every_weights_fit():
    slow, fast = walk(0.05, 2000, 40), walk(0.5, 2000, 40)
    measured = paths.measure(slow)
    again = paths.measure(paths.control(measured, seed=3))
    for name in ("rate_median", "volatility_median"):
        assert again[name] == pytest.approx(measured[name], rel=0.1)
    still = np.zeros((2001, 1))
    both = np.hstack([slow.paths, fast.paths, still])
    own = paths.own_control(paths.Paths(np.array(["w"] * 81), both, 84.0), seed=3).paths
    assert own.shape == (2001, 80)
    true, _ = paths.fit(own)
    assert np.median(true.rate[:40]) == pytest.approx(0.05, rel=0.1)
    assert np.median(true.rate[40:]) == pytest.approx(0.5, rel=0.1)


def test_paths_are_those_of_plain_gradient_descent(monkeypatch):
    """On a small task of one client: fifty batches an epoch, every weight is followed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5050, 3)).astype(np.float32)
    data = {"x": x, "y": (x.sum(1) > 0).astype(np.int32)}
    loss, metrics = classification(lambda p, x, key: x @ p["w"])
    start = {"w": jnp.zeros((3, 2))}
    task = Task("one", Stored.of(data, [5050]), init=lambda key: start, loss=loss,
                metrics=metrics, test=data)  # fmt: skip
    monkeypatch.setattr(paths, "load", lambda *args, **options: task)
    first, again = paths.train(), paths.train()
    assert first.paths.shape == (1 + 50 * paths.SETTINGS["epochs"].value, 6)
    assert first.accuracy > 80
    np.testing.assert_array_equal(first.paths, again.paths)

"""The author's sums, and the OU illustration, which can tell an OU process from what is none."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import taciturn
from experiments.paper import paths
from experiments.paper.author_sums import author_sums
from taciturn.core import standins


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


def test_the_fit_is_least_squares():
    """Its σ is that in continuous time: √(SSR / (t − 2)) = σ √((1 − a²) / 2λ)."""
    found = walk(0.5, 100, 3).paths
    process, t_values = paths.fit(found)
    for k, x in enumerate(found.T):
        line = stats.linregress(x[:-1], x[1:])
        sigma = np.sqrt(np.sum((x[1:] - line.slope * x[:-1] - line.intercept) ** 2) / 98)
        rate = -np.log(line.slope)
        expected = (line.slope, rate, line.intercept / (1 - line.slope),
                    sigma / np.sqrt((1 - line.slope**2) / (2 * rate)), sigma)  # fmt: skip
        assert [each[k] for each in process] == pytest.approx(expected, rel=1e-6)
        assert t_values[k] == pytest.approx((line.slope - 1) / line.stderr, rel=1e-6)
    swinging, _ = paths.fit(np.cumsum([[0.0], [1.0], [-2.0], [3.0], [-3.5]], axis=0))
    assert swinging.a < 0
    assert np.isnan(swinging.rate)


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


def forecasts(made, start, steps):
    state, found = made.init(start), []
    for step in steps:
        found.append(made.predict(state))
        state = made.learn(state, step)
    return np.array([*found, made.predict(state)])


def test_in_float64_they_forecast_what_the_papers_fit_does():
    rng = np.random.default_rng(0)
    start, steps = rng.normal(0, 1, 50), rng.normal(0, 0.3, (12, 50))
    ours = forecasts(author_sums(), start, steps)
    theirs = forecasts(standins.ou(mode="paper"), start, steps)
    assert np.abs(theirs[2:]).min(initial=np.inf) > 0
    np.testing.assert_array_equal(ours[:2], 0)
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-6, atol=1e-9)

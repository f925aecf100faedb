"""The OU illustration: its tests can tell an OU process from what is none."""

import jax.numpy as jnp
import numpy as np
import pytest
from experiments.paper import figures, paths

from taciturn.data import places
from taciturn.tasks.task import Stored, Task, classification


def walk(rate, steps=3000, weights=200, heavy=False):
    rng = np.random.default_rng(1)
    shape = (steps, weights)
    noise = rng.standard_t(3, shape) if heavy else rng.normal(size=shape)
    path = np.zeros((steps + 1, weights))
    for t in range(steps):
        path[t + 1] = path[t] * np.exp(-rate) + 0.01 * noise[t]
    return paths.Paths(np.array(["w"] * weights), path, 84.0)


def test_an_ou_process_is_recognised():
    found = paths.measure(walk(0.05))
    assert found["unit_root_rejected_share"] == 100
    assert found["unit_root_rejected_in_last_epoch_share"] > 90
    assert found["increments_normal_share"] > 90
    assert found["rate_median"] == pytest.approx(0.05, rel=0.1)
    assert found["volatility_median"] == pytest.approx(
        0.01 * np.sqrt(2 * 0.05 / (1 - np.exp(-0.1))), rel=0.02
    )


def test_a_random_walk_is_not():
    found = paths.measure(walk(0.0))
    assert found["unit_root_rejected_share"] < 15


def test_increments_with_heavy_tails_are_not_normal():
    assert paths.measure(walk(0.05, heavy=True))["increments_normal_share"] < 5


def test_the_control_is_an_ou_process_with_the_fitted_medians():
    measured = paths.measure(walk(0.05, 1000, 50))
    found = paths.control(measured, seed=3)
    assert found.paths.shape == (1001, 50)
    again = paths.measure(found)
    for name in ("rate_median", "volatility_median"):
        assert again[name] == pytest.approx(measured[name], rel=0.1)


def test_the_other_control_has_the_fit_of_every_weight():
    slow, fast = walk(0.05, 2000, 40), walk(0.5, 2000, 40)
    still = np.zeros((2001, 1))
    both = paths.Paths(np.array(["w"] * 81), np.hstack([slow.paths, fast.paths, still]), 84.0)
    true, _ = paths.fit(paths.own_control(both, seed=3).paths)
    assert np.median(true.rate[:40]) == pytest.approx(0.05, rel=0.1)
    assert np.median(true.rate[40:]) == pytest.approx(0.5, rel=0.1)
    assert np.median(true.volatility) == pytest.approx(
        np.median(paths.fit(both.paths[:, :80])[0].volatility), rel=0.02
    )
    away = np.cumsum(np.geomspace(1e-3, 1e3, 2001))[:, None]  # a path without a pull has no control
    more = paths.Paths(np.array(["w"] * 82), np.hstack([both.paths, away - away[0]]), 84.0)
    assert paths.own_control(more).paths.shape == (2001, 80)


def test_a_slow_pull_is_missed_in_the_control_as_well():
    """Why shares are compared with a control: few of these OU paths pass in the last epoch."""
    measured = paths.measure(walk(0.002))
    control = paths.measure(paths.control(measured))
    assert control["unit_root_rejected_in_last_epoch_share"] < 20
    assert measured["unit_root_rejected_in_last_epoch_share"] < 20


def test_paths_are_those_of_plain_gradient_descent(monkeypatch):
    """On a small task of one client: fifty batches an epoch, every weight is followed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5050, 3)).astype(np.float32)
    data = {"x": x, "y": (x.sum(1) > 0).astype(np.int32)}
    loss, metrics = classification(lambda p, x, key: x @ p["w"])
    start = {"w": jnp.zeros((3, 2))}
    task = Task(
        "one",
        Stored.of(data, [5050]),
        init=lambda key: start,
        loss=loss,
        metrics=metrics,
        test=data,
    )
    monkeypatch.setattr(paths, "load", lambda *args, **options: task)
    first, again, other = paths.train(), paths.train(), paths.train(seed=1)
    assert first.paths.shape == (1 + 50 * paths.SETTINGS["epochs"].value, 6)
    assert first.accuracy > 80
    np.testing.assert_array_equal(first.paths, again.paths)
    assert (first.paths[1] != other.paths[1]).any()
    described = paths.run()
    assert [one["seed"] for one in described["measured"]] == list(range(5))
    for control in ("control", "own_control"):
        assert set(described["measured"][0][control]) < set(described["measured"][0])
    assert described["data"]["examples"] == 5050


def test_the_figure_shows_paths_and_their_increments():
    found = walk(0.05, 500, 8)
    drawn = paths.drawn(found)
    left, middle, right = figures.paths({"drawn": drawn}).axes
    lines = left.get_lines()
    assert len(lines) == paths.SETTINGS["drawn"].value
    for line, weight in zip(lines, (0, 2, 4, 6), strict=True):
        np.testing.assert_allclose(
            line.get_ydata(), found.paths[drawn["steps"], weight], rtol=1e-4, atol=1e-12
        )
    assert left.get_legend_handles_labels()[1] == ["w"]
    assert left.get_xlabel() == "step"
    # The last of five epochs, every weight's increments on a scale of its own.
    late = np.diff(found.paths[-101:], axis=0)
    standard = (late - late.mean(0)) / late.std(0)
    counts, _ = np.histogram(standard, np.linspace(-5, 5, 51), density=True)
    (steps,) = middle.patches
    np.testing.assert_allclose(steps.get_data().values, counts, rtol=1e-4)
    (normal,) = middle.get_lines()
    assert normal.get_ydata().max() == pytest.approx(1 / np.sqrt(2 * np.pi))
    points, diagonal = right.get_lines()
    np.testing.assert_allclose(points.get_ydata()[99:101].mean(), np.median(standard), atol=0.02)
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())


@pytest.mark.slow
def test_fashion_mnist_ends_where_the_paper_does():
    if places.find("fashion") is None:
        pytest.skip("Fashion-MNIST is not there")
    found = paths.train()
    assert found.accuracy == pytest.approx(84, abs=1.5)
    assert len(found.paths) == 3001

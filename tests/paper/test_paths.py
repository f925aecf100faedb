"""The OU illustration: its tests can tell an OU process from what is none."""

import numpy as np
import pytest

from taciturn.data import places
from taciturn.paper import figures, paths
from taciturn.studies import figure


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


def test_the_figure_is_drawn(tmp_path):
    png, _ = figure.write(figures.paths(walk(0.05, 500, 8)), tmp_path, "paths")
    assert png.stat().st_size > 10_000


@pytest.mark.slow
def test_fashion_mnist_ends_where_the_paper_does():
    if places.find("fashion") is None:
        pytest.skip("Fashion-MNIST is not there")
    found = paths.train()
    assert found.accuracy == pytest.approx(84, abs=1.5)
    assert len(found.paths) == 3001

"""The author's sums: the paper's formula, from raw weights."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.paper.author_sums import author_sums
from taciturn.core import standins


def forecasts(made: standins.StandIn, start: np.ndarray, steps: np.ndarray) -> np.ndarray:
    state, found = made.init(start), []
    for step in steps:
        found.append(made.predict(state))
        state = made.learn(state, step)
    return np.array([*found, made.predict(state)])


@pytest.mark.parametrize("seed", range(5))
def test_in_float64_they_forecast_what_the_papers_fit_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, steps = rng.normal(0, 1, 50), rng.normal(0, 0.3, (12, 50))
    ours = forecasts(author_sums(), start, steps)
    theirs = forecasts(standins.ou(mode="paper"), start, steps)
    assert np.abs(theirs[2:]).min(initial=np.inf) > 0
    np.testing.assert_array_equal(ours[:2], 0)
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-6, atol=1e-9)


def test_in_float32_small_steps_drown_in_what_cancels() -> None:
    """Why they are there: steps of a thousandth of the weights, as a model takes them late."""
    rng = np.random.default_rng(0)
    start, steps = rng.normal(0, 1, 200), rng.normal(0, 1e-3, (12, 200))
    exact = forecasts(standins.ou(mode="paper"), start, steps)
    narrow = forecasts(author_sums(), start.astype("f4"), steps.astype("f4"))
    ours = forecasts(standins.ou(mode="paper"), start.astype("f4"), steps.astype("f4"))
    assert narrow.dtype == np.float32

    def error(found: np.ndarray) -> float:
        return float(np.linalg.norm(found[-1] - exact[-1]) / np.linalg.norm(exact[-1]))

    assert error(ours) < 1e-3 < 0.1 < error(narrow)

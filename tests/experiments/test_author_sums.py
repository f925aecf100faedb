"""The author's sums: the paper's formula, from raw weights."""

import numpy as np

from experiments.paper.author_sums import author_sums
from taciturn.core import standins


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

"""The estimator against NumPy's least squares, and in float32 over ten thousand steps."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taciturn.core import ou

steps = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=40)


def walk(d):
    path = ou.init(np.zeros(d.shape[1:] or 1, d.dtype))
    for one in d:
        path = ou.step(path, np.atleast_1d(one))
    return path


def next_step(d, constrained):
    """â x_t + b̂ − x_t by `lstsq`, where x_{i} = a x_{i−1} + b over the whole history."""
    x = np.concatenate([[0.0], np.cumsum(d)])
    before, after = x[:-1], x[1:]
    (a, b), *_ = np.linalg.lstsq(np.stack([before, np.ones_like(before)], 1), after, rcond=None)
    if constrained:
        a = min(max(a, 0.0), 1.0)
        b = np.mean(after - a * before)  # the best intercept for this slope
    return float((a - 1) * x[-1] + b)


@pytest.mark.parametrize("constrained", [True, False])
@given(d=steps)
def test_the_fit_is_least_squares(constrained, d):
    history = np.array(d, np.float64)
    x = np.concatenate([[0.0], np.cumsum(history)])
    assume(np.std(x[:-1]) > 1e-2)
    path = walk(history)
    assert path.x[0] == pytest.approx(x[-1])
    assert path.m[0] == pytest.approx(np.mean(x[:-1]))
    assert path.C[0] == pytest.approx(np.sum((x[:-1] - np.mean(x[:-1])) ** 2), abs=1e-12)
    assert path.Q[0] == pytest.approx(np.sum(history**2))
    expected = next_step(history, constrained)
    assert ou.predict(path, constrained)[0] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_float32_holds_over_ten_thousand_steps():
    """Of processes around 1, with rates from 1e-4 to 2, that begin there, near it and far away."""
    rng, steps, noise = np.random.default_rng(11), 10_000, 1e-3
    rate, start = (
        grid.ravel() for grid in np.meshgrid([1e-4, 1e-3, 1e-2, 0.1, 0.5, 2.0], [1.0, 0.99, 0.0])
    )
    a, x, d = np.exp(-rate), start.copy(), np.empty((steps, len(rate)), np.float32)
    for t in range(steps):
        d[t] = (1 - a) * (1 - x) + noise * rng.standard_normal(len(rate))
        x = x + d[t].astype(np.float64)  # what the server sees is the float32 update
    path = walk(d)
    assert path.x.dtype == np.float32
    for constrained in (True, False):
        predicted = ou.predict(path, constrained)
        for i, each in enumerate(d.T.astype(np.float64)):
            assert abs(predicted[i] - next_step(each, constrained)) < 0.01 * noise


@pytest.mark.parametrize("constrained", [True, False])
def test_rounding_predicts_nothing_where_the_path_has_not_varied(constrained):
    """A fused multiply-add leaves Q/2 − x²/2 a little above or below 0."""
    d = np.array([0.1, -0.3, 7.0], np.float32)
    for towards in (np.inf, -np.inf):
        path = ou.step(ou.init(d), d)
        path = path._replace(Q=np.nextafter(path.Q, np.float32(towards)))
        assert (ou.predict(path, constrained) == 0).all()

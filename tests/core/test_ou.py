"""The estimator against NumPy's least squares, and in float32 over ten thousand steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taciturn.core import ou

steps = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=40)


def walk(d: np.ndarray) -> ou.Trajectory:
    path = ou.init(np.zeros(d.shape[1:] or 1, d.dtype))
    for one in d:
        path = ou.step(path, np.atleast_1d(one))
    return path


def least_squares(d: np.ndarray, constrained: bool) -> tuple[float, float, np.ndarray]:
    """â, b̂ and the residuals of x_{i} = a x_{i−1} + b over the whole history, by `lstsq`."""
    x = np.concatenate([[0.0], np.cumsum(d)])
    before, after = x[:-1], x[1:]
    (a, b), *_ = np.linalg.lstsq(np.stack([before, np.ones_like(before)], 1), after, rcond=None)
    if constrained:
        a = min(max(a, 0.0), 1.0)
        b = np.mean(after - a * before)  # the best intercept for this slope
    return float(a), float(b), after - a * before - b


@pytest.mark.parametrize("constrained", [True, False])
@given(d=steps)
def test_the_fit_is_least_squares(constrained: bool, d: list[float]) -> None:
    history = np.array(d, np.float64)
    x = np.concatenate([[0.0], np.cumsum(history)])
    assume(np.std(x[:-1]) > 1e-2)
    a, b, residuals = least_squares(history, constrained)
    path = walk(history)
    process = ou.fit(path, constrained)
    assert path.x[0] == pytest.approx(x[-1])
    assert path.m[0] == pytest.approx(np.mean(x[:-1]))
    assert path.C[0] == pytest.approx(np.sum((x[:-1] - np.mean(x[:-1])) ** 2), abs=1e-12)
    assert path.Q[0] == pytest.approx(np.sum(history**2))
    close = {"rel": 1e-6, "abs": 1e-8}
    assert ou.predict(path, constrained)[0] == pytest.approx((a - 1) * x[-1] + b, **close)
    assert process.a[0] == pytest.approx(a, **close)
    scatter = math.sqrt(np.sum(residuals**2) / (len(d) - 2))
    assert process.residual[0] == pytest.approx(scatter, rel=1e-5, abs=1e-6)
    if a > 1e-3:
        rate = -math.log(a)
        assert process.rate[0] == pytest.approx(rate, rel=1e-5, abs=1e-7)
        if abs(rate) > 1e-3:
            # residual variance = σ² (1 − e^{−2λ}) / 2λ
            sigma = process.residual[0] * math.sqrt(2 * rate / -math.expm1(-2 * rate))
            assert process.volatility[0] == pytest.approx(sigma, rel=1e-5, abs=1e-9)
    if abs(1 - a) > 1e-3:
        assert process.mean[0] == pytest.approx(b / (1 - a), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("constrained", [True, False])
def test_nothing_is_predicted_before_two_steps_or_where_nothing_moved(constrained: bool) -> None:
    path = ou.init(np.zeros(2, np.float32))
    assert (ou.predict(path, constrained) == 0).all()
    one = ou.step(path, np.array([0.5, 0.0], np.float32))
    assert (ou.predict(one, constrained) == 0).all()
    two = ou.step(one, np.array([0.25, 0.0], np.float32))
    np.testing.assert_allclose(ou.predict(two, constrained), [0.125, 0.0])


def test_what_cannot_be_read_out_is_nan() -> None:
    """σ needs three steps, μ a slope other than 1, λ one of at least 0."""
    two = ou.fit(walk(np.array([0.5, 0.25])))
    assert np.isnan(two.residual).all()
    assert np.isnan(two.volatility).all()
    assert two.a[0] == pytest.approx(0.5)
    growing = walk(np.array([1.0, 2.0, 4.0, 8.0]))
    held = ou.fit(growing)
    assert held.a[0] == 1
    assert held.rate[0] == 0
    assert np.isnan(held.mean[0])
    assert held.volatility[0] == held.residual[0]  # σ √((1 − e^{−2λ}) / 2λ) → σ at λ = 0
    assert ou.fit(growing, constrained=False).a[0] == pytest.approx(2)
    swinging = ou.fit(walk(np.array([1.0, -2.0, 3.0, -3.5])), constrained=False)
    assert swinging.a[0] < 0
    assert np.isnan(swinging.rate[0])
    still = ou.fit(walk(np.zeros((4, 1))))
    assert np.isnan(still.a).all()


def test_float32_holds_over_ten_thousand_steps() -> None:
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
        predicted, process = ou.predict(path, constrained), ou.fit(path, constrained)
        for i, each in enumerate(d.T.astype(np.float64)):
            slope, b, residuals = least_squares(each, constrained)
            assert abs(predicted[i] - ((slope - 1) * each.sum() + b)) < 0.01 * noise
            scatter = math.sqrt(np.sum(residuals**2) / (steps - 2))
            assert process.residual[i] == pytest.approx(scatter, rel=0.01)


@pytest.mark.parametrize("constrained", [True, False])
def test_rounding_predicts_nothing_where_the_path_has_not_varied(constrained: bool) -> None:
    """A fused multiply-add leaves Q/2 − x²/2 a little above or below 0."""
    d = np.array([0.1, -0.3, 7.0], np.float32)
    for towards in (np.inf, -np.inf):
        path = ou.step(ou.init(d), d)
        path = path._replace(Q=np.nextafter(path.Q, np.float32(towards)))
        assert (ou.predict(path, constrained) == 0).all()

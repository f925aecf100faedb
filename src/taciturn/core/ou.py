r"""The Ornstein–Uhlenbeck estimator: where a path of weights goes next.

An OU process dθ = λ(μ − θ) dt + σ dW, seen once a round, is the linear model

    θ_{t+1} = a θ_t + b + ε_t,    a = e^{−λ},  b = μ (1 − e^{−λ}),  std(ε) = σ √((1 − e^{−2λ}) / 2λ)

and its least-squares fit, weight by weight, predicts θ̂_{t+1} = â θ_t + b̂. The paper keeps five sums
over raw weights, and in float32 the fit drowns in cancellation. Here the path is that of
accumulated mean updates, x_0 = 0, and with d_t = x_t − x_{t−1} four arrays are kept:

    x = x_t,   m = mean(x_0 … x_{t−1}),   C = Σ (x_{i−1} − m)²,   Q = Σ d_i²

From x_i² − x_{i−1}² = 2 x_{i−1} d_i + d_i² and x_0 = 0 follows Σ x_{i−1} d_i = (x² − Q)/2, and so

    C_xd = Σ (x_{i−1} − m) d_i = −(Q/2 + x (m − x/2)),    1 − â = −C_xd / C,
    Δ̂ = θ̂_{t+1} − θ_t = x/t − (1 − â)(x − m),

which is least squares exactly. experiments/paper/README.md lists the paper's misprints.

References:
  Ribero, Vikalo. Communication-Efficient Federated Learning via Optimal Client Sampling, 2020.
  Welford. Note on a method for calculating corrected sums of squares and products, 1962.
"""

from typing import NamedTuple

import numpy as np

from taciturn.core.arrays import Array, Scalar, namespace, or_zero, zeros


class Trajectory(NamedTuple):
    """A path of weights, as far as its fit needs it."""

    t: Scalar  # steps seen
    x: Array  # where the path is
    m: Array  # mean of where it was before each step
    C: Array  # Σ (x_{i−1} − m)²
    Q: Array  # Σ d²


def init(weights: Array) -> Trajectory:
    """A path that has not moved."""
    x, m, c, q = (zeros(weights) for _ in range(4))
    return Trajectory(namespace(weights).zeros((), dtype=x.dtype), x, m, c, q)


def step(path: Trajectory, d: Array) -> Trajectory:
    """The path after one more step `d`."""
    t, away = path.t + 1, path.x - path.m
    m = path.m + away * (1 / t)
    return Trajectory(t, path.x + d, m, path.C + away**2 * (1 - 1 / t), path.Q + d * d)


@np.errstate(all="ignore")
def predict(path: Trajectory, constrained: bool = True) -> Array:
    """Δ̂, the step that the fit expects next; 0 before t = 2, where the path never moved and where
    the formula overflows.

    If `constrained`, â is held in [0, 1], which is what λ ≥ 0 means, and b̂ refitted. Else this is
    the paper's formula to the letter: at t = 2 it gives d₂²/d₁.
    """
    xp = namespace(path.x)
    pull = (path.Q / 2 + path.x * (path.m - path.x / 2)) / path.C  # 1 − â
    if constrained:
        pull = xp.clip(pull, 0.0, 1.0)
    expected = path.x / xp.maximum(path.t, 1.0) - pull * (path.x - path.m)
    # Where C = 0, â is 0/0, but for rounding: a fused product makes something over 0 of it.
    return or_zero((path.C > 0) & xp.isfinite(expected), expected)

"""The stand-in of the author's code: least squares from sums over raw weights.

`ou,mode=paper` has the same formula, from a path that begins at zero. Here S_x, S_y, S_xx and S_xy
are sums over the weights themselves, in float32, where t·S_xx − S_x² cancels: what the paper's runs
had. It is there to tell whether rounding explains what becomes of them, and for nothing else.
"""

from typing import NamedTuple

from taciturn.core.arrays import Array, Scalar, namespace, or_zero, zeros
from taciturn.core.policy import register
from taciturn.core.standins import StandIn


class Sums(NamedTuple):
    """The paper's rolling sums, and the weights."""

    t: Scalar
    weights: Array
    x: Array  # Σ θ_{i−1}
    y: Array  # Σ θ_i
    xx: Array  # Σ θ_{i−1}²
    xy: Array  # Σ θ_{i−1} θ_i


def author_sums() -> StandIn:
    """The step that least squares over raw weights expects next.

    As in the author's code, â = 0 where its denominator is 0, so that the forecast is the mean of
    the weights that were seen, and nothing is predicted before two steps. Where a forecast is not
    finite it is 0; the code drops the forecast of all weights then.
    """
    return StandIn("author_sums", init=_init, predict=_predict, learn=_learn)


def _init(weights: Array) -> Sums:
    zero = zeros(weights)
    t = namespace(weights).zeros((), dtype=zero.dtype)
    return Sums(t, zero + weights, zero, zeros(weights), zeros(weights), zeros(weights))


def _learn(sums: Sums, d: Array) -> Sums:
    before, after = sums.weights, sums.weights + d
    return Sums(
        sums.t + 1,
        after,
        sums.x + before,
        sums.y + after,
        sums.xx + before * before,
        sums.xy + before * after,
    )


def _predict(sums: Sums) -> Array:
    xp, t = namespace(sums.x), sums.t
    below = t * sums.xx - sums.x * sums.x
    there = below != 0
    above = t * sums.xy - sums.x * sums.y
    a = or_zero(there, above / xp.where(there, below, xp.ones_like(below)))
    b = (sums.y - a * sums.x) / xp.maximum(t, xp.ones_like(t))
    expected = a * sums.weights + b - sums.weights
    return or_zero((t > 1) & xp.isfinite(expected), expected)


register("stand-in", author_sums)

"""Sums over clients and weights, in few passes over memory and on several cores."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from taciturn.core import server
from taciturn.core.arrays import BLOCK
from taciturn.core.parallel import in_parallel
from taciturn.core.policy import Policy
from taciturn.core.standins import StandIn
from taciturn.core.tally import Tally

_SCRATCH = 1 << 19  # elements of all clients' blocks together: they stay in the cache
_LONGEST = 1 << 16  # elements of one client's block

# The inner strategy takes the step: the mean is what it gets.
HANDED_ON = server.Optimizer(
    init=lambda weights: (), apply=lambda state, mean, weights, donate: (weights, state)
)


class Segment(NamedTuple):
    """Elements of one layer: its number, and where they lie in it and in the flat vector of all."""

    layer: int
    cut: slice
    flat: slice


def segments(layers: Sequence[np.ndarray], part: slice, most: int) -> Iterator[Segment]:
    """The segments, of `most` elements at most, of a part of the flat vector in the layers."""
    start = 0
    for i, layer in enumerate(layers):
        stop = start + len(layer)
        for low in range(max(part.start, start), min(part.stop, stop), most):
            high = min(low + most, part.stop, stop)
            yield Segment(i, slice(low - start, high - start), slice(low, high))
        start = stop


def norm(before: Sequence[np.ndarray], after: Sequence[np.ndarray], dtype: Any) -> float:
    """The norm of the difference of two models, a vector per layer; nothing is copied."""
    return measure(before, [after], dtype)[0]


def measure(
    sent: Sequence[np.ndarray],
    trained: Sequence[Sequence[np.ndarray]],
    dtype: Any,
    examples: Sequence[float] = (),
    out: Sequence[np.ndarray] = (),
) -> list[float]:
    """The norms of the clients' updates and their sum Σ n·Δ, in one pass over memory.

    A block of every client's weights is turned into updates that stay in the cache while they are
    measured and summed.

    Args:
      sent: the weights that the clients were sent, a vector per layer.
      trained: what each client made of them.
      dtype: that of updates and sums.
      examples: n_k, one per client.
      out: where the sum goes, a vector per layer; empty where it is not needed.

    Returns:
      m_k = ‖Δ_k‖, one per client.
    """
    count, n_k = len(trained), np.asarray(examples, dtype)
    block = min(_LONGEST, max(1024, _SCRATCH // max(count, 1)))

    def work(part: slice) -> np.ndarray:
        scratch = np.empty((count, block), dtype)
        squares = np.zeros(count)
        # A client that overflows has a norm that is not finite, and is rejected for it.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, cut, _ in segments(sent, part, block):
                updates = scratch[:, : cut.stop - cut.start]
                for k in range(count):
                    np.subtract(trained[k][i][cut], sent[i][cut], out=updates[k], dtype=dtype)
                squares += np.vecdot(updates, updates)
                if out:
                    np.einsum("k,kb->b", n_k, updates, out=out[i][cut])
        return squares

    if not count:
        for vector in out:
            vector.fill(0)
        return []
    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(sum(in_parallel(work, sum(map(len, sent)))))]


def predict(stand_in: StandIn, state: Any, scale: float, out: Sequence[np.ndarray]) -> None:
    """Writes scale · Δ̂, a vector per layer."""

    def work(part: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for i, cut, flat in segments(out, part, BLOCK):
                out[i][cut] = scale * stand_in.predict(_cut(state, flat))

    in_parallel(work, sum(map(len, out)))


def close(
    policy: Policy, state: server.ServerState, tally: Tally, spoken: Sequence[np.ndarray]
) -> tuple[server.ServerState, server.RoundInfo]:
    """`server.close` in threads, with the memory of `state` and `spoken` reused.

    All that it does to vectors is element-wise, so each thread closes the round for a part of them.

    Args:
      policy: rule, stand-in and codec.
      state: the state before the round.
      tally: what was heard, in numbers.
      spoken: Σ n·Δ, a vector per layer; the mean update takes its place. Empty where the stand-in
        does not learn and nobody needs the mean.
    """

    def shut(own: server.ServerState, total: np.ndarray) -> Any:
        return server.close(policy, own, tally._replace(spoken=total), HANDED_ON, donate=True)

    def work(part: slice) -> Any:
        for i, cut, flat in segments(spoken, part, sys.maxsize):
            own = state._replace(stand_in=_cut(state.stand_in, flat))
            closed = shut(own, spoken[i][cut])
        return closed

    if not spoken:
        return shut(state, tally.spoken)
    closed, info = in_parallel(work, sum(map(len, spoken)))[0]
    # Vectors were written in place, part by part; numbers are the same in all parts.
    merged = [old if getattr(old, "ndim", 0) == 1 else new
              for old, new in zip(state.stand_in, closed.stand_in, strict=True)]  # fmt: skip
    return closed._replace(stand_in=_like(state.stand_in, merged)), info


def _cut(state: Any, part: slice) -> Any:
    """A stand-in's state for a part of the weights."""
    return _like(state, [x[part] if getattr(x, "ndim", 0) == 1 else x for x in state])


def _like(state: Any, parts: list[Any]) -> Any:
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)

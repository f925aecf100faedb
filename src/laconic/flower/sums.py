"""Sums over clients and weights, in few passes over memory and on several cores.

NumPy gives up the interpreter's lock while it computes, so plain threads share the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from laconic.core import server
from laconic.core.arrays import BLOCK
from laconic.core.policy import Policy
from laconic.core.standins import StandIn
from laconic.core.tally import Tally

WORKERS = min(4, os.cpu_count() or 1)
_ALONE = 1 << 18  # so few weights are done before a thread has started
_SCRATCH = 1 << 19  # elements of all clients' blocks together: they stay in the cache
_LONGEST = 1 << 16  # elements of one client's block

_T = TypeVar("_T")

# The inner strategy takes the step: the mean is what it gets.
HANDED_ON = server.Optimizer(
    init=lambda weights: (), apply=lambda state, mean, weights, donate: (weights, state)
)


def in_parallel(work: Callable[[slice], _T], size: int) -> list[_T]:
    """`work` on parts that make up `range(size)`, each in a thread of its own."""
    workers = 1 if size < _ALONE else WORKERS
    cuts = [slice(i * size // workers, (i + 1) * size // workers) for i in range(workers)]
    if workers == 1:
        return [work(cuts[0])]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, cuts))


def norm(before: Sequence[np.ndarray], after: Sequence[np.ndarray], dtype: Any) -> float:
    """The norm of the difference of two models, a vector a layer; nothing is copied."""
    return measure(before, [after], None, dtype)[0][0]


def measure(
    sent: Sequence[np.ndarray],
    trained: Sequence[Sequence[np.ndarray]],
    examples: Sequence[float] | None,
    dtype: Any,
) -> tuple[list[float], np.ndarray]:
    """The norms of the clients' updates and their sum Σ n·Δ, in one pass over memory.

    A block of every client's weights is turned into updates that stay in the cache while they are
    measured and summed.

    Args:
      sent: the weights that the clients were sent, a vector a layer.
      trained: what each client made of them.
      examples: n_k, one a client; None where the sum is not needed.
      dtype: that of the sum.

    Returns:
      m_k = ‖Δ_k‖, one a client, and Σ n·Δ, which is empty where it is not needed.
    """
    starts = np.cumsum([0, *(len(layer) for layer in sent)]).tolist()
    count, shares = len(trained), np.asarray(examples or [], dtype)
    total = np.zeros(0 if examples is None else starts[-1], dtype)
    block = min(_LONGEST, max(1024, _SCRATCH // max(count, 1)))

    def work(part: slice) -> np.ndarray:
        scratch = np.empty((count, block), dtype)
        squares = np.zeros(count)
        # A client that overflows has a norm that is not finite, and is rejected for it.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, base in enumerate(sent):
                first, last = max(part.start, starts[i]), min(part.stop, starts[i + 1])
                for low in range(first, last, block):
                    cut = slice(low - starts[i], min(low + block, last) - starts[i])
                    updates = scratch[:, : cut.stop - cut.start]
                    for k in range(count):
                        np.subtract(trained[k][i][cut], base[cut], out=updates[k], dtype=dtype)
                    squares += np.vecdot(updates, updates)
                    if examples is not None:
                        here = total[starts[i] + cut.start : starts[i] + cut.stop]
                        np.einsum("k,kb->b", shares, updates, out=here)
        return squares

    if not count:
        return [], total
    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(sum(in_parallel(work, starts[-1])))], total


def predict(stand_in: StandIn, state: Any, scale: float, size: int, dtype: Any) -> np.ndarray:
    """scale · Δ̂ as one vector."""
    expected = np.empty(size, dtype)

    def work(part: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(part.start, part.stop, BLOCK):
                cut = slice(low, min(low + BLOCK, part.stop))
                expected[cut] = scale * stand_in.predict(_cut(state, cut))

    in_parallel(work, size)
    return expected


def close(
    policy: Policy, state: server.ServerState, tally: Tally
) -> tuple[server.ServerState, server.RoundInfo]:
    """`server.close` in threads, with the memory of `state` and `tally` reused.

    All that it does to vectors is element-wise, so each thread closes the round for a part of them.
    Afterwards `tally.spoken` holds the mean update.
    """

    def work(part: slice) -> tuple[server.ServerState, server.RoundInfo]:
        own = state._replace(stand_in=_cut(state.stand_in, part))
        return server.close(
            policy, own, tally._replace(spoken=tally.spoken[part]), HANDED_ON, donate=True
        )

    closed, info = in_parallel(work, len(tally.spoken))[0]
    # Vectors were written in place, part by part; numbers are the same in all parts.
    merged = [old if getattr(old, "ndim", 0) == 1 else new
              for old, new in zip(state.stand_in, closed.stand_in, strict=True)]  # fmt: skip
    return closed._replace(stand_in=_like(state.stand_in, merged)), info


def _cut(state: Any, part: slice) -> Any:
    """A stand-in's state for a part of the weights."""
    return _like(state, [x[part] if getattr(x, "ndim", 0) == 1 else x for x in state])


def _like(state: Any, parts: list[Any]) -> Any:
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)

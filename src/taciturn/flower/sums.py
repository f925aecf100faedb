"""Sums over clients and weights, in few passes over memory and on several cores."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.parallel import in_parallel

_SCRATCH = 1 << 19  # elements of all clients' blocks together: they stay in the cache
_LONGEST = 1 << 16  # elements of one client's block


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


def difference(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> np.ndarray:
    """The difference of two models, a vector per layer, as one flat vector of float32."""
    found = np.empty(sum(map(len, before)), np.float32)

    def work(part: slice) -> None:
        for i, cut, flat in segments(before, part, sys.maxsize):
            np.subtract(after[i][cut], before[i][cut], out=found[flat], casting="same_kind")

    in_parallel(work, len(found))
    return found


def measure(
    sent: Sequence[np.ndarray],
    trained: Sequence[Sequence[np.ndarray]],
    dtype: Any,
    weights: Sequence[float] = (),
    out: np.ndarray | None = None,
) -> list[float]:
    """The norms of the clients' updates and their weighted sum, in one pass over memory.

    A block of every client's weights is turned into updates that stay in the cache while they are
    measured and summed.

    Args:
      sent: the weights that the clients were sent, a vector per layer.
      trained: what each client made of them.
      dtype: that of updates and sums.
      weights: what each update weighs in the sum.
      out: where the sum goes, a flat vector; None where it is not needed.

    Returns:
      m_k = ‖Δ_k‖, one per client.
    """
    count, scales = len(trained), np.asarray(weights, dtype)
    block = min(_LONGEST, max(1024, _SCRATCH // max(count, 1)))

    def work(part: slice) -> np.ndarray:
        scratch = np.empty((count, block), dtype)
        squares = np.zeros(count)
        # A client that overflows has a norm that is not finite, and is rejected for it.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, cut, flat in segments(sent, part, block):
                updates = scratch[:, : cut.stop - cut.start]
                for k in range(count):
                    np.subtract(trained[k][i][cut], sent[i][cut], out=updates[k], dtype=dtype)
                squares += np.vecdot(updates, updates)
                if out is not None:
                    np.einsum("k,kb->b", scales, updates, out=out[flat])
        return squares

    if not count:
        if out is not None:
            out.fill(0)
        return []
    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(sum(in_parallel(work, sum(map(len, sent)))))]

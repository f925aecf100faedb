"""Flat vectors of any array library: sums, norms, and element-wise work in blocks.

The core is written against the Python array API, so the same lines run on NumPy and, traced or
not, on JAX. Two things differ. XLA fuses a chain of element-wise operations into one pass over
memory, NumPy makes one pass for each: `in_blocks` therefore feeds NumPy one cache-sized block at a
time. And with `donate=True` NumPy may write into a buffer that nobody needs any more, as JAX does.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from taciturn.errors import InputError

Array = Any  # a NumPy array, a JAX array or a tracer: whatever has `__array_namespace__`
Scalar = Any  # a Python number or a 0-d array

# Elements. A few arrays of this length stay in a cache, and the interpreter's own work for a block,
# which holds its lock, is little beside NumPy's.
BLOCK = 1 << 17
WORKERS = min(4, os.cpu_count() or 1)
_ALONE = 1 << 18  # so few elements are done before a thread has started


def namespace(x: Array | Scalar) -> Any:
    """The array library of `x`; NumPy for a number of Python's."""
    if isinstance(x, int | float) and not isinstance(x, np.generic):
        return np
    try:
        return x.__array_namespace__()
    except AttributeError:
        raise InputError(f"Weights must be an array, got {type(x).__name__}.") from None


def one_if(condition: Any) -> Any:
    """1 where the condition holds and 0 where not; the condition may be traced."""
    if not hasattr(condition, "__array_namespace__"):
        return int(condition)
    return namespace(condition).astype(condition, np.int32)


def check_flat(weights: Array) -> None:
    """Raises unless `weights` is one flat vector of floating-point numbers."""
    xp = namespace(weights)
    if weights.ndim != 1:
        raise InputError(f"Weights must be one flat vector, got shape {tuple(weights.shape)}.")
    if not xp.isdtype(weights.dtype, "real floating"):
        raise InputError(f"Weights must be floating-point numbers, got {weights.dtype}.")


def wide(x: Array) -> Any:
    """The dtype that sums over `x` are kept in: that of `x`, but float32 at the least."""
    xp = namespace(x)
    return x.dtype if xp.finfo(x.dtype).bits > 32 else xp.dtype(xp.float32)


def zeros(like: Array) -> Array:
    """A zero vector for sums over vectors like `like`."""
    return namespace(like).zeros_like(like, dtype=wide(like))


def norm(record: Any, function: Callable[[Any], Array] = lambda same: same) -> Scalar:
    """The Euclidean norm of a flat vector, in at least float32; or of `function(record)`, which is
    element-wise and not kept. Squares are summed in blocks, so that a hundred million of them do
    not stall in float32; XLA sums in a tree of its own."""
    if (length := _numpy_length(record)) is not None:
        total, dtype = 0.0, np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            for _, block in _blocks(record, slice(0, length)):
                x = np.asarray(function(block))
                dtype = wide(x)
                x = x.astype(dtype, copy=False)
                total += float(np.vecdot(x, x))
            return np.sqrt(np.float64(total)).astype(dtype)
    x = function(record)
    xp = namespace(x)
    x = xp.astype(x, wide(x))
    return xp.sqrt(xp.sum(x * x))


def add_scaled(total: Array, scale: Scalar, x: Array, *, donate: bool = False) -> Array:
    """`total + scale * x`; with `donate`, NumPy writes the result over `total`."""
    if not isinstance(total, np.ndarray):
        return total + scale * namespace(total).astype(x, total.dtype, copy=False)
    out = total if donate else np.empty_like(total)

    def work(part: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for cut, (before, more) in _blocks((total, x), part):
                out[cut] = before + scale * more.astype(total.dtype, copy=False)

    in_parallel(work, len(total))
    return out


def in_blocks(function: Callable[[Any], Any], record: Any, *, donate: bool = False) -> Any:
    """`function(record)`, where `function` is element-wise and returns a record of the same form.

    `record` is a (nested) tuple of flat vectors of one length and of scalars. For NumPy the vectors
    are cut into blocks that fit the cache; scalars of the result are those of the last block. With
    `donate`, the result takes the place of `record` in memory. Threads share the work.
    """
    if (length := _numpy_length(record)) is None:
        return function(record)
    out = leaves_of(record)
    if not donate:
        out = [np.empty_like(leaf) if _is_vector(leaf) else leaf for leaf in out]

    def work(part: slice) -> list[Any]:
        after: list[Any] = []
        with np.errstate(over="ignore", invalid="ignore"):
            for cut, block in _blocks(record, part):
                before, after = leaves_of(block), leaves_of(function(block))
                if donate:
                    after = [_apart(new, before, i) for i, new in enumerate(after)]
                for target, new, old in zip(out, after, before, strict=True):
                    if _is_vector(target) and not (donate and new is old):
                        target[cut] = new
        return after

    last = in_parallel(work, length)[-1]
    leaves = (to if _is_vector(to) else new for to, new in zip(out, last, strict=True))
    return rebuilt(record, leaves)


def in_rows(vector: Array, width: int) -> Array:
    """The vector as a matrix whose rows have so many entries, the last filled up with zeros."""
    xp, missing = namespace(vector), -vector.shape[0] % width
    if missing:
        vector = xp.concat([vector, xp.zeros((missing,), dtype=vector.dtype)])
    return xp.reshape(vector, (-1, width))


def by_rows(function: Callable[[Array, int], tuple[Array, ...]], rows: Array) -> tuple[Array, ...]:
    """`function(rows, 0)`, where every row of its results comes from the same row of `rows`.

    NumPy calls it with a few rows at a time and the number of the first; threads share the work.
    """
    if not isinstance(rows, np.ndarray):
        return function(rows, 0)
    count, group = len(rows), max(1, BLOCK // rows.shape[1])
    out = [np.empty((count, *part.shape[1:]), part.dtype) for part in function(rows[:1], 0)]

    def work(part: slice) -> None:
        for low in range(part.start, part.stop, group):
            cut = slice(low, min(low + group, part.stop))
            for target, result in zip(out, function(rows[cut], low), strict=True):
                target[cut] = result

    in_parallel(work, count, rows.shape[1])
    return tuple(out)


def put(places: Array, values: Array, shape: int | tuple[int, ...]) -> Array:
    """An array with these values at these places of its first axis, and 0 elsewhere."""
    empty = namespace(values).zeros(shape, dtype=values.dtype)
    if not isinstance(empty, np.ndarray):
        return empty.at[places].set(values)
    empty[places] = values
    return empty


def or_zero(known: Array, x: Array) -> Array:
    """`x` where it is known and 0 elsewhere. NumPy writes over `x`: its `where` is far slower."""
    if not isinstance(x, np.ndarray):
        return namespace(x).where(known, x, 0.0)
    if not known.all():
        x[~known] = 0.0
    return x


def largest_where(holds: Callable[[Array], Array], bits: int, xp: Any) -> Array:
    """The largest number of so many bits of which something holds, found bit by bit. Whatever holds
    of a number must hold of all smaller ones but 0."""
    found = xp.zeros((), dtype=xp.int32)
    for place in reversed(range(bits)):
        higher = found | (1 << place)
        found = xp.where(holds(higher), higher, found)
    return found


def ratio(x: Any, y: Any, empty: float = 0.0) -> Any:
    """x / y, and `empty` where y is 0."""
    where = namespace(y).where
    return where(y > 0, x / where(y > 0, y, 1.0), empty)


def select(condition: Scalar, new: Any, old: Any) -> Any:
    """`new` where the condition holds and `old` where not, for every entry of a record."""
    if isinstance(condition, np.bool):
        return new if condition else old
    pairs = zip(leaves_of(new), leaves_of(old), strict=True)
    return rebuilt(old, (namespace(condition).where(condition, a, b) for a, b in pairs))


def _blocks(record: Any, part: slice) -> Iterator[tuple[slice, Any]]:
    """The record with its vectors cut to the blocks of a part, and where they were cut."""
    leaves = leaves_of(record)
    for low in range(part.start, part.stop, BLOCK):
        cut = slice(low, min(low + BLOCK, part.stop))
        yield cut, rebuilt(record, (leaf[cut] if _is_vector(leaf) else leaf for leaf in leaves))


def _apart(new: Any, before: list[Any], own: int) -> Any:
    """`new`, copied if it lies where another entry of the record will be written."""
    others = (leaf for i, leaf in enumerate(before) if i != own and _is_vector(leaf))
    shared = _is_vector(new) and any(np.may_share_memory(new, leaf) for leaf in others)
    return new.copy() if shared else new


def _is_vector(leaf: Any) -> bool:
    return getattr(leaf, "ndim", 0) == 1


def _numpy_length(record: Any) -> int | None:
    """The length of the record's vectors; None where they are not NumPy's."""
    vectors = [leaf for leaf in leaves_of(record) if _is_vector(leaf)]
    ours = bool(vectors) and all(isinstance(vector, np.ndarray) for vector in vectors)
    return len(vectors[0]) if ours else None


def in_parallel(work: Callable[[slice], Any], size: int, weight: int = 1) -> list[Any]:
    """`work` on parts that make up `range(size)`, each in a thread of its own: NumPy gives up the
    interpreter's lock while it computes. Each of so many stands for `weight` elements."""
    workers = 1 if size * weight < _ALONE else min(WORKERS, size)
    cuts = [slice(i * size // workers, (i + 1) * size // workers) for i in range(workers)]
    if workers == 1:
        return [work(cuts[0])]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, cuts))


def leaves_of(record: Any) -> list[Any]:
    """The entries of a record, and of the records in it, in order."""
    if not isinstance(record, tuple):
        return [record]
    return [leaf for part in record for leaf in leaves_of(part)]


def rebuilt(record: Any, leaves: Iterator[Any]) -> Any:
    """A record like this one, with other leaves."""
    if not isinstance(record, tuple):
        return next(leaves)
    parts = [rebuilt(part, leaves) for part in record]
    return type(record)(*parts) if hasattr(record, "_fields") else tuple(parts)

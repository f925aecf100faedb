"""A model's arrays seen as the core sees weights: one flat vector, without a copy.

The *weights* of a model are its floating-point arrays. The *rest* always travels: arrays of other
types (counters), those that a user excludes, and *buffers* such as BatchNorm's running means and
variances. Training moves these, but they are no updates: a codec's noise makes a variance negative,
and so does an optimiser's step. The model gets their mean.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

import numpy as np

from taciturn.core.arrays import in_parallel
from taciturn.core.buffers import PATTERNS
from taciturn.errors import InputError

Arrays = Mapping[str, np.ndarray]  # a model's, or a part of them, by name
Vectors = Sequence[np.ndarray]  # a model's weights, a flat vector per layer

_VARIANCE = re.compile(r"(?<![a-z])var(iance)?\W*$")
_LARGEST = 1e18  # as of norms: strategies square numbers of clients in float32
_SCRATCH = 1 << 19  # elements of all clients' blocks together: they stay in the cache
_LONGEST = 1 << 16  # elements of one client's block


class Layer(NamedTuple):
    """What is known of an array before it is read."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layout(NamedTuple):
    """How a model's arrays make up one flat vector."""

    layers: tuple[Layer, ...]  # the weights, in the model's order
    rest: tuple[Layer, ...]  # the arrays that always travel
    averaged: frozenset[str]  # counters and buffers: they get their mean under every strategy
    variances: frozenset[str]  # those of the buffers that are

    @classmethod
    def of(cls, arrays: Arrays, exclude: Sequence[str] = (), buffers: Sequence[str] = ()) -> Self:
        """The layout of these arrays; both others are names or patterns like `head.*`."""
        layers, rest = list[Layer](), list[Layer]()
        averaged, variances = set[str](), set[str]()
        numbered = {name for _, name in _numbered(arrays)}
        for name, array in arrays.items():
            layer = Layer(name, array.shape, array.dtype)
            is_buffer = _named(name, buffers)
            always = is_buffer or layer.dtype.kind != "f" or _named(name, exclude)
            (rest if always else layers).append(layer)
            if is_buffer or layer.dtype.kind in "iub":
                averaged.add(name)
            if is_buffer and (name in numbered or _VARIANCE.search(name)):
                variances.add(name)
        return cls(tuple(layers), tuple(rest), frozenset(averaged), frozenset(variances))

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.layers)

    @property
    def wide(self) -> np.dtype[Any]:
        """The dtype of sums over weights."""
        return np.result_type(np.float32, *(layer.dtype for layer in self.layers))

    def parts(self, flat: np.ndarray) -> Iterator[tuple[Layer, np.ndarray]]:
        """The layers of weights, each with its part of a flat vector."""
        start = 0
        for layer in self.layers:
            yield layer, flat[start : start + layer.size]
            start += layer.size

    @property
    def names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    def rest_of(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the arrays that always travel."""
        return {layer.name: arrays[layer.name] for layer in self.rest if layer.name in arrays}

    def views(self, arrays: Arrays) -> list[np.ndarray]:
        """The weights as `Vectors`, or an error that says what differs."""
        return [_checked(layer, arrays, "f", "be floating-point") for layer in self.layers]

    def check_rest(self, arrays: Arrays) -> None:
        """Raises unless the arrays that always travel have their shapes, and numbers that are
        finite in the model's dtypes."""
        for layer in self.rest:
            values = _checked(layer, arrays, "fiub", "hold numbers")
            if layer.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(layer.dtype)
                if not (np.abs(values) < _LARGEST).all():
                    raise InputError(f"`{layer.name}` must have finite numbers below 1e18 in size.")
            elif not np.isfinite(values).all():
                raise InputError(f"`{layer.name}` is not finite.")


def buffers_of(arrays: Arrays) -> list[str]:
    """Names, or patterns of names, of a model's buffers."""
    named = [one for one in PATTERNS if any(fnmatchcase(name, one) for name in arrays)]
    return named + [name for pair in _numbered(arrays) for name in pair]


def _numbered(arrays: Arrays) -> Iterator[tuple[str, str]]:
    """Means and variances among arrays that came as a list, and have numbers for names: PyTorch
    counts batches in a whole number behind them."""
    items = list(arrays.items())
    three = zip(items, items[1:], items[2:], strict=False)
    for (mean, first), (variance, second), (_, count) in three:
        if not mean.isdigit() or count.dtype.kind != "i" or count.shape:
            continue
        like = (first.dtype, first.shape) == (second.dtype, second.shape)
        vectors = like and second.ndim == 1 and second.dtype.kind == "f"
        if vectors and (second >= 0).all() and second.any():
            yield mean, variance


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _checked(layer: Layer, arrays: Arrays, kinds: str, must: str) -> np.ndarray:
    """The array of this name as a flat vector, or an error where its shape or its kind differs."""
    array = arrays[layer.name]
    if array.shape != layer.shape:
        raise InputError(f"`{layer.name}` must have shape {layer.shape}, got {array.shape}.")
    if array.dtype.kind not in kinds:
        raise InputError(f"`{layer.name}` must {must}, got {array.dtype}.")
    return array.reshape(-1).astype(array.dtype.newbyteorder("="), copy=False)


def _segments(
    layers: Vectors, part: slice, most: int = sys.maxsize
) -> Iterator[tuple[int, slice, slice]]:
    """A part of the flat vector of all layers, in segments of `most` elements at most: the number
    of the layer, and where the segment lies in it and in the flat vector."""
    start = 0
    for i, layer in enumerate(layers):
        stop = start + len(layer)
        for low in range(max(part.start, start), min(part.stop, stop), most):
            high = min(low + most, part.stop, stop)
            yield i, slice(low - start, high - start), slice(low, high)
        start = stop


def nbytes_of(arrays: Arrays) -> int:
    """The bytes of these arrays' numbers."""
    return sum(array.nbytes for array in arrays.values())


def difference(before: Vectors, after: Vectors) -> np.ndarray:
    """The difference of two models, as one flat vector of float32."""
    found = np.empty(sum(map(len, before)), np.float32)

    def work(part: slice) -> None:
        for i, cut, flat in _segments(before, part):
            np.subtract(after[i][cut], before[i][cut], out=found[flat], casting="same_kind")

    in_parallel(work, len(found))
    return found


def measure(
    sent: Vectors, trained: Sequence[Vectors], weights: Sequence[float] = (), out: Any = None
) -> list[float]:
    """The norms of the clients' updates, from `sent` to `trained`; their weighted sum goes to the
    flat vector `out`. It is one pass over memory: a block of every client's update stays in the
    cache while it is measured and summed."""
    dtype = np.result_type(np.float32, *sent)
    count, scales = len(trained), np.asarray(weights, dtype)
    block = min(_LONGEST, max(1024, _SCRATCH // max(count, 1)))

    def work(part: slice) -> np.ndarray:
        scratch = np.empty((count, block), dtype)
        squares = np.zeros(count)
        # A client that overflows has a norm that is not finite, and is rejected for it.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, cut, flat in _segments(sent, part, block):
                updates = scratch[:, : cut.stop - cut.start]
                for k in range(count):
                    np.subtract(trained[k][i][cut], sent[i][cut], out=updates[k], dtype=dtype)
                squares += np.vecdot(updates, updates)
                if out is not None:
                    np.einsum("k,kb->b", scales, updates, out=out[flat])
        return squares

    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(sum(in_parallel(work, sum(map(len, sent)))))]


def cast(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers as `dtype`: whole ones are rounded, and stop at the most that the type holds."""
    values = np.rint(values) if dtype.kind in "iub" else values
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return values.astype(dtype, copy=False)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    # The largest of 64 bits is no float64: what reaches it is put there by hand.
    within = np.clip(values, least, np.nextafter(float(most), 0.0))
    return np.asarray(np.where(values >= most, most, within.astype(dtype)), dtype)

"""Flower's records seen as the core sees weights: flat vectors, without a copy.

A record's *weights* are its floating-point arrays; they are measured, left out by a silent client
and stood in for. The *rest*, arrays of other types (counters), buffers, and those named in
`exclude`, always travels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord

from taciturn.core.parallel import in_parallel
from taciturn.errors import InputError
from taciturn.flower.buffers import variances_of
from taciturn.flower.npy import blank, view
from taciturn.flower.sums import segments


class Layer(NamedTuple):
    """Where an array lies in the flat vector of weights."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    size: int


_LARGEST = 1e18  # as of norms: strategies square numbers of clients in float32


class Layout(NamedTuple):
    """How a model's arrays make up one flat vector.

    Attributes:
      layers: the weights, in the record's order.
      rest: name, shape and dtype of every array that always travels.
      averaged: those of the rest that get their mean, whatever a strategy makes of the weights:
        counters and buffers.
      variances: those of the buffers that are.
    """

    layers: tuple[Layer, ...]
    rest: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    averaged: frozenset[str]
    variances: frozenset[str]

    @classmethod
    def of(
        cls, record: ArrayRecord, exclude: Sequence[str] = (), buffers: Sequence[str] = ()
    ) -> Layout:
        """The layout of the arrays in `record`; both others are names or patterns like `head.*`."""
        layers, rest, averaged, start = [], [], set(), 0
        for name, array in record.items():
            shape, dtype = tuple(array.shape), np.dtype(array.dtype)
            if dtype.kind == "f" and not _named(name, exclude) and not _named(name, buffers):
                layers.append(Layer(name, shape, dtype, start, math.prod(shape)))
                start += math.prod(shape)
            else:
                rest.append((name, shape, dtype))
                if dtype.kind in "iub" or _named(name, buffers):
                    averaged.add(name)
        variances = variances_of(record) & averaged if buffers else ()
        return cls(tuple(layers), tuple(rest), frozenset(averaged), frozenset(variances))

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.layers)

    @property
    def wide(self) -> np.dtype[Any]:
        """The dtype of sums over weights."""
        return np.result_type(np.float32, *(layer.dtype for layer in self.layers))

    @property
    def names(self) -> list[str]:
        """The names of the weights."""
        return [layer.name for layer in self.layers]

    def cut(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of a flat vector, one per layer; nothing is copied."""
        return [flat[layer.start : layer.start + layer.size] for layer in self.layers]

    def views(self, record: Mapping[str, Array]) -> list[np.ndarray]:
        """The weights of `record`, a flat vector per layer, or an error that says what differs."""
        found = []
        for layer in self.layers:
            array = record[layer.name]
            _check(layer.name, array, layer.shape)
            vector = view(array)
            if vector.dtype.kind != "f":
                raise InputError(f"`{layer.name}` must be floating-point, got {vector.dtype}.")
            found.append(vector)
        return found

    def check_rest(self, record: Mapping[str, Array]) -> None:
        """Raises unless `record` has the arrays that always travel, of their shapes, and with
        numbers that are finite in the model's dtypes."""
        for name, shape, dtype in self.rest:
            _check(name, record[name], shape)
            values = view(record[name])
            if values.dtype.kind not in "fiub":
                raise InputError(f"`{name}` must hold numbers, got {values.dtype}.")
            with np.errstate(over="ignore"):
                values = values.astype(dtype) if dtype.kind == "f" else values
            if not np.isfinite(values).all():
                raise InputError(f"`{name}` is not finite.")
            if dtype.kind == "f" and not (np.abs(values) < _LARGEST).all():
                raise InputError(f"`{name}` must have numbers below 1e18 in size.")


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if tuple(array.shape) != shape:
        raise InputError(f"`{name}` must have shape {shape}, got {tuple(array.shape)}.")


def not_finite(record: ArrayRecord) -> list[str]:
    """The names of arrays with numbers that are not."""
    return [name for name, array in record.items() if not np.isfinite(view(array)).all()]


def cast(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """`record` with the dtypes of `like`.

    Averaging turns integers into float64, and Flower's FedAdam and FedYogi turn float32 into
    float64: the next round would send twice the bytes.
    """
    arrays = {}
    for name, array in record.items():
        if name in like and array.dtype != like[name].dtype:
            dtype, values = np.dtype(like[name].dtype), array.numpy()
            with np.errstate(over="ignore"):
                array = Array(
                    _whole(values, dtype) if dtype.kind in "iub" else values.astype(dtype)
                )
        arrays[name] = array
    return ArrayRecord(arrays)


def _whole(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers rounded to whole ones; what is beyond the type is the most that it has."""
    if dtype.kind == "b":
        return np.asarray(np.rint(values), dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    # The largest of 64 bits is no float64: what reaches it is put there by hand.
    values = np.rint(values)
    within = np.clip(values, least, np.nextafter(float(most), 0.0))
    return np.asarray(np.where(values >= most, most, within.astype(dtype)), dtype)


def moved(layout: Layout, record: ArrayRecord, flat: np.ndarray) -> dict[str, Array]:
    """The arrays of θ + update, computed where they are written: no copy is made.

    Args:
      layout: that of the model.
      record: θ.
      flat: the update, as a flat vector.
    """
    sent, update = layout.views(record), layout.cut(flat)
    files = [blank(layer.shape, layer.dtype) for layer in layout.layers]
    after = [np.frombuffer(file.getbuffer(), layer.dtype, layer.size, file.tell())
             for file, layer in zip(files, layout.layers, strict=True)]  # fmt: skip

    def work(part: slice) -> None:
        with np.errstate(over="ignore"):  # what is not finite is not taken
            for i, cut, _ in segments(sent, part, sys.maxsize):
                np.add(sent[i][cut], update[i][cut], out=after[i][cut], casting="same_kind")

    in_parallel(work, layout.size)
    return {
        layer.name: Array(str(layer.dtype), layer.shape, "numpy.ndarray", file.getvalue())
        for file, layer in zip(files, layout.layers, strict=True)
    }

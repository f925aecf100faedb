"""Flower's records seen as the core sees weights: flat vectors, without a copy.

A record's *weights* are its floating-point arrays; they are measured, left out by a silent client
and stood in for. The *rest*, arrays of other types (counters), buffers, and those named in
`exclude`, always travels.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord

from taciturn.core.parallel import in_parallel
from taciturn.errors import InputError
from taciturn.flower.buffers import variances_of

_HEAD = 4096  # bytes in which the header of an array must lie
_LARGEST = 1e18  # as of norms: strategies square numbers of clients in float32
_SCRATCH = 1 << 19  # elements of all clients' blocks together: they stay in the cache
_LONGEST = 1 << 16  # elements of one client's block


def view(array: Array) -> np.ndarray:
    """The array as a flat vector in C order that shares the record's memory.

    `Array.numpy` copies: at fifty million weights that is most of a round. NumPy reads the header;
    nothing is unpickled, and nothing is allocated whatever the header says.
    """
    try:
        if array.stype != "numpy.ndarray":
            raise ValueError("it must be written by NumPy")
        head, shape, fortran, dtype = _read_head(array.data)
        flat = np.frombuffer(array.data, dtype, math.prod(shape), head.tell())
    except Exception as error:  # NumPy reads a header as Python, which fails in many ways
        raise InputError(f"An array cannot be read: {str(error)[:200]}.") from None
    if (shape, str(dtype)) != (tuple(array.shape), array.dtype):
        raise InputError(
            f"What is called {array.dtype} of shape {tuple(array.shape)} "
            f"is {dtype} of shape {shape}."
        )
    if fortran and len(shape) > 1:
        flat = flat.reshape(shape, order="F").reshape(-1)
    return flat if dtype.isnative else flat.astype(dtype.newbyteorder("="))


def _read_head(data: bytes) -> tuple[io.BytesIO, tuple[int, ...], bool, np.dtype[Any]]:
    """The header of a file of NumPy's, which was read up to its end, and what it says."""
    head = io.BytesIO(data[:_HEAD])
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError("it must be written by NumPy")
    return head, *np.lib.format.read_array_header_1_0(head)


def array_of(data: bytes) -> Array:
    """The array in a file of NumPy's."""
    _, shape, _, dtype = _read_head(data)
    return Array(str(dtype), shape, "numpy.ndarray", data)


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

    layers: tuple[Layer, ...]  # the weights, in the record's order
    rest: tuple[Layer, ...]  # the arrays that always travel
    averaged: frozenset[str]  # counters and buffers: they get their mean under every strategy
    variances: frozenset[str]  # those of the buffers that are

    @classmethod
    def of(
        cls, record: ArrayRecord, exclude: Sequence[str] = (), buffers: Sequence[str] = ()
    ) -> Layout:
        """The layout of the arrays in `record`; both others are names or patterns like `head.*`."""
        layers, rest, averaged = [], [], set()
        for name, array in record.items():
            layer = Layer(name, tuple(array.shape), np.dtype(array.dtype))
            is_buffer = _named(name, buffers)
            if layer.dtype.kind == "f" and not is_buffer and not _named(name, exclude):
                layers.append(layer)
                continue
            rest.append(layer)
            if is_buffer or layer.dtype.kind in "iub":
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

    def rest_of(self, record: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays in `record` that always travel."""
        return {layer.name: record[layer.name] for layer in self.rest if layer.name in record}

    def views(self, record: Mapping[str, Array]) -> list[np.ndarray]:
        """The weights of `record`, a flat vector per layer, or an error that says what differs."""
        found = []
        for layer in self.layers:
            found.append(vector := _checked(layer, record))
            if vector.dtype.kind != "f":
                raise InputError(f"`{layer.name}` must be floating-point, got {vector.dtype}.")
        return found

    def check_rest(self, record: Mapping[str, Array]) -> None:
        """Raises unless `record` has the arrays that always travel, of their shapes, and with
        numbers that are finite in the model's dtypes."""
        for layer in self.rest:
            values = _checked(layer, record)
            if values.dtype.kind not in "fiub":
                raise InputError(f"`{layer.name}` must hold numbers, got {values.dtype}.")
            if layer.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(layer.dtype)
                if not (np.abs(values) < _LARGEST).all():
                    raise InputError(f"`{layer.name}` must have finite numbers below 1e18 in size.")
            elif not np.isfinite(values).all():
                raise InputError(f"`{layer.name}` is not finite.")


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _checked(layer: Layer, record: Mapping[str, Array]) -> np.ndarray:
    """The array of this name as a flat vector, or an error where its shape differs."""
    shape = tuple(record[layer.name].shape)
    if shape != layer.shape:
        raise InputError(f"`{layer.name}` must have shape {layer.shape}, got {shape}.")
    return view(record[layer.name])


def _segments(
    layers: Sequence[np.ndarray], part: slice, most: int = sys.maxsize
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


def difference(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> np.ndarray:
    """The difference of two models, a vector per layer, as one flat vector of float32."""
    found = np.empty(sum(map(len, before)), np.float32)

    def work(part: slice) -> None:
        for i, cut, flat in _segments(before, part):
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
    """The norms of the clients' updates, from `sent` to `trained`, which are a vector per layer.

    The weighted sum of the updates goes to `out`, a flat vector. It is one pass over memory, in
    `dtype`: a block of every client's update stays in the cache while it is measured and summed.
    """
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

    if not count:
        if out is not None:
            out.fill(0)
        return []
    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(sum(in_parallel(work, sum(map(len, sent)))))]


def _empty_file(layer: Layer) -> io.BytesIO:
    """A file of NumPy's for an array, at the place where its numbers go; these are 0."""
    head = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(layer.dtype), "fortran_order": False,
             "shape": layer.shape}  # fmt: skip
    np.lib.format.write_array_header_1_0(head, about)
    file = io.BytesIO(bytes(head.tell() + layer.size * layer.dtype.itemsize))
    file.write(head.getvalue())
    return file


def moved(layout: Layout, record: ArrayRecord, flat: np.ndarray) -> dict[str, Array]:
    """The weights of `record` moved by an update, computed in the bytes that are sent: no copy."""
    sent, files = layout.views(record), [_empty_file(layer) for layer in layout.layers]
    after = [np.frombuffer(file.getbuffer(), layer.dtype, layer.size, file.tell())
             for file, layer in zip(files, layout.layers, strict=True)]  # fmt: skip

    def work(part: slice) -> None:
        with np.errstate(over="ignore"):  # what is not finite is not taken
            for i, cut, at in _segments(sent, part):
                np.add(sent[i][cut], flat[at], out=after[i][cut], casting="same_kind")

    in_parallel(work, layout.size)
    after.clear()  # once nobody looks into these bytes, `getvalue` hands them out without a copy
    return {
        layer.name: Array(str(layer.dtype), layer.shape, "numpy.ndarray", file.getvalue())
        for file, layer in zip(files, layout.layers, strict=True)
    }


def cast(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """`record` with the dtypes of `like`.

    Averaging turns integers into float64, and Flower's FedAdam and FedYogi turn float32 into
    float64: the next round would send twice the bytes.
    """
    return ArrayRecord({
        name: Array(_cast(array.numpy(), np.dtype(like[name].dtype)))
        if name in like and array.dtype != like[name].dtype else array
        for name, array in record.items()
    })  # fmt: skip


def _cast(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers as `dtype`: whole ones are rounded, and stop at the most that the type holds."""
    if dtype.kind not in "iub":
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    values = np.rint(values)
    if dtype.kind == "b":
        return values.astype(dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    # The largest of 64 bits is no float64: what reaches it is put there by hand.
    within = np.clip(values, least, np.nextafter(float(most), 0.0))
    return np.asarray(np.where(values >= most, most, within.astype(dtype)), dtype)

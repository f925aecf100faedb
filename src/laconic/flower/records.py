"""Flower's records seen as the core sees weights: flat vectors, without a copy.

A record's *weights* are its floating-point arrays; they are measured, left out by a silent client
and stood in for. The *rest*, arrays of other types (counters, BatchNorm's integer buffers) and
those named in `exclude`, always travels.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK

from laconic.core.arrays import Array as Vector
from laconic.errors import InputError

_SCRATCH = 1 << 17  # elements of all clients' blocks together: half a second-level cache
_WORKERS = min(4, os.cpu_count() or 1)


def view(array: Array) -> np.ndarray:
    """The array as a flat NumPy vector in C order that shares the record's memory.

    `Array.numpy` copies twice; at fifty million weights that is most of a round.
    """
    if array.stype != "numpy.ndarray":
        raise InputError(f"Arrays must be written by NumPy, got {array.stype!r}.")
    head = io.BytesIO(array.data[:4096])
    try:
        version = np.lib.format.read_magic(head)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(head)
        flat = np.frombuffer(array.data, dtype, math.prod(shape), head.tell())
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"An array cannot be read: {error}.") from None
    if shape != tuple(array.shape):
        raise InputError(f"An array of shape {tuple(array.shape)} holds one of shape {shape}.")
    if fortran and len(shape) > 1:
        flat = flat.reshape(shape, order="F").reshape(-1)
    return flat if dtype.isnative else flat.astype(dtype.newbyteorder("="))


class Layer(NamedTuple):
    """Where an array lies in the flat vector of weights."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    size: int


class Layout(NamedTuple):
    """How a model's arrays make up one flat vector.

    Attributes:
      layers: the weights, in the record's order.
      rest: name, shape and dtype of every array that always travels.
    """

    layers: tuple[Layer, ...]
    rest: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]

    @classmethod
    def of(cls, record: ArrayRecord, exclude: Sequence[str] = ()) -> Layout:
        """The layout of the arrays in `record`; `exclude` are names or patterns like `head.*`."""
        layers, rest, start = [], [], 0
        for name, array in record.items():
            shape, dtype = tuple(array.shape), np.dtype(array.dtype)
            if dtype.kind == "f" and not any(fnmatchcase(name, pattern) for pattern in exclude):
                layers.append(Layer(name, shape, dtype, start, math.prod(shape)))
                start += math.prod(shape)
            else:
                rest.append((name, shape, dtype))
        return cls(tuple(layers), tuple(rest))

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

    def views(self, record: Mapping[str, Array]) -> list[np.ndarray]:
        """The weights of `record`, a flat vector a layer, or an error that says what differs."""
        found = []
        for layer in self.layers:
            array = record[layer.name]
            _check(layer.name, array, layer.shape)
            if np.dtype(array.dtype).kind != "f":
                raise InputError(f"`{layer.name}` must be floating-point, got {array.dtype}.")
            found.append(view(array))
        return found

    def check_rest(self, record: Mapping[str, Array]) -> None:
        """Raises unless `record` has the arrays that always travel, finite and of their shapes."""
        for name, shape, _ in self.rest:
            _check(name, record[name], shape)
            values = view(record[name])
            if values.dtype.kind not in "fiub":
                raise InputError(f"`{name}` must hold numbers, got {values.dtype}.")
            if not np.isfinite(values).all():
                raise InputError(f"`{name}` is not finite.")


def _check(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if tuple(array.shape) != shape:
        raise InputError(f"`{name}` must have shape {shape}, got {tuple(array.shape)}.")


def cast(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """`record` with the dtypes of `like`.

    Averaging turns integers into float64, and Flower's FedAdam and FedYogi turn float32 into
    float64: the next round would send twice the bytes.
    """
    arrays = {}
    for name, array in record.items():
        if name in like and array.dtype != like[name].dtype:
            dtype, values = np.dtype(like[name].dtype), array.numpy()
            array = Array((np.rint(values) if dtype.kind in "iub" else values).astype(dtype))
        arrays[name] = array
    return ArrayRecord(arrays)


def norm(before: Iterable[np.ndarray], after: Iterable[np.ndarray], dtype: Any) -> float:
    """The norm of the difference of two lists of vectors, in blocks: nothing is copied."""
    norms, _ = sum_up(list(before), [list(after)], None, dtype)
    return norms[0]


def sum_up(
    sent: Sequence[Vector],
    trained: Sequence[Sequence[Vector]],
    examples: Sequence[float] | None,
    dtype: Any,
) -> tuple[list[float], np.ndarray | None]:
    """The norms of the clients' updates and their sum Σ n·Δ, in one pass over memory.

    A block of every client's weights is turned into updates that stay in the cache while they are
    measured and summed.

    Args:
      sent: the weights that the clients were sent, a vector a layer.
      trained: what each client made of them.
      examples: n_k, one a client; None where the sum is not needed.
      dtype: that of the sum.

    Returns:
      m_k = ‖Δ_k‖, one a client, and Σ n·Δ or None.
    """
    size, count = sum(len(layer) for layer in sent), len(trained)
    total = None if examples is None else np.empty(size, dtype)
    shares = None if examples is None else np.asarray(examples, dtype)
    block = max(1024, _SCRATCH // max(count, 1))
    pieces, start = [], 0
    for i, layer in enumerate(sent):
        pieces += [(i, low, start + low) for low in range(0, len(layer), block)]
        start += len(layer)

    def work(pieces: list[tuple[int, int, int]]) -> np.ndarray:
        scratch = np.empty((count, block), dtype)
        squares = np.zeros(count)
        # A client that overflows has a norm that is not finite, and is rejected for it.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, low, at in pieces:
                base = sent[i][low : low + block]
                updates = scratch[:, : len(base)]
                for k in range(count):
                    np.subtract(trained[k][i][low : low + block], base, out=updates[k], dtype=dtype)
                squares += np.vecdot(updates, updates)
                if total is not None and shares is not None:
                    np.matmul(shares, updates, out=total[at : at + len(base)])
        return squares

    if total is not None and not count:
        total[:] = 0
    workers = min(_WORKERS, len(pieces) // 8)
    if workers < 2:
        squares = work(pieces)
    else:
        cuts = [pieces[i * len(pieces) // workers : (i + 1) * len(pieces) // workers]
                for i in range(workers)]  # fmt: skip
        with ThreadPoolExecutor(workers) as pool:
            squares = sum(pool.map(work, cuts), np.zeros(count))
    with np.errstate(invalid="ignore"):
        return [float(x) for x in np.sqrt(squares)], total


def moved(layout: Layout, sent: Sequence[Vector], step: Any, scale: float) -> dict[str, Array]:
    """The arrays of θ + scale·Δ̂, where `step(start, stop)` gives a part of Δ̂."""
    arrays = {}
    for layer, before in zip(layout.layers, sent, strict=True):
        after = np.empty(layer.size, layer.dtype)
        for low in range(0, layer.size, 1 << 15):
            high = min(low + (1 << 15), layer.size)
            with np.errstate(over="ignore", invalid="ignore"):
                expected = step(layer.start + low, layer.start + high)
            after[low:high] = before[low:high] + scale * expected
        arrays[layer.name] = Array(after.reshape(layer.shape))
    return arrays


def payload(record: Mapping[str, Array]) -> int:
    """Bytes of the arrays' data alone."""
    return sum(len(array.data) for array in record.values())


def written_size(message: Message) -> int:
    """How many bytes Flower writes for a message: it and all objects in it, as they are sent.

    Flower sends objects by the hash of their bytes; hashing them only to know their size would
    double the work of a round, and the size of a hash is known.
    """
    if message.has_error():
        return len(message.deflate())
    shell = Message(content=RecordDict(), metadata=message.metadata)
    total = len(shell.deflate()) + _object("RecordDict", message.content, _references)
    for record in message.content.values():
        total += (
            written_record(record) if isinstance(record, ArrayRecord) else len(record.deflate())
        )
    return total


def written_record(record: ArrayRecord) -> int:
    """How many bytes Flower writes for an array record and all that is in it."""
    total = _object("ArrayRecord", record, _references)
    for array in record.values():
        lengths = [min(CHUNK, len(array.data) - low) for low in range(0, len(array.data), CHUNK)]
        about = {"dtype": array.dtype, "shape": array.shape, "stype": array.stype,
                 "arraychunk_ids": list(range(len(lengths)))}  # fmt: skip
        total += _object("Array", lengths, lambda _, about=about: len(json.dumps(about)))
        total += sum(_head("ArrayChunk", 0, length) + length for length in lengths)
    return total


def _references(names: Iterable[str]) -> int:
    return len(json.dumps(dict.fromkeys(names, "0" * 64)))


def _object(kind: str, children: Any, body: Any) -> int:
    length: int = body(children)
    return _head(kind, len(children), length) + length


def _head(kind: str, children: int, body: int) -> int:
    return len(f"{kind} {','.join(['0' * 64] * children)} {body}") + 1

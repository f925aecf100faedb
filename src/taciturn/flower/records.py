"""Flower's records as plain arrays, without a copy, and back; and how many bytes Flower writes.

Flower sends objects under the hash of their bytes. Hashing them only to count would double the work
of a round; but the length of a hash is known.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK

from taciturn.errors import InputError
from taciturn.federation import layout

_HEAD = 4096  # bytes in which the header of an array must lie


def arrays_of(record: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """The arrays of a record, which share its memory."""
    return {name: view(array) for name, array in record.items()}


def record_of(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """A record of these arrays."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def view(array: Array) -> np.ndarray:
    """The array of a record, which shares its memory: at fifty million weights a copy, as of
    `Array.numpy`, is most of a round. NumPy reads the header; nothing is unpickled, and nothing is
    allocated whatever the header says."""
    try:
        if array.stype != "numpy.ndarray":
            raise ValueError("it must be written by NumPy")
        start, shape, fortran, dtype = _head_of(array.data)
        flat = np.frombuffer(array.data, dtype, math.prod(shape), start)
    except Exception as error:  # NumPy reads a header as Python, which fails in many ways
        raise InputError(f"An array cannot be read: {str(error)[:200]}.") from None
    if (shape, str(dtype)) != (tuple(array.shape), array.dtype):
        raise InputError(
            f"What is called {array.dtype} of shape {tuple(array.shape)} "
            f"is {dtype} of shape {shape}."
        )
    return flat.reshape(shape, order="F" if fortran else "C")


def _head_of(data: bytes) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """How long the header of a file of NumPy's is, and what it says."""
    head = io.BytesIO(data[:_HEAD])
    if np.lib.format.read_magic(head) != (1, 0):
        raise ValueError("it must be written by NumPy")
    said = np.lib.format.read_array_header_1_0(head)
    return head.tell(), *said


def array_of(data: bytes) -> Array:
    """The array in a file of NumPy's."""
    _, shape, _, dtype = _head_of(data)
    return Array(str(dtype), shape, "numpy.ndarray", data)


def moved(model: layout.Layout, record: Mapping[str, Array], flat: np.ndarray) -> dict[str, Array]:
    """The weights of `record` moved by an update, written array by array: no second model lies in
    memory."""
    found, weights = {}, model.views(arrays_of(record))
    for (layer, part), before in zip(model.parts(flat), weights, strict=True):
        with np.errstate(over="ignore"):  # what is not finite is not taken
            after = np.add(before, part, casting="same_kind", dtype=layer.dtype)
        found[layer.name] = Array(after.reshape(layer.shape))
    return found


def cast(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """`record` with the dtypes of `like`: averaging turns integers into float64, and FedAdam and
    FedYogi float32 as well, so that the next round would send twice the bytes."""
    return ArrayRecord({
        name: Array(layout.cast(view(array), np.dtype(like[name].dtype)))
        if name in like and array.dtype != like[name].dtype else array
        for name, array in record.items()
    })  # fmt: skip


def payload(record: Mapping[str, Array]) -> int:
    """Bytes of the arrays' data alone."""
    return sum(len(array.data) for array in record.values())


def message_bytes(message: Message, arrays: Mapping[str, int] | None = None) -> int:
    """How many bytes Flower writes for a message and all objects in it, or for one whose array
    records had these names and numbers of bytes. Objects with the same bytes are sent once, and
    counted as often as they occur."""
    if message.has_error():
        return len(message.deflate())
    content, shell = message.content, Message(content=RecordDict(), metadata=message.metadata)
    if arrays is None:
        arrays = {name: record_bytes(part) for name, part in content.array_records.items()}
    others = {name: len(record.deflate()) for name, record in content.items()
              if not isinstance(record, ArrayRecord)}  # fmt: skip
    references = _references("RecordDict", {*others, *arrays})
    return len(shell.deflate()) + references + sum(others.values()) + sum(arrays.values())


def record_bytes(record: ArrayRecord) -> int:
    """How many bytes Flower writes for an array record and all that is in it."""
    total = _references("ArrayRecord", record)
    for array in record.values():
        lengths = [min(CHUNK, len(array.data) - low) for low in range(0, len(array.data), CHUNK)]
        about = {"dtype": array.dtype, "shape": array.shape, "stype": array.stype,
                 "arraychunk_ids": list(range(len(lengths)))}  # fmt: skip
        total += _object("Array", len(lengths), len(json.dumps(about)))
        total += sum(_object("ArrayChunk", 0, length) for length in lengths)
    return total


def _references(kind: str, names: Iterable[str]) -> int:
    """The bytes of an object that refers to children by name."""
    children = dict.fromkeys(names, "0" * 64)
    return _object(kind, len(children), len(json.dumps(children)))


def _object(kind: str, children: int, body: int) -> int:
    """The bytes of an object with so many children and bytes of its own."""
    return len(f"{kind} {','.join(['0' * 64] * children)} {body}") + 1 + body

"""How many bytes Flower writes for a message.

Flower sends objects under the hash of their bytes. Hashing them only to count would
double the work of a round; but the length of a hash is known.
"""

import json
from collections.abc import Iterable, Mapping

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK


def payload(record: Mapping[str, Array]) -> int:
    """Bytes of the arrays' data alone."""
    return sum(len(array.data) for array in record.values())


def message_bytes(message: Message) -> int:
    """How many bytes Flower writes for a message: it and all objects in it, as they are sent.

    Objects with the same bytes are sent once; they are counted as often as they occur.
    """
    if message.has_error():
        return len(message.deflate())
    arrays = message.content.array_records
    return message_bytes_with(message, {name: record_bytes(part) for name, part in arrays.items()})


def message_bytes_with(message: Message, arrays: Mapping[str, int]) -> int:
    """The bytes of a message whose array records had these names and these numbers of bytes."""
    shell = Message(content=RecordDict(), metadata=message.metadata)
    others = {name: record for name, record in message.content.items()
              if not isinstance(record, ArrayRecord)}  # fmt: skip
    total = len(shell.deflate()) + _references("RecordDict", {*others, *arrays})
    return total + sum(len(record.deflate()) for record in others.values()) + sum(arrays.values())


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

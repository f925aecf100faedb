"""What strategy and mod tell each other: a record in the request, and an entry in the reply.

Each record of a message costs 150 bytes in Flower: a reply has the app's metrics, the mod's numbers
and the code in one ConfigRecord, because only these hold bytes. Names of metrics travel once: a
request has those of the round before, and a client that reports the same sends numbers alone. A
node asks for each array with 2 kB of HTTP headers: those with the mod are sent many as one.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK

from taciturn.errors import InputError
from taciturn.federation.protocol import Report, Request, unpack
from taciturn.federation.replies import Reply
from taciturn.flower import records

REQUEST = "taciturn"  # the ConfigRecord of a request
REPORT = ""  # the entry of a reply's metrics: a `Report`, metrics of a known form, and the code
PACKED = ""  # the name of the record with the metrics, where these are of the known form
CODE = "taciturn.code"  # the array with a code that is too long for one of Flower's objects
HAS = "taciturn.has"  # the entry of a reply's metrics that `downlink.py` writes
REMARK = "taciturn.remark"  # the ConfigRecord of a reply that is not as it was asked for
_FORM = "form"  # the entry of a request: metrics that were heard last, as `form_of` has it
_MODEL = "taciturn.model"  # the array that stands for all of a request
_MANY = 16  # arrays
_TYPES = {int: "i", float: "d"}  # of metrics, as `struct` writes them


def ask(message: Message, asked: Request, form: tuple[str, ...] = ()) -> Message:
    """The inner strategy's message, with the request in it."""
    record = ConfigRecord({**asked.written(), _FORM: list(form)})
    # Messages may share their content: it is copied.
    content = RecordDict({**message.content, REQUEST: record})
    return Message(content=content, metadata=message.metadata)


def joined(message: Message, known: dict[int, ArrayRecord]) -> Message:
    """The request with its arrays as one, if they are many; `known` has those made before."""
    found = message.content.array_records
    if len(found) != 1 or len(arrays := next(iter(found.values()))) <= _MANY:
        return message
    (name,) = found
    if id(arrays) not in known:
        data = b"".join(array.data for array in arrays.values())
        known[id(arrays)] = ArrayRecord({_MODEL: Array("bytes", (len(data),), "joined", data)})
    request = ConfigRecord({
        **message.content.config_records[REQUEST], "arrays": list(arrays),
        "lengths": [len(array.data) for array in arrays.values()],
    })  # fmt: skip
    content = RecordDict({**message.content, name: known[id(arrays)], REQUEST: request})
    return Message(content=content, metadata=message.metadata)


def separate(content: RecordDict, record: Mapping[str, Any]) -> None:
    """Puts the arrays of a request that came as one back into their places."""
    if "lengths" not in record:
        return
    name, sent = next(iter(content.array_records.items()))
    data, end, arrays = memoryview(sent[_MODEL].data), 0, {}
    for key, length in zip(record["arrays"], record["lengths"], strict=True):
        arrays[key] = records.array_of(bytes(data[end : end + length]))
        end += length
    content[name] = ArrayRecord(arrays)


def form_of(name: str, metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """A record's name, the types of its metrics and their names; () where a metric is a list, or
    too large for 32 bits."""
    types = "".join(_TYPES.get(type(value), "") for value in metrics.values())
    small = all(abs(value) < 2**31 for value in metrics.values() if isinstance(value, int))
    return (name, types, *metrics) if small and len(types) == len(metrics) else ()


def write_report(
    content: RecordDict, report: Report, code: bytes = b"", form: tuple[str, ...] = ()
) -> None:
    """Adds a report, and the code of who speaks, to the app's metrics in a reply. Metrics of the
    `form` that the server knows are written without their names."""
    name, metrics = next(iter(content.metric_records.items()))
    if len(code) > CHUNK:
        arrays = next(iter(content.array_records), "arrays")
        long = {CODE: Array(np.frombuffer(code, np.uint8))}
        content[arrays] = ArrayRecord({**content.get(arrays, {}), **long})
        code = b""
    del content[name]  # Flower warns of records that are written over
    packed = report.packed()
    if form and form_of(name, metrics) == form:
        packed += struct.pack(f"<{form[1]}", *metrics.values())
        name, metrics = PACKED, {}
    content[name] = ConfigRecord({**metrics, REPORT: packed + code})


def metrics_of(content: RecordDict) -> dict[str, Any]:
    """The records with metrics in a reply: an app's, or what `write_report` made of it."""
    return {name: record for name, record in content.items()
            if isinstance(record, MetricRecord)
            or (isinstance(record, ConfigRecord) and REPORT in record)}  # fmt: skip


def read_reply(reply: Reply, content: RecordDict, form: tuple[str, ...] = ()) -> Any:
    """What a node has of the public model; the rest of what it says to a request with this `form`
    is put into `reply`. Raises an `InputError` that says what is wrong with it."""
    found = metrics_of(content)
    if len(found) != 1 or len(content.array_records) > 1:
        raise InputError(
            f"It must have one record of metrics and at most one of arrays, got {len(found)} and "
            f"{len(content.array_records)}."
        )
    name, metrics = next((name, dict(record)) for name, record in found.items())
    has = metrics.pop(HAS, None)
    if REPORT in metrics:
        types = form[1] if name == PACKED and form else ""
        reply.report, values, reply.code = unpack(metrics.pop(REPORT), types)
        if types:
            name, metrics = form[0], dict(zip(form[2:], values, strict=True))
    try:
        reply.name, reply.metrics = name, dict(MetricRecord(metrics))
    except TypeError as error:
        raise InputError(f"Its metrics must be numbers: {error}") from None
    arrays = records.arrays_of(next(iter(content.array_records.values()), {}))
    if reply.report is not None and CODE in arrays and not reply.code:
        if (long := arrays.pop(CODE)).dtype != np.uint8:
            raise InputError(f"A code must be an array of bytes, got {long.dtype}.")
        reply.code = long.tobytes()
    reply.arrays = arrays
    if (remark := content.config_records.get(REMARK)) is not None:
        reply.remark = f"{remark.get('problem')}"[:300]
    return has

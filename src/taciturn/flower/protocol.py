"""What strategy and mod tell each other: a record in the request, and an entry in the reply.

A client that cannot read what it is asked, such as one of another version, sends its weights whole,
says why, and the round goes on.

Each record of a message costs 150 bytes in Flower. A reply therefore has the app's metrics, the
mod's numbers and the code in one: a ConfigRecord, because only these hold bytes. Names of metrics
travel once: a request has those that the server heard in the round before, and a client that
reports the same sends numbers alone. And a node asks for each array of a model by itself, with 2 kB
of HTTP headers: clients that are known to have the mod are sent many arrays as one.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK

from taciturn import __version__
from taciturn.core.codecs import Codec, float32
from taciturn.core.hashing import fold
from taciturn.core.policy import parse_part, spell
from taciturn.core.rules import Rule
from taciturn.errors import InputError
from taciturn.flower import records

VERSION = 6

REQUEST = "taciturn"  # the ConfigRecord of a request
REPORT = ""  # the entry of a reply's metrics: a `Report`, metrics of a known form, and the code
PACKED = ""  # the name of the record with the metrics, where these are of the known form
CODE = "taciturn.code"  # the array with a code that is too long for one of Flower's objects
HAS = "taciturn.has"  # the entry of a reply's metrics that `downlink.py` writes
REMARK = "taciturn.remark"  # the ConfigRecord of a reply that is not as it was asked for
_MODEL = "taciturn.model"  # the array that stands for all of a request
_MANY = 16  # arrays
_CONTEXT = "context."  # begins the names of what the rule broadcasts
_AS_THEY_ARE = ("weighted_by", "seed", "round", "silence", "accepted")  # fields of a `Request`
_TYPES = {int: "i", float: "d"}  # of metrics, as `struct` writes them


def key_of(seed: int, *numbers: int) -> np.ndarray:
    """The two words that a codec draws from, made of the run's seed and these numbers."""
    words = np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32)
    for number in numbers:
        words = fold(words, number)
    return words


@dataclass(frozen=True)
class Request:
    """What a client is asked."""

    rule: Rule  # who speaks, and what the server broadcasts
    context: Any
    codec: Codec  # how the weights are written; with `float32` they stay as they are
    exclude: tuple[str, ...]  # names of arrays, or patterns, that are always sent
    weighted_by: str  # the metric that has n_k
    seed: int  # what the codec's key is made of; rounds are counted over all starts of a run
    round: int
    silence: int = 0  # how many times in a row the server heard this client's silence
    accepted: int = 0  # the last round in which the server took what this client said
    form: tuple[str, ...] = ()  # of the metrics that the server heard last, as `form_of` has it

    @property
    def coded(self) -> bool:
        return self.codec != float32()

    def codec_of(self, nbytes: int) -> Codec:
        """What a code of so many bytes is written in."""
        return self.codec if self.rule.nbytes is None else self.codec.at(nbytes)

    def key(self, node: int) -> np.ndarray:
        """The words that a node's codec draws from."""
        return key_of(self.seed, self.round, node, node >> 32)


def ask(message: Message, asked: Request) -> Message:
    """The inner strategy's message, with the request in it."""
    record = ConfigRecord({
        "protocol": VERSION, "version": __version__, "rule": spell(asked.rule),
        "codec": spell(asked.codec), "exclude": list(asked.exclude), "form": list(asked.form),
        **{name: getattr(asked, name) for name in _AS_THEY_ARE},
        **{_CONTEXT + name: float(value) for name, value in asked.context._asdict().items()},
    })  # fmt: skip
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


def read_request(record: Mapping[str, Any]) -> Request:
    """The request in a record, or an `InputError` that says what is not understood."""
    if (version := record.get("protocol")) != VERSION:
        raise InputError(
            f"the server, taciturn {record.get('version')}, speaks version {version} of the "
            f"protocol, this node speaks {VERSION}"
        )
    rule = parse_part("rule", record["rule"])
    first = rule.broadcast(rule.init(1, 1), 1)  # the type of the context
    context = {name: record.get(_CONTEXT + name) for name in first._fields}
    if missing := [name for name, value in context.items() if value is None]:
        raise InputError(
            f"`{rule.name}` needs the numbers {missing}, which the server did not send"
        )
    return Request(
        rule, first._replace(**context), parse_part("codec", record["codec"]),
        tuple(record["exclude"]), form=tuple(record["form"]),
        **{name: record[name] for name in _AS_THEY_ARE},
    )  # fmt: skip


class Report(NamedTuple):
    """What the mod says of a client's update."""

    norm: float  # m_k
    encoded_norm: float  # that of what was encoded, with feedback; else m_k
    probability: float = 1.0  # how likely the server's rule let the client speak
    own: float = 1.0  # how likely a rule of the client's own did


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
        content[arrays] = ArrayRecord(
            {**content.get(arrays, {}), CODE: Array(np.frombuffer(code, np.uint8))}
        )
        code = b""
    del content[name]  # Flower warns of records that are written over
    packed = _pack(report)
    if form and form_of(name, metrics) == form:
        packed += struct.pack(f"<{form[1]}", *metrics.values())
        name, metrics = PACKED, {}
    content[name] = ConfigRecord({**metrics, REPORT: packed + code})


def _pack(report: Report) -> bytes:
    """How many numbers a report has up to the last that is not as usual, and these."""
    usual = Report(report.norm, report.norm)
    count = max(i for i in range(1, 5) if i == 1 or report[i - 1] != usual[i - 1])
    return struct.pack(f"<B{count}d", count, *report[:count])


def _unpack(packed: Any, types: str) -> tuple[Report, tuple[Any, ...], bytes]:
    """The report, the metrics of these types, and the code."""
    try:
        count = packed[0]
        numbers = struct.unpack_from(format := f"<B{count}d{types}", packed)
        norm, end = numbers[1], count + 1
        report = Report(*numbers[1:end], *Report(norm, norm)[count:])
    except (struct.error, TypeError, IndexError):
        raise InputError("Its report cannot be read.") from None
    return report, numbers[end:], packed[struct.calcsize(format) :]


def metrics_of(content: RecordDict) -> dict[str, Any]:
    """The records with metrics in a reply: an app's, or what `write_report` made of it."""
    return {name: record for name, record in content.items()
            if isinstance(record, MetricRecord)
            or (isinstance(record, ConfigRecord) and REPORT in record)}  # fmt: skip


class Said(NamedTuple):
    """What a reply says beside its arrays."""

    name: str  # that of the record with the metrics
    metrics: MetricRecord  # what the app reported
    report: Report | None  # what the mod says; None from a client without it
    code: bytes  # of the update; none in silence, in an array, and from one that sent it whole
    has: Any  # what the node says that it has of the public model


def read_said(content: RecordDict, form: tuple[str, ...] = ()) -> Said:
    """What a reply to a request with this `form` says, or an `InputError` that says what is wrong
    with it."""
    records = metrics_of(content)
    if len(records) != 1 or len(content.array_records) > 1:
        raise InputError(
            f"It must have one record of metrics and at most one of arrays, got {len(records)} and "
            f"{len(content.array_records)}."
        )
    name, metrics = next((name, dict(record)) for name, record in records.items())
    has, report, code = metrics.pop(HAS, None), None, b""
    if REPORT in metrics:
        types = form[1] if name == PACKED and form else ""
        report, values, code = _unpack(metrics.pop(REPORT), types)
        if types:
            name, metrics = form[0], dict(zip(form[2:], values, strict=True))
    try:
        found = MetricRecord(metrics)
        for key, value in found.items():
            if not np.isfinite(value).all():
                raise InputError(f"The metric `{key}` must be finite, got {value!r}.")
    except TypeError as error:
        raise InputError(f"Its metrics must be numbers: {error}") from None
    return Said(name, found, report, code, has)


def remark(content: RecordDict, problem: object) -> None:
    """Adds to a reply why it is not as it was asked for."""
    text = f"{problem}".rstrip(".")
    content[REMARK] = ConfigRecord({"problem": f"{text} (taciturn {__version__})"})


def read_remark(content: RecordDict) -> str | None:
    """Why a reply is not as it was asked for, if it says so."""
    record = content.config_records.get(REMARK)
    return None if record is None else f"{record.get('problem')}"[:300]

"""Replies of clients: read with suspicion, and made complete for the inner strategy."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from taciturn.core.codecs import Codec, float32
from taciturn.errors import InputError
from taciturn.flower import protocol
from taciturn.flower.buffers import not_negative
from taciturn.flower.npy import view
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout


@dataclass
class Reply:
    """A reply that can be read.

    Attributes:
      message: as it came.
      arrays: all that came.
      weights: those of a client that sent them whole, a flat vector per layer.
      code: the bytes of one that sent its update in a codec.
      metrics: what the app reported, without what the mod added.
      name: that of the record with them.
      examples: n_k, what it weighs; `hearing` bounds it.
      norm: m_k; None from a client without the mod, which always speaks.
      encoded_norm: that of what was encoded, where it is not m_k.
      probability: how likely the client was to speak; 1 where the rule does not say.
      codec: what its code is written in.
      remark: why the reply is not as it was asked for.
      decoded_norm: that of what was decoded, over how much the codec stretches dense updates.
      update: what was decoded, where it is needed again.
      scale: by which its update is made shorter.
    """

    message: Message
    arrays: Mapping[str, Array]
    weights: list[np.ndarray] | None
    code: bytes | None
    metrics: MetricRecord
    name: str
    examples: float
    norm: float | None
    encoded_norm: float | None
    probability: float
    codec: Codec
    remark: str | None
    decoded_norm: float = 0.0
    update: np.ndarray | None = None
    scale: float = 1.0

    @property
    def node(self) -> int:
        return int(self.message.metadata.src_node_id)

    @property
    def spoke(self) -> bool:
        return self.weights is not None or self.code is not None

    @property
    def weight(self) -> float:
        """What it weighs: n/p with the update of one who spoke, n where something stands in."""
        return self.examples / self.probability if self.spoke else self.examples

    @property
    def length(self) -> float:
        """The norm of what is added to the sum, by what the client says and by what was decoded."""
        return max(self.norm or 0.0, self.encoded_norm or 0.0, self.decoded_norm)

    @property
    def form(self) -> tuple[Any, ...]:
        """What all replies must agree in: Flower's strategies fail the run where they do not."""
        lengths = ((key, len(value) if isinstance(value, list) else None)
                   for key, value in sorted(self.metrics.items()))  # fmt: skip
        return (self.name, *lengths)


def read(message: Message, layout: Layout, weighted_by: str, request: Request) -> Reply:
    """The reply in a message, or an `InputError` that says what is wrong with it."""
    name, reported = _metrics(message)
    content = message.content
    norm = reported.get(protocol.NORM)
    # Without feedback it is the same; who says another one would be measured by it.
    encoded_norm = reported.get(protocol.ENCODED_NORM) if request.codec.feedback else None
    examples, chance = reported.get(weighted_by), 1.0
    if request.rule.probability is not None:
        chance = reported.get(protocol.PROBABILITY, 1.0)
        if isinstance(chance, list) or not 1e-6 <= chance <= 1:
            raise InputError(f"The probability must be in [1e-6, 1], got {chance!r}.")
    _check_weight(weighted_by, examples, chance)
    for value in (norm, encoded_norm):
        if value is not None and (isinstance(value, list) or not 0 <= value < 1e18):
            raise InputError(f"The norm of its update must be in [0, 1e18), got {value!r}.")
    arrays = next(iter(content.array_records.values()), ArrayRecord())
    rest = [name for name, _, _ in layout.rest]
    coded = request.coded and protocol.CODE in arrays
    whole = not coded and (norm is None or any(name in arrays for name in layout.names))
    expected = [*(layout.names if whole else []), *rest, *([protocol.CODE] if coded else [])]
    if set(arrays) != set(expected):
        raise InputError(f"Its arrays must be {sorted(expected)}, got {sorted(arrays)}.")
    if coded and norm is None:
        raise InputError("It has a code, and does not say the norm of its update.")
    layout.check_rest(arrays)
    code = _bytes(arrays[protocol.CODE]) if coded else None
    return Reply(
        message,
        arrays,
        layout.views(arrays) if whole else None,
        code,
        protocol.without_reported(reported),
        name,
        float(examples),
        None if norm is None else float(norm),
        None if encoded_norm is None else float(encoded_norm),
        float(chance),
        _codec(request, code),
        protocol.read_remark(content),
    )


def read_evaluation(message: Message, weighted_by: str) -> Reply:
    """The reply of a client that evaluated, which is one with metrics alone."""
    name, reported = _metrics(message)
    _check_weight(weighted_by, reported.get(weighted_by))
    reported = protocol.without_reported(reported)
    return Reply(
        message, {}, [], None, reported, name, float(reported[weighted_by]), None, None, 1.0,
        float32(), None,
    )  # fmt: skip


def _metrics(message: Message) -> tuple[str, MetricRecord]:
    """The metrics in a reply and their name."""
    content = message.content
    if len(content.metric_records) != 1 or len(content.array_records) > 1:
        raise InputError(
            f"It must have one MetricRecord and at most one ArrayRecord, "
            f"got {len(content.metric_records)} and {len(content.array_records)}."
        )
    name, reported = next(iter(content.metric_records.items()))
    for key, value in reported.items():
        if not np.isfinite(value).all():
            raise InputError(f"The metric `{key}` must be finite, got {value!r}.")
    return name, reported


def _check_weight(name: str, examples: Any, chance: float = 1.0) -> None:
    # Within these bounds, sums over clients stay finite in float32.
    if examples is None or isinstance(examples, list) or not 1e-18 < examples / chance < 1e18:
        raise InputError(f"`{name}` must be in (1e-18, 1e18), got {examples!r}.")


def _codec(request: Request, code: bytes | None) -> Codec:
    """What a code is written in: where a client chooses how long it is, that of this length."""
    if code is None or request.rule.nbytes is None:
        return request.codec
    return request.codec.at(len(code))


def _bytes(array: Array) -> bytes:
    values = view(array)
    if values.dtype != np.uint8:
        raise InputError(f"A code must be an array of bytes, got {values.dtype}.")
    return values.tobytes()


@dataclass
class Details:
    """What a reply to the inner strategy holds beside the weights.

    Attributes:
      examples: how much it weighs in the mean.
      metrics: what it reports.
      name: that of the record with them.
      rest: the arrays that always travel.
    """

    examples: float
    metrics: MetricRecord
    name: str
    rest: Mapping[str, Array]


def details(reply: Reply, layout: Layout) -> Details:
    """What a client's own reply holds beside the weights; no variance in it is below 0."""
    rest = {name: reply.arrays[name] for name, _, _ in layout.rest}
    rest |= {name: not_negative(rest[name]) for name in layout.variances}
    return Details(reply.examples, reply.metrics, reply.name, rest)


def mean(parts: Sequence[Details], examples: float | None = None) -> Details:
    """Several as one, weighted; it weighs what they do together, or `examples`."""
    total = sum(part.examples for part in parts)
    metrics, rest = MetricRecord(), {}
    for key, value in parts[0].metrics.items():
        mean: Any = sum(part.examples / total * np.asarray(part.metrics[key], float)
                        for part in parts)  # fmt: skip
        metrics[key] = mean.tolist() if isinstance(value, list) else float(mean)
    for name in parts[0].rest:
        mean = sum(part.rest[name].numpy() * (part.examples / total) for part in parts)
        rest[name] = Array(np.asarray(mean))
    return Details(total if examples is None else examples, metrics, parts[0].name, rest)


def write(
    to: Message, name: str, order: Iterable[str], weights: Mapping[str, Array], details: Details
) -> Message:
    """A complete reply for the inner strategy.

    Args:
      to: a message whose metadata it takes.
      name: that of its ArrayRecord.
      order: the names of all arrays of the model.
      weights: the weights among them.
      details: the rest of them, and the metrics.
    """
    content = RecordDict(
        {key: record for key, record in to.content.config_records.items() if key != protocol.REMARK}
    )
    content[name] = ArrayRecord(
        {key: details.rest[key] if key in details.rest else weights[key] for key in order}
    )
    content[details.name] = MetricRecord(dict(details.metrics))
    return Message(content=content, metadata=to.metadata)


def numbers(
    metrics: Mapping[str, Any], taken: Collection[str], prefix: str = ""
) -> dict[str, float]:
    """The numbers of an app as columns: under their names, unless these are taken; NaN is none."""
    columns = {}
    for key, value in metrics.items():
        if isinstance(value, int | float) and not math.isnan(value):
            name = key if key.startswith(prefix) else prefix + key
            columns[f"app_{name}" if name in taken else name] = float(value)
    return columns

"""Replies of clients: read with suspicion, and made complete for the inner strategy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from taciturn.errors import InputError
from taciturn.flower.mod import NORM
from taciturn.flower.records import Layout


@dataclass
class Reply:
    """A reply that can be read.

    Attributes:
      message: as it came.
      arrays: all arrays of a client that spoke, those that always travel of a silent one.
      weights: the weights of one that spoke, a flat vector per layer; None from a silent one.
      metrics: what the app reported, without what the mod added.
      examples: n_k.
      norm: m_k; None from a client without the mod, which always speaks.
    """

    message: Message
    arrays: Mapping[str, Array]
    weights: list[np.ndarray] | None
    metrics: MetricRecord
    examples: float
    norm: float | None

    @property
    def node(self) -> int:
        return int(self.message.metadata.src_node_id)

    @property
    def form(self) -> tuple[Any, ...]:
        """What all replies must agree in: Flower's strategies fail the run where they do not."""
        lengths = ((key, len(value) if isinstance(value, list) else None)
                   for key, value in sorted(self.metrics.items()))  # fmt: skip
        return (next(iter(self.message.content.metric_records)), *lengths)


def read(message: Message, layout: Layout, weighted_by: str) -> Reply:
    """The reply in a message, or an `InputError` that says what is wrong with it."""
    content = message.content
    if len(content.metric_records) != 1 or len(content.array_records) > 1:
        raise InputError(
            f"It must have one MetricRecord and at most one ArrayRecord, "
            f"got {len(content.metric_records)} and {len(content.array_records)}."
        )
    reported = next(iter(content.metric_records.values()))
    norm, examples = reported.get(NORM), reported.get(weighted_by)
    # Within these bounds, sums over clients stay finite in float32.
    if examples is None or isinstance(examples, list) or not 1e-18 < examples < 1e18:
        raise InputError(f"`{weighted_by}` must be a number above 0, got {examples!r}.")
    if norm is not None and (isinstance(norm, list) or not 0 <= norm < 1e18):
        raise InputError(f"The norm of its update must be a finite number, got {norm!r}.")
    arrays = next(iter(content.array_records.values()), ArrayRecord())
    rest = [name for name, _, _ in layout.rest]
    speaks = norm is None or any(name in arrays for name in layout.names)
    expected = [*layout.names, *rest] if speaks else rest
    if set(arrays) != set(expected):
        raise InputError(f"Its arrays must be {sorted(expected)}, got {sorted(arrays)}.")
    layout.check_rest(arrays)
    return Reply(
        message,
        arrays,
        layout.views(arrays) if speaks else None,
        MetricRecord({key: value for key, value in reported.items() if key != NORM}),
        float(examples),
        None if norm is None else float(norm),
    )


@dataclass
class Details:
    """What a reply to the inner strategy holds beside the weights.

    Attributes:
      examples: how much it weighs in the mean.
      metrics: what it reports.
      rest: the arrays that always travel.
    """

    examples: float
    metrics: MetricRecord
    rest: Mapping[str, Array]


def details(reply: Reply, layout: Layout) -> Details:
    """What a client's own reply holds beside the weights."""
    rest = {name: reply.arrays[name] for name, _, _ in layout.rest}
    return Details(reply.examples, reply.metrics, rest)


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
    return Details(total if examples is None else examples, metrics, rest)


def write(
    to: Message, name: str, order: Iterable[str], weights: Mapping[str, Array], details: Details
) -> Message:
    """A complete reply for the inner strategy.

    Args:
      to: a message whose metadata and names it takes.
      name: that of its ArrayRecord.
      order: the names of all arrays of the model.
      weights: the weights among them.
      details: the rest of them, and the metrics.
    """
    content = RecordDict(dict(to.content.config_records))
    content[name] = ArrayRecord(
        {key: weights[key] if key in weights else details.rest[key] for key in order}
    )
    content[next(iter(to.content.metric_records))] = MetricRecord(dict(details.metrics))
    return Message(content=content, metadata=to.metadata)

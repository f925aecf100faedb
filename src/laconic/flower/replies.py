"""Replies of clients: read with suspicion, and made complete for the inner strategy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from laconic.errors import InputError
from laconic.flower.mod import NORM
from laconic.flower.records import Layout


@dataclass
class Reply:
    """A reply that can be read.

    Attributes:
      message: as it came.
      arrays: all arrays of a client that spoke, those that always travel of a silent one.
      weights: the weights of one that spoke, a flat vector a layer; None from a silent one.
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
    if examples is None or isinstance(examples, list) or not 0 < examples < math.inf:
        raise InputError(f"`{weighted_by}` must be above 0, got {examples!r}.")
    if norm is not None and (isinstance(norm, list) or not 0 <= norm < math.inf):
        raise InputError(f"The norm of its update must be finite, got {norm!r}.")
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


def complete(
    reply: Reply,
    name: str,
    order: Iterable[str],
    arrays: Mapping[str, Array],
    metrics: MetricRecord | None = None,
) -> Message:
    """The reply's message with these arrays, in the model's order, under this name.

    Args:
      reply: whose message.
      name: that of the ArrayRecord.
      order: the names of all arrays of the model.
      arrays: these take the place of the reply's own.
      metrics: in the place of the reply's own.
    """
    content = reply.message.content
    filled = RecordDict(dict(content.config_records))
    filled[name] = ArrayRecord(
        {key: arrays[key] if key in arrays else reply.arrays[key] for key in order}
    )
    filled[next(iter(content.metric_records))] = reply.metrics if metrics is None else metrics
    return Message(content=filled, metadata=reply.message.metadata)


def mean_metrics(replies: Sequence[Reply]) -> MetricRecord:
    """The mean of the replies' metrics, weighted by their examples."""
    total = sum(reply.examples for reply in replies)
    mean = MetricRecord()
    for key, value in replies[0].metrics.items():
        weighted: Any = sum(reply.examples / total * np.asarray(reply.metrics[key], float)
                       for reply in replies)  # fmt: skip
        mean[key] = [float(x) for x in weighted] if isinstance(value, list) else float(weighted)
    return mean


def mean_arrays(replies: Sequence[Reply], names: Iterable[str]) -> dict[str, Array]:
    """The mean of the arrays that always travel, weighted by the replies' examples."""
    total = sum(reply.examples for reply in replies)
    means = {}
    for name in names:
        weighted: Any = sum(
            reply.arrays[name].numpy() * (reply.examples / total) for reply in replies
        )
        means[name] = Array(np.asarray(weighted))
    return means

"""What the inner strategy is given: complete, ordinary replies, with something for the silent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from logging import WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore import log

from taciturn.core.policy import Policy
from taciturn.core.server import ServerMemory
from taciturn.federation.aggregation import Round, mean_of
from taciturn.federation.layout import difference
from taciturn.federation.replies import Reply
from taciturn.flower import compatibility, protocol, records


@dataclass(kw_only=True)
class FlowerRound(Round):
    """A round with what Flower's side of it needs."""

    name: str  # of the array record in a speaker's reply
    model: ArrayRecord  # θ, which the inner strategy moves; with a codec for the way down not P
    whole: int  # the bytes of a record with all arrays


def step(
    inner: Strategy, now: FlowerRound, mean: np.ndarray, handed: list[Message] | None, needs: int,
    compares: bool,
) -> tuple[ArrayRecord | None, MetricRecord | None]:  # fmt: skip
    """The inner strategy's step; no arrays where it makes weights that are not finite.

    The strategy is given the replies in `handed`, or, where that is None, one with the mean update.
    With fewer than it `needs`, a trimmed mean takes its place. The replies' arrays are freed.
    """
    name, round = type(inner).__name__, now.request.round
    # For functions of the user's that put metrics together: what each client reported.
    each = [RecordDict({reply.name: MetricRecord(reply.metrics)})
            for reply in sorted(now.everyone, key=lambda reply: reply.node)]  # fmt: skip
    # What all report and always send, in silence too.
    whole = mean_of(now.everyone, now.layout)
    if handed is None:
        handed = [_mean_alone(now, mean, whole)]
    elif len(handed) < needs:
        log(WARNING, "Taciturn: %d spoke in round %d, and %s needs %d replies: a trimmed mean "
            "takes its place.", len(handed), round, name, needs)  # fmt: skip
        # The silent stay where they are.
        handed += [_write(reply.message, now, now.model, reply) for reply in now.silent]
        inner = compatibility.trimmed_mean(inner, len(handed))
    now.speakers, now.silent = [], []  # the inner strategy may need the memory
    if type(inner).aggregate_train is FedAvg.aggregate_train:
        # The mean of one reply is that reply: no need to read and write it once more.
        arrays = handed[0].content.array_records[now.name]
        metrics = inner.train_metrics_aggr_fn(each, now.request.weighted_by)
    else:
        with compatibility.aggregating(inner, each, now.layout.names, now.noise):
            arrays, metrics = inner.aggregate_train(round, handed)
        if arrays is None:
            return None, metrics
        if not compares:
            arrays.update(records.record_of({n: whole.arrays[n] for n in now.layout.averaged}))
    arrays = records.cast(arrays, now.model)
    broken = (name for name in arrays if not np.isfinite(records.view(arrays[name])).all())
    if wrong := next(broken, None):
        log(WARNING, "Taciturn: %s made weights of round %d that are not finite, first in `%s`: "
            "the model stays.", name, round, wrong)  # fmt: skip
        return None, metrics
    return arrays, metrics


def _mean_alone(now: FlowerRound, mean: np.ndarray, whole: Reply) -> Message:
    """One reply with the mean update. The arrays of all others are freed: memory is needed."""
    for reply in now.speakers:
        reply.weights, reply.arrays = [], {}
        for record in reply.message.content.array_records.values():
            record.clear()
    weights = records.moved(now.layout, now.model, mean)
    return _write(now.everyone[0].message, now, weights, whole)


def one_by_one(
    now: FlowerRound, policy: Policy, memory: ServerMemory, absent: int, each: bool
) -> list[Message]:
    """A reply for everyone who spoke, and for the silent: one for `each`, or one for all together.

    With a stand-in that counts, all replies weigh n. A client that spoke with probability p is
    given the update Δ̂ + (Δ − Δ̂) / p: the mean is that of `server.learn`, and no weight is below 0.
    `memory` is that before the round. `absent` clients, of mean weight and norm, count as silent.
    """
    counts, forecast = policy.stand_in.counts, None
    silence = now.silent or absent
    if counts and (silence or any(reply.probability < 1 for reply in now.speakers)):
        forecast = np.zeros(now.layout.size, now.layout.wide)
        forecast += policy.stand_in.predict(memory.stand_in)
    handed = [_speaker(reply, now, forecast, policy) for reply in now.speakers]
    if forecast is not None and silence and now.everyone:
        handed += _silent(now, forecast, absent, each)
    return handed


def _speaker(
    reply: Reply, now: FlowerRound, forecast: np.ndarray | None, policy: Policy
) -> Message:
    """The reply of a speaker. Its own arrays are handed on where its update counts as it is."""
    arrays = next(iter(reply.message.content.array_records.values()), ArrayRecord())
    update, layout, counts = reply.update, now.layout, policy.stand_in.counts
    by_chance = counts and reply.probability < 1
    if reply.weights and (reply.scale != 1 or policy.has_public or by_chance):
        update = difference(layout.views(now.sent), reply.weights)
        update *= np.float32(reply.scale)
    if update is not None:
        if forecast is not None and by_chance:
            expected = forecast * np.float32(_share(reply.norm, now))
            update = expected + (update - expected) / np.float32(reply.probability)
        arrays, reply.update = records.moved(layout, now.model, update), None
    details = replace(reply, examples=reply.examples if counts else reply.weight)
    return _write(reply.message, now, arrays, details)


def _silent(now: FlowerRound, forecast: np.ndarray, absent: int, each: bool) -> list[Message]:
    """The replies of the silent and the absent: all have the same weights, and share them."""
    everyone, others = now.everyone, now.silent or now.speakers
    parts, together = list(now.silent), mean_of(others, now.layout)
    if absent:
        n = sum(reply.examples for reply in everyone)
        norm = sum(reply.examples * reply.norm for reply in everyone) / n
        parts += [replace(together, examples=n / len(everyone), norm=norm)] * absent
    total = sum(reply.examples for reply in parts)
    forecast *= np.float32(sum(part.examples * _share(part.norm, now) for part in parts) / total)
    weights = records.moved(now.layout, now.model, forecast)
    parts = parts if each else [replace(together, examples=total)]
    return [_write(others[0].message, now, weights, part) for part in parts]


def _share(norm: float, now: FlowerRound) -> float:
    """How much of Δ̂ stands in for a client with an update of this norm."""
    longest = float(now.config.stand_in_norm)
    return min(1.0, norm / longest) if 0 < longest < math.inf else 1.0


def _write(to: Message, now: FlowerRound, weights: Mapping[str, Array], details: Reply) -> Message:
    """A complete reply for the inner strategy, with the metadata and the configs of `to`."""
    ours = {protocol.REMARK, *protocol.metrics_of(to.content)}
    configs = to.content.config_records.items()
    content = RecordDict({name: record for name, record in configs if name not in ours})
    whole = {**weights, **records.record_of(now.layout.rest_of(details.arrays))}
    content[now.name] = ArrayRecord({name: whole[name] for name in now.model})
    content[details.name] = metrics = MetricRecord(details.metrics)
    if metrics.get(now.request.weighted_by) != details.examples:  # else a whole number stays one
        metrics[now.request.weighted_by] = details.examples
    return Message(content=content, metadata=to.metadata)

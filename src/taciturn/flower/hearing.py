"""Hearing a round: from the replies of clients to a tally."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore import log

from taciturn.core import tally
from taciturn.core.arrays import add_scaled
from taciturn.core.arrays import norm as norm_of
from taciturn.core.codecs import Codec, float32, from_bytes
from taciturn.core.tally import Opening, Tally
from taciturn.errors import InputError
from taciturn.flower import byte_counts, expected, replies, sums
from taciturn.flower.downlink import Downlink
from taciturn.flower.limits import Limits
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout
from taciturn.flower.replies import Reply


class Row(NamedTuple):
    """What the history keeps of a round; an app's own columns have other names."""

    round: int
    asked: int
    spoke: int
    silent: int
    rejected: int
    errors: int
    missing: int
    threshold: float
    norm_mean: float
    norm_std: float
    bytes_up: int
    bytes_always: int
    overhead_up: int
    bytes_up_full: int
    bytes_down: int
    overhead_down: int
    bytes_down_full: int


@dataclass
class Round:
    """What is known of a round when its messages are sent.

    Attributes:
      opening: what the core knows.
      request: what the clients are asked.
      sent: the model that they train from.
      model: the server's own, which the inner strategy moves: the same without a codec for the way
        down.
      asked: their nodes.
      silence: how many times in a row each was silent, where it was.
      bytes_down, payload_down: all bytes that are sent, and those of arrays among them.
      bytes_down_full: all bytes if everyone were sent the model whole.
      downlink: what nodes have of the public model; None where they get the weights as they are.
    """

    opening: Opening
    request: Request
    sent: ArrayRecord
    model: ArrayRecord
    asked: set[int]
    silence: Mapping[int, int]
    bytes_down: int
    payload_down: int
    bytes_down_full: int
    downlink: Downlink | None


@dataclass
class Heard:
    """What came back in a round.

    Attributes:
      speakers, silent: the replies that count, in the order of their nodes.
      results: how many replies came that are no errors.
      errors, rejected, missing: how many there were of each.
      bytes_up, payload_up, payload_always: all bytes that came, those of arrays among them, and of
        arrays that always travel among these.
      bytes_up_full: what would have come if all had sent their weights whole.
    """

    speakers: list[Reply] = field(default_factory=list)
    silent: list[Reply] = field(default_factory=list)
    results: int = 0
    errors: int = 0
    rejected: int = 0
    missing: int = 0
    bytes_up: int = 0
    payload_up: int = 0
    payload_always: int = 0
    bytes_up_full: int = 0

    def reject(self, node: int, reason: object) -> None:
        self.rejected += 1
        log(WARNING, "Taciturn: the reply of node %d is rejected: %s", node, reason)

    def tally(self, total: np.ndarray, now: Round) -> Tally:
        """What was heard, with the sum of the speakers' updates."""
        everyone = self.speakers + self.silent
        # Who sent its weights whole is charged what the mod would have sent: the others cannot make
        # up for the rest.
        asked = now.request.rule, now.opening.context
        nbytes = [
            expected.nbytes(reply, *asked) if reply.code is None else len(reply.code)
            for reply in everyone
        ]
        tallied = tally.of(
            total,
            np.asarray([reply.examples for reply in everyone], total.dtype),
            np.asarray([reply.norm for reply in everyone], total.dtype),
            np.arange(len(everyone)) < len(self.speakers),
            now.opening,
            np.asarray([reply.probability for reply in everyone], total.dtype),
            each=now.request.rule.each,
            nbytes=np.asarray(nbytes),
        )
        return tallied._replace(n_rejected=tallied.n_rejected + self.rejected)


def hear(
    messages: Iterable[Message],
    now: Round,
    layout: Layout,
    weighted_by: str,
    name: str,
    limits: Limits,
) -> Heard:
    """Reads the replies, sorts out what cannot be one, and bounds what each weighs.

    Args:
      messages: what Flower received.
      now: the round.
      layout: that of the model.
      weighted_by: the metric that has n_k.
      name: that of the array record of a reply that a silent client would have sent.
      limits: how much a reply can weigh.
    """
    heard, found = Heard(), []
    answered: set[int] = set()
    whole = byte_counts.record_bytes(now.sent)
    for message in messages:
        node, written = message.metadata.src_node_id, byte_counts.message_bytes(message)
        heard.bytes_up += written
        if message.has_error():
            heard.errors += 1
            heard.bytes_up_full += written
            log(WARNING, "Taciturn: node %d failed: %s", node, message.error.reason)
            continue
        heard.results += 1
        records = message.content.array_records
        heard.payload_up += byte_counts.payload_of(message)
        heard.payload_always += sum(
            byte_counts.payload({name: part[name] for name, _, _ in layout.rest if name in part})
            for part in records.values()
        )
        try:
            if node not in now.asked or node in answered:
                raise InputError("it was not asked, or had answered.")
            answered.add(node)
            if now.downlink is not None:
                now.downlink.check(message)
            reply = replies.read(message, layout, weighted_by, now.request)
            if reply.name == name:
                raise InputError(f"its metrics have the name `{name}`, which is that of arrays.")
            _check_silence(reply, now)
            expected.check_length(reply, now.request.rule, now.opening.context)
            expected.set_probability(reply, now.request.rule, now.opening.context)
            limits.check_loss(reply)
        except InputError as error:
            heard.reject(node, error)
            heard.bytes_up_full += written
            continue
        if reply.remark is not None:
            log(WARNING, "Taciturn: node %d does not do as it was asked: %s", node, reply.remark)
        elif now.request.coded and reply.weights is not None:
            log(WARNING, "Taciturn: node %d sent its weights whole: without `speak()`, or with one "
                "of a version that knows no codecs.", node)  # fmt: skip
        found.append(reply)
        if reply.weights is None:
            written = byte_counts.message_bytes_with(message, {next(iter(records), name): whole})
        heard.bytes_up_full += written
    heard.missing = max(0, len(now.asked) - len(answered) - heard.errors)
    found.sort(key=lambda reply: reply.node)  # sums must not depend on who was first
    found = _alike(heard, found)
    limits.bound_weights(found, weighted_by)
    for reply in found:
        (heard.speakers if reply.spoke else heard.silent).append(reply)
    return heard


def hear_evaluation(
    messages: Iterable[Message],
    asked: Collection[int],
    weighted_by: str,
    limits: Limits,
    downlink: Downlink | None,
) -> list[Message]:
    """The replies of clients that evaluated, without those that would fail the run.

    Args:
      messages: what Flower received.
      asked: the nodes that were asked.
      weighted_by, limits: as in `hear`.
      downlink: as in `Round`.
    """
    heard, found, kept = Heard(), [], []
    answered: set[int] = set()
    for message in messages:
        node = message.metadata.src_node_id
        if message.has_error():
            kept.append(message)  # the inner strategy counts and logs it
            continue
        try:
            if node not in asked or node in answered:
                raise InputError("it was not asked, or had answered.")
            answered.add(node)
            if downlink is not None:
                downlink.check(message)
            found.append(replies.read_evaluation(message, weighted_by))
        except InputError as error:
            heard.reject(node, error)
    found = _alike(heard, sorted(found, key=lambda reply: reply.node))
    limits.bound_weights(found, weighted_by)
    return kept + [
        Message(content=RecordDict({reply.name: reply.metrics}), metadata=reply.message.metadata)
        for reply in found
    ]


def _check_silence(reply: Reply, now: Round) -> None:
    """Raises where a client is silent that must not be."""
    rule, silence = now.request.rule, now.silence.get(reply.node, 0)
    if reply.spoke or rule.at_most is None or silence < rule.at_most:
        return
    if not rule.at_most:
        raise InputError(f"It is silent, and `{rule.name}` lets nobody be silent.")
    raise InputError(
        f"It is silent again after {silence} times in a row, and `at_most` is {rule.at_most}."
    )


def _alike(heard: Heard, found: list[Reply]) -> list[Reply]:
    """The replies whose metrics are those of most, or of as many as any others.

    Flower's strategies fail the run where metrics differ: of forms that are equally common, what
    they have in common is left.
    """
    forms = Counter(reply.form for reply in found)
    leading = [form for form, count in forms.items() if count == max(forms.values())]
    kept = [reply for reply in found if reply.form in leading]
    for reply in found:
        if reply.form not in leading:
            heard.reject(reply.node, f"its metrics {reply.form} are not those of most.")
    if len(leading) > 1:
        common = set(leading[0][1:]).intersection(*(form[1:] for form in leading))
        names = {key for key, _ in common}
        log(WARNING, "Taciturn: nodes report different metrics; %s are kept.", sorted(names))
        for reply in kept:
            reply.name = leading[0][0]
            reply.metrics = MetricRecord({k: v for k, v in reply.metrics.items() if k in names})
    return kept


def add_up(
    heard: Heard, now: Round, layout: Layout, total: np.ndarray, keep: bool, limits: Limits
) -> None:
    """Writes Σ n·Δ/p over the speakers to `total`; whose norm does not fit its update is rejected.

    Args:
      heard: what came; its speakers get their norms.
      now: the round.
      layout: that of the model.
      total: memory for the sum, a flat vector.
      keep: whether the updates that were decoded stay with the replies.
      limits: how long an update can be.
    """
    _sum(heard, now, layout, total, keep)
    silent = [min(reply.norm or 0.0, float(now.opening.silent_at_most)) for reply in heard.silent]
    most = limits.longest(heard.speakers, silent)
    for reply in heard.silent:  # what stands in for it may be as long as it says it is
        reply.norm = min(reply.norm or 0.0, most)
    if limits.bound_norms(heard.speakers, silent):
        _sum(heard, now, layout, total, keep)  # once more: nothing is left of what was too long
        for reply in heard.speakers:
            reply.norm = (reply.norm or 0.0) * reply.scale


def _sum(heard: Heard, now: Round, layout: Layout, total: np.ndarray, keep: bool) -> None:
    whole = [reply for reply in heard.speakers if reply.weights is not None]
    coded = [reply for reply in heard.speakers if reply.code is not None]
    whole = _add_whole(heard, whole, now, layout, total)
    coded = [reply for reply in coded if _add_coded(heard, reply, now, layout, total, keep)]
    heard.speakers = sorted(whole + coded, key=lambda reply: reply.node)


def _add_whole(
    heard: Heard, speakers: list[Reply], now: Round, layout: Layout, total: np.ndarray
) -> list[Reply]:
    """Sums the updates of those who sent their weights, and returns those that fit."""
    before, exact = layout.views(now.sent), float32()
    while True:
        trained = [reply.weights or [] for reply in speakers]
        weights = [reply.weight * reply.scale for reply in speakers]
        norms = sums.measure(before, trained, layout.wide, weights, total)
        kept = [reply for reply, norm in zip(speakers, norms, strict=True)
                if _accept(heard, reply, exact, norm, layout.size)]  # fmt: skip
        if len(kept) == len(speakers):
            return kept
        speakers = kept  # the sum holds what was rejected: once more, without it


def _add_coded(
    heard: Heard, reply: Reply, now: Round, layout: Layout, total: np.ndarray, keep: bool
) -> bool:
    """Adds the update in a code to the sum, and says whether it fits."""
    codec = reply.codec
    try:
        code = from_bytes(codec, reply.code or b"", layout.size)
    except InputError as error:
        heard.reject(reply.node, error)
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        update = codec.decode(code, now.request.key(reply.node), layout.size)
        if not _accept(heard, reply, codec, float(norm_of(update)), layout.size):
            return False
    add_scaled(total, total.dtype.type(reply.weight * reply.scale), update, donate=True)
    reply.update = update * np.float32(reply.scale) if keep else None
    return True


def _accept(heard: Heard, reply: Reply, codec: Codec, actual: float, size: int) -> bool:
    """Whether a reply's norm can be that of its update; without loss it is replaced by that."""
    reported = next((norm for norm in (reply.encoded_norm, reply.norm) if norm is not None), actual)
    fits = tally.fits(codec, np.float64(reported), np.float64(actual), size)
    if not math.isfinite(actual) or not fits:
        heard.reject(
            reply.node,
            f"its update has the norm {actual:g}, it reported {reported:g}; "
            "`speak()` must be the first of its mods.",
        )
        return False
    # A codec that shortens dense updates keeps sparse ones as they are.
    reply.decoded_norm = actual / max(1.0, codec.stretch(size))
    if reply.norm is None or not codec.error(size):
        reply.norm = actual
    return True


def row(round: int, now: Round, heard: Heard, info: Any) -> Row:
    return Row(
        round=round,
        asked=len(now.asked),
        spoke=int(info.spoke),
        silent=int(info.silent),
        rejected=heard.rejected,
        errors=heard.errors,
        missing=heard.missing,
        threshold=float(info.threshold),
        norm_mean=float(info.norm_mean),
        norm_std=float(info.norm_std),
        bytes_up=heard.payload_up,
        bytes_always=heard.payload_always,
        overhead_up=heard.bytes_up - heard.payload_up,
        bytes_up_full=heard.bytes_up_full,
        bytes_down=now.payload_down,
        overhead_down=now.bytes_down - now.payload_down,
        bytes_down_full=now.bytes_down_full,
    )

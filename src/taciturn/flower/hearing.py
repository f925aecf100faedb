"""Hearing a round: from the replies of clients to a tally."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore import log

from taciturn.core import tally
from taciturn.core.arrays import add_scaled
from taciturn.core.arrays import norm as norm_of
from taciturn.core.codecs import Codec, float32, from_bytes
from taciturn.core.tally import Opening, Tally
from taciturn.errors import InputError
from taciturn.flower import byte_counts, protocol, records, replies
from taciturn.flower.downlink import Downlink
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout
from taciturn.flower.replies import Limits, Reply


@dataclass
class Round:
    """What is known of a round when its messages are sent."""

    opening: Opening  # what the core knows
    request: Request  # what all clients are asked
    layout: Layout  # that of the model
    name: str  # that of the array record of a reply in which somebody speaks
    limits: Limits  # how far a reply can move the mean
    sent: ArrayRecord  # the model that clients train from
    # the server's own, which the inner strategy moves: the same without a codec for the way
    # down
    model: ArrayRecord
    asked: set[int]  # the clients' nodes
    must_speak: set[int]  # those of them that may not be silent
    bytes_down: int  # all bytes that are sent, and those of arrays among them
    payload_down: int
    bytes_down_full: int  # all bytes if everyone were sent the model whole
    # what nodes have of the public model; None where they get the weights as they are
    downlink: Downlink | None


@dataclass
class Heard:
    """What came back in a round."""

    # the replies that count, in the order of their nodes
    speakers: list[Reply] = field(default_factory=list)
    silent: list[Reply] = field(default_factory=list)
    results: int = 0  # how many replies came that are no errors
    errors: int = 0  # how many there were of each
    rejected: int = 0
    missing: int = 0
    # all bytes that came; those of codes and arrays among them; and of arrays that always
    # travel among these
    bytes_up: int = 0
    payload_up: int = 0
    payload_always: int = 0
    bytes_up_full: int = 0  # what would have come if all had sent their weights whole

    @property
    def everyone(self) -> list[Reply]:
        return self.speakers + self.silent

    def reject(self, node: int, reason: object) -> None:
        self.rejected += 1
        log(WARNING, "Taciturn: the reply of node %d is rejected: %s", node, reason)

    def tally(self, total: np.ndarray, now: Round) -> Tally:
        """What was heard, with the sum of the speakers' updates."""
        everyone, asked = self.everyone, now.request
        tallied = tally.of(
            total,
            np.asarray([reply.examples for reply in everyone], total.dtype),
            np.asarray([reply.norm for reply in everyone], total.dtype),
            np.arange(len(everyone)) < len(self.speakers),
            now.opening,
            np.asarray([reply.probability for reply in everyone], total.dtype),
            each=asked.rule.each,
            nbytes=np.asarray([replies.charged(reply, asked) for reply in everyone]),
        )
        return tallied._replace(n_rejected=tallied.n_rejected + self.rejected)


def hear(messages: Iterable[Message], now: Round) -> Heard:
    """Reads the replies, sorts out what cannot be one, and bounds what each weighs."""
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
        heard.payload_up += byte_counts.payload_of(message)
        heard.payload_always += sum(
            byte_counts.payload(now.layout.rest_of(part))
            for part in message.content.array_records.values()
        )
        try:
            reply = _read(message, now, answered)
        except InputError as error:
            heard.reject(node, error)
            heard.bytes_up_full += written
            continue
        if reply.remark is not None:
            log(WARNING, "Taciturn: node %d does not do as it was asked: %s", node, reply.remark)
        if protocol.CODE not in reply.arrays:
            heard.payload_up += len(reply.code)
        if reply.weights is None:
            name = next(iter(message.content.array_records), now.name)
            written = byte_counts.message_bytes_with(message, {name: whole})
            written -= 0 if protocol.CODE in reply.arrays else len(reply.code)
        heard.bytes_up_full += written
        found.append(reply)
    heard.missing = max(0, len(now.asked) - len(answered) - heard.errors)
    for reply in _comparable(heard, found, now):
        (heard.speakers if reply.spoke else heard.silent).append(reply)
    return heard


def _read(message: Message, now: Round, answered: set[int]) -> Reply:
    """The reply in a message, or an `InputError` that says what is wrong with it."""
    said = _said(message, now.asked, answered, now)
    reply = replies.read(message, said, now.layout, now.request)
    if reply.name == now.name:
        raise InputError(f"its metrics have the name `{now.name}`, which is that of arrays.")
    if not reply.spoke and reply.node in now.must_speak:
        raise InputError(f"It is silent, and `{now.request.rule.name}` lets it be so no more.")
    now.limits.check_loss(reply)
    return reply


def _said(message: Message, asked: set[int], answered: set[int], now: Round) -> protocol.Said:
    """What a node says that was asked, has not answered yet, and has the public model."""
    node = message.metadata.src_node_id
    if node not in asked or node in answered:
        raise InputError("it was not asked, or had answered.")
    answered.add(node)
    said = protocol.read_said(message.content)
    if now.downlink is not None:
        now.downlink.check(node, said.has)
    return said


def hear_evaluation(messages: Iterable[Message], asked: set[int], now: Round) -> list[Message]:
    """The replies of the clients that were asked to evaluate, without those that fail the run."""
    heard, found, kept = Heard(), [], []
    answered: set[int] = set()
    for message in messages:
        if message.has_error():
            kept.append(message)  # the inner strategy counts and logs it
            continue
        try:
            said = _said(message, asked, answered, now)
            found.append(replies.read_metrics(message, said, now.request.weighted_by))
        except InputError as error:
            heard.reject(message.metadata.src_node_id, error)
    return kept + [
        Message(content=RecordDict({reply.name: reply.metrics}), metadata=reply.message.metadata)
        for reply in _comparable(heard, found, now)
    ]


def _comparable(heard: Heard, found: list[Reply], now: Round) -> list[Reply]:
    """The replies whose metrics are those of most, in the order of nodes, with bounded weights.

    Flower's strategies fail the run where metrics differ: of forms that are equally common, what
    they have in common is left.
    """
    found.sort(key=lambda reply: reply.node)  # sums must not depend on who was first
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
    now.limits.bound_weights(kept, now.request.weighted_by)
    return kept


def add_up(heard: Heard, now: Round, total: np.ndarray, keep: bool) -> None:
    """Writes Σ n·Δ/p over the speakers to `total`; rejects updates that do not fit their norms.

    With `keep`, the updates that were decoded stay with the replies.
    """
    _sum(heard, now, total, keep)
    most = max(float(now.opening.silent_at_most), 0.0)  # a threshold may lie below 0
    silent = [min(reply.norm or 0.0, most) for reply in heard.silent]
    longest = now.limits.longest(heard.speakers, silent)
    for reply, norm in zip(heard.silent, silent, strict=True):
        reply.norm = min(norm, longest)  # what stands in for it may be as long as it says it is
    if now.limits.bound_norms(heard.speakers, silent):
        _sum(heard, now, total, keep)  # once more: nothing is left of what was too long
        for reply in heard.speakers:
            reply.norm = (reply.norm or 0.0) * reply.scale


def _sum(heard: Heard, now: Round, total: np.ndarray, keep: bool) -> None:
    layout, exact, before = now.layout, float32(), now.layout.views(now.sent)
    coded = [reply for reply in heard.speakers if reply.code]
    fits = [reply for reply in heard.speakers if reply.weights is not None]
    while True:
        whole, trained = fits, [reply.weights or [] for reply in fits]
        weights = [reply.weight * reply.scale for reply in whole]
        norms = records.measure(before, trained, layout.wide, weights, total)
        fits = [reply for reply, norm in zip(whole, norms, strict=True)
                if _accept(heard, reply, exact, norm, layout.size)]  # fmt: skip
        if len(fits) == len(whole):  # else the sum holds what was rejected: once more, without it
            break
    fits += [reply for reply in coded if _add_coded(heard, reply, now, total, keep)]
    heard.speakers = sorted(fits, key=lambda reply: reply.node)


def _add_coded(heard: Heard, reply: Reply, now: Round, total: np.ndarray, keep: bool) -> bool:
    """Adds the update in a code to the sum, and says whether it fits."""
    size = len(total)
    try:
        codec = now.request.codec_of(len(reply.code))
        code = from_bytes(codec, reply.code, size)
    except InputError as error:
        heard.reject(reply.node, error)
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        update = codec.decode(code, now.request.key(reply.node), size)
        if not _accept(heard, reply, codec, float(norm_of(update)), size):
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

"""From the replies of a round to its tally."""

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
from taciturn.core.tally import RoundConfig, Tally
from taciturn.errors import InputError
from taciturn.flower import byte_counts, protocol, records, replies
from taciturn.flower.downlink import Downlink
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout
from taciturn.flower.replies import Limits, Reply

_MOST_NOISE = 0.9  # of a square that is taken for noise: it is an expectation


@dataclass
class Round:
    """What is known of a round when its messages are sent."""

    config: RoundConfig  # what the core knows
    request: Request  # what all clients are asked
    layout: Layout  # of the model
    name: str  # of the array record in a speaker's reply
    limits: Limits  # how far a reply can move the mean
    sent: ArrayRecord  # what clients train from: P with a codec for the way down, else θ
    model: ArrayRecord  # θ, the server's own model, which the inner strategy moves
    asked: set[int]  # the clients' nodes
    must_speak: set[int]  # those of them that may not be silent
    bytes_down: int  # all bytes that are sent
    payload_down: int  # those of arrays among them
    bytes_down_full: int  # all bytes if everyone were sent the model whole
    downlink: Downlink | None  # what nodes have of P; None without a codec for the way down


@dataclass
class RoundReplies:
    """What came back in a round."""

    speakers: list[Reply] = field(default_factory=list)  # those that count, sorted by node
    silent: list[Reply] = field(default_factory=list)
    results: int = 0  # how many replies came that are no errors
    errors: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list)  # why
    missing: int = 0
    bytes_up: int = 0  # all bytes that came
    payload_up: int = 0  # those of codes and arrays among them
    payload_always: int = 0  # those of arrays that always travel among these
    bytes_up_full: int = 0  # all bytes if everyone had sent their weights whole
    form: tuple[str, ...] = ()  # of the metrics, as most report them
    noise: float = 0.0  # the share of codecs and draws in the square of the mean update

    @property
    def everyone(self) -> list[Reply]:
        return self.speakers + self.silent

    def reject(self, node: int, reason: object) -> None:
        self.rejected += 1
        self.reasons.append(f"{reason}")
        log(WARNING, "Taciturn: the reply of node %d is rejected: %s", node, reason)

    def tally(self, total: np.ndarray, now: Round) -> Tally:
        """What was heard, with the sum of the speakers' updates."""
        everyone, asked = self.everyone, now.request
        examples, norms, chances = (
            np.asarray([getattr(reply, name) for reply in everyone], total.dtype)
            for name in ("examples", "norm", "probability")
        )
        spoke = np.arange(len(everyone)) < len(self.speakers)
        nbytes = np.asarray([replies.charged(reply, asked) for reply in everyone])
        tallied = tally.of(
            total, examples, norms, spoke, now.config, chances, each=asked.rule.each,
            nbytes=nbytes,
        )  # fmt: skip
        return tallied._replace(n_rejected=tallied.n_rejected + self.rejected)


def hear(messages: Iterable[Message], now: Round) -> RoundReplies:
    """The replies of a round, without those that are wrong; what each weighs is bounded."""
    heard, found = RoundReplies(), []
    answered: set[int] = set()
    whole = byte_counts.record_bytes(now.sent)
    for message in messages:
        written = byte_counts.message_bytes(message)
        reply = _received(heard, message, now, answered)
        heard.bytes_up += written
        heard.bytes_up_full += written
        if reply is None:
            continue
        found.append(reply)
        in_metrics = 0 if protocol.CODE in reply.arrays else len(reply.code)
        heard.payload_up += in_metrics
        if reply.weights is None:
            name = next(iter(message.content.array_records), now.name)
            full = byte_counts.message_bytes_with(message, {name: whole}) - in_metrics
            heard.bytes_up_full += full - written
    heard.missing = max(0, len(now.asked) - len(answered) - heard.errors)
    kept = _comparable(heard, found, now)
    now.limits.bound_buffers(kept, now.layout, now.sent)
    for reply in kept:
        (heard.speakers if reply.spoke else heard.silent).append(reply)
    return heard


def _received(
    heard: RoundReplies, message: Message, now: Round, answered: set[int]
) -> Reply | None:
    """The reply in a message, counted; None where it is an error or rejected."""
    node = message.metadata.src_node_id
    if message.has_error():
        heard.errors += 1
        log(WARNING, "Taciturn: node %d failed: %s", node, message.error.reason)
        return None
    heard.results += 1
    for part in message.content.array_records.values():
        heard.payload_up += byte_counts.payload(part)
        heard.payload_always += byte_counts.payload(now.layout.rest_of(part))
    try:
        said = _said(message, now.asked, answered, now)
        reply = replies.read(message, said, now.layout, now.request)
        if reply.name == now.name:
            raise InputError(f"its metrics have the name `{now.name}`, which is that of arrays.")
        if not reply.spoke and node in now.must_speak:
            raise InputError(f"It is silent, and `{now.request.rule.name}` says it must speak now.")
        now.limits.check_loss(reply)
    except InputError as error:
        heard.reject(node, error)
        return None
    if reply.remark is not None:
        log(WARNING, "Taciturn: node %d does not do as it was asked: %s", node, reply.remark)
    return reply


def _said(message: Message, asked: set[int], answered: set[int], now: Round) -> protocol.Said:
    """What a node says. Raises unless it was asked, has not answered and has the public model."""
    node = message.metadata.src_node_id
    if node not in asked or node in answered:
        raise InputError("it was not asked, or had answered.")
    answered.add(node)
    said = protocol.read_said(message.content, now.request.form)
    if now.downlink is not None:
        now.downlink.check(node, said.has)
    return said


def hear_evaluation(messages: Iterable[Message], asked: set[int], now: Round) -> list[Message]:
    """The replies of clients that were asked to evaluate, without those that would end the run."""
    heard, found, kept = RoundReplies(), [], []
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


def _comparable(heard: RoundReplies, found: list[Reply], now: Round) -> list[Reply]:
    """The replies whose metrics have the commonest form, sorted by node, with bounded weights.

    Flower's strategies fail the run where metrics differ. Where several forms are equally common,
    the metrics that all of them have are kept.
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
    if kept:
        heard.form = protocol.form_of(kept[0].name, kept[0].metrics)
    now.limits.bound_weights(kept, now.request.weighted_by)
    return kept


def add_up(heard: RoundReplies, now: Round, total: np.ndarray, keep: bool) -> None:
    """Writes Σ n·Δ/p over the speakers to `total`; rejects updates that do not fit their norms.

    With `keep`, decoded updates stay with the replies.
    """
    _sum(heard, now, total, keep)
    most = max(float(now.config.silent_at_most), 0.0)  # a threshold may lie below 0
    silent = [min(reply.norm, most) for reply in heard.silent]
    longest = now.limits.longest(heard.speakers, silent)
    for reply, norm in zip(heard.silent, silent, strict=True):
        reply.norm = min(norm, longest)  # what stands in for it may be as long as it says it is
    if now.limits.bound_norms(heard.speakers, silent):
        _sum(heard, now, total, keep)  # once more, with the shortened updates
        for reply in heard.speakers:
            reply.norm *= reply.scale
    if heard.noise:
        heard.noise = min(heard.noise / float(norm_of(total)) ** 2, _MOST_NOISE)


def _sum(heard: RoundReplies, now: Round, total: np.ndarray, keep: bool) -> None:
    layout, exact, before = now.layout, float32(), now.layout.views(now.sent)
    coded, heard.noise = [reply for reply in heard.speakers if reply.code], 0.0
    fits = [reply for reply in heard.speakers if reply.weights is not None]
    while True:
        whole, trained = fits, [reply.weights or [] for reply in fits]
        weights = [reply.weight * reply.scale for reply in whole]
        norms = records.measure(before, trained, layout.wide, weights, total)
        fits = [reply for reply, norm in zip(whole, norms, strict=True)
                if _accept(heard, reply, exact, norm, layout.size)]  # fmt: skip
        if len(fits) == len(whole):  # else the sum holds what was rejected, and is made anew
            break
    fits += [reply for reply in coded if _add_coded(heard, reply, now, total, keep)]
    heard.speakers = sorted(fits, key=lambda reply: reply.node)


def _add_coded(
    heard: RoundReplies, reply: Reply, now: Round, total: np.ndarray, keep: bool
) -> bool:
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
    weight, p = reply.weight * reply.scale, reply.probability
    add_scaled(total, total.dtype.type(weight), update, donate=True)
    if codec.unbiased:
        heard.noise += (weight * reply.norm) ** 2 * p * (1 + codec.error(size) - p)
    reply.update = update * np.float32(reply.scale) if keep else None
    return True


def _accept(heard: RoundReplies, reply: Reply, codec: Codec, actual: float, size: int) -> bool:
    """Whether a reply's norm can be that of its update. That of a lossless code is measured."""
    reported = actual if reply.encoded_norm is None else reply.encoded_norm
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
    if not codec.error(size):
        reply.norm = reply.encoded_norm = actual
    return True

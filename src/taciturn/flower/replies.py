"""Replies of clients, read with suspicion: what one may say, what it weighs, how long it may be."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.supercore import log

from taciturn.core.rules import ClientStats
from taciturn.errors import InputError
from taciturn.flower import protocol
from taciturn.flower.protocol import Report, Request, Said
from taciturn.flower.records import Layout, view

_LEAST = 2.0  # what a limit shrinks to; a silent reply weighs so many times the median at most
_LONGER = 1.1  # a code may be so many times as long, or short, as its rule says: it is rounded
_KNOWN = {"norm", "uniform", "examples"}  # what the server knows of a client's stats


@dataclass
class Reply:
    """A reply that can be read."""

    message: Message  # as it came
    name: str  # that of the record with its metrics
    metrics: MetricRecord  # what the app reported
    examples: float  # n_k; `Limits` bounds it
    arrays: Mapping[str, Array] = field(default_factory=dict)  # all that came
    weights: list[np.ndarray] | None = None  # those that came whole, a flat vector per layer
    code: bytes = b""  # of an update that came in a codec
    norm: float = 0.0  # m_k; that of a client without the mod, which always speaks, is measured
    encoded_norm: float | None = None  # of what was encoded; None from a client without the mod
    probability: float = 1.0  # how likely the client was to speak; 1 where the rule does not say
    remark: str | None = None  # why the reply is not as it was asked for
    without_mod: bool = False
    decoded_norm: float = 0.0  # of what was decoded, over how much the codec stretches updates
    update: np.ndarray | None = None  # what was decoded, where it is needed again
    scale: float = 1.0  # by which its update is made shorter

    @property
    def node(self) -> int:
        return int(self.message.metadata.src_node_id)

    @property
    def spoke(self) -> bool:
        return self.weights is not None or bool(self.code)

    @property
    def weight(self) -> float:
        """What it weighs: n/p with the update of a speaker, n where something stands in."""
        return self.examples / self.probability if self.spoke else self.examples

    @property
    def length(self) -> float:
        """The norm of what is added to the sum, as reported and as decoded."""
        return max(self.norm, self.encoded_norm or 0.0, self.decoded_norm)

    @property
    def form(self) -> tuple[Any, ...]:
        """What all replies must agree in: Flower's strategies fail the run where they do not."""
        lengths = ((key, len(value) if isinstance(value, list) else None)
                   for key, value in sorted(self.metrics.items()))  # fmt: skip
        return (self.name, *lengths)


def read(message: Message, said: Said, layout: Layout, asked: Request) -> Reply:
    """The reply in a message, or an `InputError` that says what is wrong with it."""
    reply, report, code = read_metrics(message, said, asked.weighted_by), said.report, said.code
    reply.arrays = next(iter(message.content.array_records.values()), ArrayRecord())
    reply.remark = protocol.read_remark(message.content)
    reply.without_mod = report is None and reply.remark is None
    expected = {layer.name for layer in layout.rest}
    if asked.coded and report is not None and protocol.CODE in reply.arrays and not code:
        values = view(reply.arrays[protocol.CODE])
        if values.dtype != np.uint8:
            raise InputError(f"A code must be an array of bytes, got {values.dtype}.")
        code = values.tobytes()
        expected.add(protocol.CODE)
    whole = not code and (report is None or any(name in reply.arrays for name in layout.names))
    expected.update(layout.names if whole else ())
    if set(reply.arrays) != expected:
        raise InputError(f"Its arrays must be {sorted(expected)}, got {sorted(reply.arrays)}.")
    if code and not asked.coded:
        raise InputError("It has a code, and nobody asked for one.")
    layout.check_rest(reply.arrays)
    reply.weights, reply.code = layout.views(reply.arrays) if whole else None, code
    if report is not None:
        _read_report(reply, report, asked, layout.size)
    return reply


def read_metrics(message: Message, said: Said, weighted_by: str) -> Reply:
    """What a reply says in its metrics: all that there is where a client evaluated."""
    examples = said.metrics.get(weighted_by)
    _check_weight(weighted_by, examples)
    return Reply(message, said.name, said.metrics, float(examples))


def _read_report(reply: Reply, report: Report, asked: Request, size: int) -> None:
    """Checks what the mod says and adds it to the reply."""
    for value in (report.norm, report.encoded_norm):
        if not 0 <= value < 1e18:
            raise InputError(f"The norm of its update must be in [0, 1e18), got {value!r}.")
    reply.norm = report.norm
    # Without feedback the two are one; a client that says another one would be measured by it.
    reply.encoded_norm = report.encoded_norm if asked.codec.feedback else report.norm
    rule, stats = asked.rule, _stats(reply)
    if rule.nbytes is not None:
        given = int(rule.nbytes(stats, asked.context))
        # What a short code says may be many times as long as the update, and be right on average.
        least = asked.codec_of(int(given / _LONGER)).nbytes(size) if reply.code else 0
        if not least <= len(reply.code) <= _LONGER * given:
            raise InputError(
                f"its code has {len(reply.code)} bytes, and `{rule.name}` gave it {given}."
            )
    if rule.probability is not None:
        chance = report.probability
        if set(rule.looks_at) <= _KNOWN:
            # A client that says a small number of itself would count many times.
            chance = float(rule.probability(stats, asked.context))
        for value in (chance, report.own):
            if not 1e-6 <= value <= 1:
                raise InputError(f"A probability must be in [1e-6, 1], got {value!r}.")
        reply.probability = chance * report.own
        _check_weight(asked.weighted_by, reply.examples / reply.probability)


def charged(reply: Reply, asked: Request) -> int:
    """The bytes of a reply's code that count towards a budget.

    A client that sent its weights whole is charged what the mod would have sent: the others cannot
    make up for the rest.
    """
    if reply.code or asked.rule.nbytes is None:
        return len(reply.code)
    return int(asked.rule.nbytes(_stats(reply), asked.context))


def _stats(reply: Reply) -> ClientStats:
    """What the server knows of what the client's rule looked at."""
    return ClientStats(np.float64(reply.norm), 0.5, examples=np.float64(reply.examples))


def _check_weight(name: str, examples: Any) -> None:
    # Within these bounds, sums over clients stay finite in float32.
    if examples is None or isinstance(examples, list) or not 1e-18 < examples < 1e18:
        raise InputError(f"`{name}` must be in (1e-18, 1e18), got {examples!r}.")


@dataclass(frozen=True)
class Limits:
    """How far one reply can move the mean: bounds on what it weighs and how long its update is."""

    weight: float = math.inf  # times the median of all that a reply can weigh
    norm: float = math.inf  # times the upper quartile that an update can be long
    # Whether the mean is over speakers alone. Each is then heard louder the fewer they are,
    # and both limits shrink with the share that speaks, to 2 at the least.
    alone: bool = False
    loss: str | None = None  # the metric whose powers weigh in the mean: it must not be negative

    def check_loss(self, reply: Reply) -> None:
        """Raises where the power of a reply's loss would be no number, and the mean with it."""
        found = reply.metrics.get(self.loss, 0.0)
        if isinstance(found, list) or found < 0:
            raise InputError(f"`{self.loss}` must be 0 or more, got {found!r}.")

    def bound_weights(self, found: Sequence[Reply], weighted_by: str) -> None:
        """Bounds what each reply weighs by so many times the lower median, and what a silent one
        weighs by twice the median: it did not say itself what stands in for it.

        A speaker weighs n/p, beside what all would weigh if they had spoken; a silent client
        weighs n, beside all n.
        """
        if math.isinf(self.weight) or not found:
            return
        speaking = _lower_median([reply.examples / reply.probability for reply in found])
        silent = _lower_median([reply.examples for reply in found])
        limit = self._shrunk(self.weight, sum(reply.spoke for reply in found), len(found))
        for reply in found:
            most = limit * speaking if reply.spoke else min(limit, _LEAST) * silent
            if reply.weight > most:
                log(INFO, "Taciturn: node %d weighs %g, too much beside the median: it counts as "
                    "%g.", reply.node, reply.weight, most)  # fmt: skip
                reply.examples = most * reply.probability if reply.spoke else most
                reply.metrics = MetricRecord({**reply.metrics, weighted_by: reply.examples})

    def bound_buffers(self, found: Sequence[Reply], layout: Layout, sent: ArrayRecord) -> None:
        """Bounds how far a reply can move each buffer and counter: n times the distance, by so many
        times the upper quartile of all replies."""
        for name in layout.averaged if found and math.isfinite(self.norm) else ():
            before = sent[name].numpy().astype(float)
            moves = [reply.arrays[name].numpy() - before for reply in found]
            lengths = [reply.examples * float(np.linalg.norm(move))
                       for reply, move in zip(found, moves, strict=True)]  # fmt: skip
            most = self.norm * _upper_quartile([x for x in lengths if x] or [0.0], (), 0)
            for reply, move, length in zip(found, moves, lengths, strict=True):
                if length > most:
                    log(INFO, "Taciturn: node %d moves `%s` too far beside the upper quartile: it "
                        "counts as %.3g of that.", reply.node, name, most / length)  # fmt: skip
                    values = before + move * (most / length)
                    dtype = reply.arrays[name].dtype
                    reply.arrays = {**reply.arrays, name: Array(values.astype(dtype))}

    def bound_norms(self, speakers: Sequence[Reply], silent: Sequence[float]) -> bool:
        """Sets the `scale` of updates that are too long beside the others and the norms of the
        silent. Returns whether there are any."""
        most = self.longest(speakers, silent)
        for reply in speakers:
            if reply.length > most:
                log(INFO, "Taciturn: the update of node %d has the norm %g, too long beside the "
                    "upper quartile: it is shortened to %g.",
                    reply.node, reply.length, most)  # fmt: skip
                reply.scale = most / reply.length
        return any(reply.scale != 1 for reply in speakers)

    def longest(self, speakers: Sequence[Reply], silent: Sequence[float]) -> float:
        """How long an update, or what stands in for one, can be."""
        if math.isinf(self.norm):
            return math.inf
        limit = self._shrunk(self.norm, len(speakers), len(speakers) + len(silent))
        said = [reply.length for reply in speakers if reply.length > 0]
        others = [norm for norm in silent if norm > 0]
        if said:
            return limit * _upper_quartile(said, others, len(silent) - len(others))
        # Where nobody speaks, the silent are measured by each other.
        return limit * _lower_median(others) if others else math.inf

    def _shrunk(self, limit: float, speakers: int, everyone: int) -> float:
        share = speakers / everyone if self.alone and everyone else 1.0
        return max(min(_LEAST, limit), limit * share)


def _lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _upper_quartile(speakers: Sequence[float], silent: Sequence[float], zeros: int) -> float:
    """That of the speakers' norms; where they are fewer than half, of the longer half of all.

    The quartile and not the median, because honest clients may be few that have much to say. One
    that speaks alone is measured by the silent. Clients with a zero update are left out; `zeros`
    is how many of the silent have one.
    """
    needed = (len(speakers) + len(silent) + zeros + 1) // 2 - len(speakers)
    norms = sorted([*speakers, *sorted(silent, reverse=True)[: max(needed, 0)]])
    return norms[3 * (len(norms) - 1) // 4]

"""Replies of clients, read with suspicion: what one may say, what it weighs, how long it may be."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.rules import ClientStats
from taciturn.errors import InputError
from taciturn.federation.layout import Arrays, Layout
from taciturn.federation.protocol import Report, Request

log = logging.getLogger("taciturn")

_LEAST = 2.0  # what a limit shrinks to; a silent reply weighs so many times the median at most
_LONGER = 1.1  # a code may be so many times as long, or short, as its rule says: it is rounded
_KNOWN = {"norm", "uniform", "examples"}  # what the server knows of a client's stats


class Traffic(NamedTuple):
    """Bytes of messages."""

    payload: int = 0  # of codes and arrays
    always: int = 0  # of arrays that always travel among these
    overhead: int = 0  # the engine's own
    full: int = 0  # of all together if everyone had sent their weights whole


@dataclass
class Reply:
    """What a client said, as its engine reads it; `check` finds out the rest."""

    node: str
    metrics: dict[str, Any] = field(default_factory=dict)  # numbers, and lists of numbers
    arrays: Arrays = field(default_factory=dict)  # all that came
    report: Report | None = None  # None from a client without `speak`
    code: bytes = b""  # of an update that came in a codec
    remark: str | None = None  # why the reply is not as it was asked for
    name: str = ""  # that of its metrics, where an engine has one
    message: Any = None  # as it came
    traffic: Traffic = field(default_factory=Traffic)  # its bytes
    error: str | None = None  # what the engine says of a node that failed
    problem: str | None = None  # why the reply cannot be read
    examples: float = 0.0  # n_k; `Limits` bounds it
    weights: list[np.ndarray] = field(default_factory=list)  # that came whole, flat, per layer
    norm: float = 0.0  # m_k; that of a client without `speak`, which always speaks, is measured
    encoded_norm: float | None = None  # of what was encoded; None from a client without `speak`
    probability: float = 1.0  # how likely the client was to speak; 1 where the rule does not say
    decoded_norm: float = 0.0  # of what was decoded, over how much the codec stretches updates
    update: np.ndarray | None = None  # what was decoded, where it is needed again
    scale: float = 1.0  # by which its update is made shorter

    @property
    def spoke(self) -> bool:
        return bool(self.weights or self.code)

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
        """What all replies must agree in, or their metrics have no mean."""
        lengths = ((key, len(value) if isinstance(value, list) else None)
                   for key, value in sorted(self.metrics.items()))  # fmt: skip
        return (self.name, *lengths)

    def check_metrics(self, weighted_by: str) -> None:
        """Raises unless the metrics are finite and one says what the reply weighs."""
        for key, value in self.metrics.items():
            if not np.isfinite(value).all():
                raise InputError(f"The metric `{key}` must be finite, got {value!r}.")
        self.examples = _weight(weighted_by, self.metrics.get(weighted_by))

    def check(self, layout: Layout, asked: Request) -> None:
        """Raises where anything in the reply is wrong, as far as its update need not be known."""
        self.check_metrics(asked.weighted_by)
        has_weights = self.report is None or any(name in self.arrays for name in layout.names)
        whole = has_weights and not self.code
        expected = {layer.name for layer in layout.rest} | set(layout.names if whole else ())
        if set(self.arrays) != expected:
            raise InputError(f"Its arrays must be {sorted(expected)}, got {sorted(self.arrays)}.")
        if self.code and not asked.coded:
            raise InputError("It has a code, and nobody asked for one.")
        layout.check_rest(self.arrays)
        self.weights = layout.views(self.arrays) if whole else []
        if self.report is not None:
            self._check_report(self.report, asked, layout.size)

    def _check_report(self, report: Report, asked: Request, size: int) -> None:
        for value in (report.norm, report.encoded_norm):
            if not 0 <= value < 1e18:
                raise InputError(f"The norm of its update must be in [0, 1e18), got {value!r}.")
        self.norm = report.norm
        # Without feedback the two are one; a client that says another one would be measured by it.
        self.encoded_norm = report.encoded_norm if asked.codec.feedback else report.norm
        rule = asked.rule
        if rule.nbytes is not None:
            given = int(rule.nbytes(self._stats, asked.context))
            # What a short code says may be many times as long as the update, and right on average.
            least = asked.codec_of(int(given / _LONGER)).nbytes(size) if self.code else 0
            if not least <= len(self.code) <= _LONGER * given:
                raise InputError(
                    f"its code has {len(self.code)} bytes, and `{rule.name}` gave it {given}."
                )
        if rule.probability is not None:
            chance = report.probability
            if set(rule.looks_at) <= _KNOWN:
                # A client that says a small number of itself would count many times.
                chance = float(rule.probability(self._stats, asked.context))
            for value in (chance, report.own):
                if not 1e-6 <= value <= 1:
                    raise InputError(f"A probability must be in [1e-6, 1], got {value!r}.")
            self.probability = chance * report.own
            _weight(asked.weighted_by, self.examples / self.probability)

    def charged(self, asked: Request) -> int:
        """The bytes that count towards a budget. Weights that came whole are charged as the code
        that `speak` would have sent: the others cannot make up for the rest."""
        if self.code or asked.rule.nbytes is None:
            return len(self.code)
        return int(asked.rule.nbytes(self._stats, asked.context))

    @property
    def _stats(self) -> ClientStats:
        """What the server knows of what the client's rule looked at."""
        return ClientStats(np.float64(self.norm), 0.5, examples=np.float64(self.examples))


def _weight(name: str, examples: Any) -> float:
    # Within these bounds, sums over clients stay finite in float32.
    if examples is None or isinstance(examples, list) or not 1e-18 < examples < 1e18:
        raise InputError(f"`{name}` must be in (1e-18, 1e18), got {examples!r}.")
    return float(examples)


@dataclass(frozen=True)
class Limits:
    """How far one reply can move the mean: bounds on what it weighs and how long its update is."""

    weight: float = math.inf  # times the median of all that a reply can weigh
    norm: float = math.inf  # times the upper quartile that an update can be long
    # Whether the mean is over speakers alone. Each is then heard louder the fewer they are,
    # and both limits shrink with the share that speaks, to 2 at the least.
    alone: bool = False
    log: logging.Logger = log

    def bound_weights(self, found: Sequence[Reply], weighted_by: str) -> None:
        """Bounds what each reply weighs by so many times the lower median, and a silent one by
        twice that: it did not say itself what stands in for it. A speaker's n/p is beside what all
        would weigh if they had spoken, a silent one's n beside all n."""
        if math.isinf(self.weight) or not found:
            return
        speaking = median_low([reply.examples / reply.probability for reply in found])
        silent = median_low([reply.examples for reply in found])
        limit = self._shrunk(self.weight, sum(reply.spoke for reply in found), len(found))
        for reply in found:
            most = limit * speaking if reply.spoke else min(limit, _LEAST) * silent
            if reply.weight > most:
                self.log.info("Taciturn: node %s weighs %g, too much beside the median: it counts "
                              "as %g.", reply.node, reply.weight, most)  # fmt: skip
                reply.examples = most * reply.probability if reply.spoke else most
                reply.metrics = {**reply.metrics, weighted_by: reply.examples}

    def bound_buffers(self, found: Sequence[Reply], layout: Layout, sent: Arrays) -> None:
        """Bounds how far a reply can move each buffer and counter: n times the distance, by so many
        times the upper quartile of all replies."""
        for name in layout.averaged if found and math.isfinite(self.norm) else ():
            before = sent[name].astype(float)
            moves = [reply.arrays[name] - before for reply in found]
            lengths = [reply.examples * float(np.linalg.norm(move))
                       for reply, move in zip(found, moves, strict=True)]  # fmt: skip
            most = self.norm * _upper_quartile([x for x in lengths if x] or [0.0])
            for reply, move, length in zip(found, moves, lengths, strict=True):
                if length > most:
                    self.log.info("Taciturn: node %s moves `%s` too far beside the upper quartile: "
                                  "it counts as %.3g of that.",
                                  reply.node, name, most / length)  # fmt: skip
                    values = before + move * (most / length)
                    dtype = reply.arrays[name].dtype
                    reply.arrays = {**reply.arrays, name: values.astype(dtype)}

    def shorten(self, speakers: Sequence[Reply], most: float) -> bool:
        """Sets the `scale` of updates that are longer than that; whether there are any."""
        for reply in speakers:
            if reply.length > most:
                self.log.info("Taciturn: the update of node %s has the norm %g, too long beside "
                              "the upper quartile: it is shortened to %g.",
                              reply.node, reply.length, most)  # fmt: skip
                reply.scale = most / reply.length
        return any(reply.scale != 1 for reply in speakers)

    def longest(self, speakers: Sequence[Reply], silent: Sequence[float]) -> float:
        """How long an update, or what stands in for one, can be."""
        if math.isinf(self.norm):
            return math.inf
        limit = self._shrunk(self.norm, len(speakers), len(speakers) + len(silent))
        if said := [reply.length for reply in speakers if reply.length > 0]:
            return limit * _upper_quartile(said, silent)
        # Where nobody speaks, the silent are measured by each other.
        others = [norm for norm in silent if norm > 0]
        return limit * median_low(others) if others else math.inf

    def _shrunk(self, limit: float, speakers: int, everyone: int) -> float:
        share = speakers / everyone if self.alone and everyone else 1.0
        return max(min(_LEAST, limit), limit * share)


def _upper_quartile(speakers: Sequence[float], silent: Sequence[float] = ()) -> float:
    """That of the speakers' norms; where they are fewer than half, of the longer half of all.

    The quartile and not the median, because honest clients may be few that have much to say. One
    that speaks alone is measured by the silent, of whom those with a zero update are left out.
    """
    needed = (len(speakers) + len(silent) + 1) // 2 - len(speakers)
    longest = sorted(silent, reverse=True)[: max(needed, 0)]
    norms = sorted([*speakers, *(norm for norm in longest if norm > 0)])
    return norms[3 * (len(norms) - 1) // 4]

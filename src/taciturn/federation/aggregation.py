"""From the replies of a round to its tally."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from taciturn.core import tally
from taciturn.core.arrays import add_scaled
from taciturn.core.arrays import norm as norm_of
from taciturn.core.codecs import Codec, float32, from_bytes
from taciturn.core.tally import RoundConfig
from taciturn.errors import InputError
from taciturn.federation.layout import Arrays, Layout, measure
from taciturn.federation.protocol import Request
from taciturn.federation.replies import Limits, Reply, Traffic

_MOST_NOISE = 0.9  # of a square that is taken for noise: it is an expectation


@dataclass(kw_only=True)
class Round:
    """What is known of a round: when its messages are sent, and then of what came back."""

    config: RoundConfig  # what the core knows
    request: Request  # what all clients are asked
    layout: Layout  # of the model
    limits: Limits  # how far a reply can move the mean
    sent: Arrays  # what clients train from
    log: logging.Logger
    asked: set[str] = field(default_factory=set)  # the clients' nodes
    down: Traffic = field(default_factory=Traffic)
    speakers: list[Reply] = field(default_factory=list)  # those that count, sorted by node
    silent: list[Reply] = field(default_factory=list)
    errors: int = 0
    rejected: list[str] = field(default_factory=list)  # why each of them was
    missing: int = 0
    up: Traffic = field(default_factory=Traffic)
    noise: float = 0.0  # the share of codecs and draws in the square of the mean update

    @property
    def everyone(self) -> list[Reply]:
        return self.speakers + self.silent

    def reject(self, node: str, reason: object) -> None:
        self.rejected.append(f"{reason}")
        self.log.warning("Taciturn: the reply of node %s is rejected: %s", node, reason)


def accepted(now: Round, replies: Iterable[Reply], check: Callable[[Reply], None]) -> list[Reply]:
    """The first replies of those who were asked that pass a check and whose metrics have the
    commonest form: others have no mean. Of several such forms, the metrics that all have are kept.
    Replies are sorted by node, and what each weighs is bounded."""
    found, answered = [], set()
    for reply in replies:
        now.up = Traffic(*map(sum, zip(now.up, reply.traffic, strict=True)))
        if reply.error is not None:
            now.errors += 1
            now.log.warning("Taciturn: node %s failed: %s", reply.node, reply.error)
            continue
        try:
            if reply.node not in now.asked or reply.node in answered:
                raise InputError("it was not asked, or had answered.")
            answered.add(reply.node)
            if reply.problem is not None:
                raise InputError(reply.problem)
            check(reply)
            found.append(reply)
        except InputError as error:
            now.reject(reply.node, error)
    now.missing = max(0, len(now.asked) - len(answered) - now.errors)
    found.sort(key=lambda reply: reply.node)  # sums must not depend on who was first
    forms = Counter(reply.form for reply in found)
    leading = [form for form, count in forms.items() if count == max(forms.values())]
    for reply in found:
        if reply.form not in leading:
            now.reject(reply.node, f"its metrics {reply.form} are not those of most.")
    kept = [reply for reply in found if reply.form in leading]
    if len(leading) > 1:
        common = set(leading[0][1:]).intersection(*(form[1:] for form in leading))
        names = {key for key, _ in common}
        now.log.warning("Taciturn: nodes report different metrics; %s are kept.", sorted(names))
        for reply in kept:
            reply.name = leading[0][0]
            reply.metrics = {key: x for key, x in reply.metrics.items() if key in names}
    now.limits.bound_weights(kept, now.request.weighted_by)
    return kept


def mean_of(replies: list[Reply], layout: Layout) -> Reply:
    """A reply with the means of metrics and of arrays that always travel, and the weight of all."""
    total = sum(reply.examples for reply in replies)

    def mean(name: str, values: str) -> np.ndarray:
        return np.asarray(sum(np.multiply(getattr(reply, values)[name], reply.examples / total)
                              for reply in replies))  # fmt: skip

    metrics = {name: mean(name, "metrics").tolist() for name in replies[0].metrics}
    arrays = {layer.name: mean(layer.name, "arrays") for layer in layout.rest}
    return Reply("", metrics, arrays, name=replies[0].name, examples=total)


def add_up(now: Round, total: np.ndarray, keep: bool = False) -> None:
    """Writes Σ n·Δ/p over the speakers to `total`, and rejects updates that do not fit their norms.
    With `keep`, decoded updates stay with the replies."""
    _sum(now, total, keep)
    limits = now.limits
    most = max(float(now.config.silent_at_most), 0.0)  # a threshold may lie below 0
    silent = [min(reply.norm, most) for reply in now.silent]
    longest = limits.longest(now.speakers, silent)
    for reply, norm in zip(now.silent, silent, strict=True):
        reply.norm = min(norm, longest)  # what stands in for it may be as long as it says it is
    if limits.shorten(now.speakers, longest):
        _sum(now, total, keep)  # once more, with the shortened updates
        for reply in now.speakers:
            reply.norm *= reply.scale
    if now.noise:
        now.noise = min(now.noise / float(norm_of(total)) ** 2, _MOST_NOISE)


def _sum(now: Round, total: np.ndarray, keep: bool) -> None:
    layout, before = now.layout, now.layout.views(now.sent)
    coded, now.noise = [reply for reply in now.speakers if reply.code], 0.0
    fits = [reply for reply in now.speakers if reply.weights]
    while True:
        whole, weights = fits, [reply.weight * reply.scale for reply in fits]
        norms = measure(before, [reply.weights for reply in fits], weights, total)
        fits = [reply for reply, norm in zip(whole, norms, strict=True)
                if _accept(now, reply, float32(), norm, layout.size)]  # fmt: skip
        if len(fits) == len(whole):  # else the sum holds what was rejected, and is made anew
            break
    fits += [reply for reply in coded if _add_coded(now, reply, total, keep)]
    now.speakers = sorted(fits, key=lambda reply: reply.node)


def _add_coded(now: Round, reply: Reply, total: np.ndarray, keep: bool) -> bool:
    """Adds the update in a code to the sum, and says whether it fits."""
    asked, size = now.request, len(total)
    try:
        codec = asked.codec_of(len(reply.code))
        code = from_bytes(codec, reply.code, size)
    except InputError as error:
        now.reject(reply.node, error)
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        update = codec.decode(code, asked.key(reply.node), size)
        if not _accept(now, reply, codec, float(norm_of(update)), size):
            return False
    weight, p = reply.weight * reply.scale, reply.probability
    add_scaled(total, total.dtype.type(weight), update, donate=True)
    if codec.unbiased:
        now.noise += (weight * reply.norm) ** 2 * p * (1 + codec.error(size) - p)
    reply.update = update * np.float32(reply.scale) if keep else None
    return True


def _accept(now: Round, reply: Reply, codec: Codec, actual: float, size: int) -> bool:
    """Whether a reply's norm can be that of its update. That of a lossless code is measured."""
    reported = actual if reply.encoded_norm is None else reply.encoded_norm
    if not tally.fits(codec, np.float64(reported), np.float64(actual), size):
        now.reject(
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

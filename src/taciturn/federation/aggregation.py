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
    """What is known of a round when its messages are sent."""

    config: RoundConfig  # what the core knows
    request: Request  # what all clients are asked
    layout: Layout  # of the model
    limits: Limits  # how far a reply can move the mean
    sent: Arrays  # what clients train from
    log: logging.Logger
    asked: set[str] = field(default_factory=set)  # the clients' nodes
    down: Traffic = field(default_factory=Traffic)


@dataclass
class RoundReplies:
    """What came back in a round."""

    now: Round
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
        self.now.log.warning("Taciturn: the reply of node %s is rejected: %s", node, reason)


def accepted(
    heard: RoundReplies, replies: Iterable[Reply], asked: set[str], check: Callable[[Reply], None]
) -> list[Reply]:
    """The first replies of those who were asked that pass a check and whose metrics have the
    commonest form: others have no mean. Of several such forms, the metrics that all have are kept.
    Replies are sorted by node, and what each weighs is bounded."""
    now = heard.now
    found, answered = [], set()
    for reply in replies:
        heard.up = Traffic(*map(sum, zip(heard.up, reply.traffic, strict=True)))
        if reply.error is not None:
            heard.errors += 1
            now.log.warning("Taciturn: node %s failed: %s", reply.node, reply.error)
            continue
        try:
            if reply.node not in asked or reply.node in answered:
                raise InputError("it was not asked, or had answered.")
            answered.add(reply.node)
            if reply.problem is not None:
                raise InputError(reply.problem)
            check(reply)
            found.append(reply)
        except InputError as error:
            heard.reject(reply.node, error)
    heard.missing = max(0, len(asked) - len(answered) - heard.errors)
    found.sort(key=lambda reply: reply.node)  # sums must not depend on who was first
    forms = Counter(reply.form for reply in found)
    leading = [form for form, count in forms.items() if count == max(forms.values())]
    for reply in found:
        if reply.form not in leading:
            heard.reject(reply.node, f"its metrics {reply.form} are not those of most.")
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


def add_up(heard: RoundReplies, total: np.ndarray, keep: bool = False) -> None:
    """Writes Σ n·Δ/p over the speakers to `total`; rejects updates that do not fit their norms.

    With `keep`, decoded updates stay with the replies.
    """
    _sum(heard, total, keep)
    limits = heard.now.limits
    most = max(float(heard.now.config.silent_at_most), 0.0)  # a threshold may lie below 0
    silent = [min(reply.norm, most) for reply in heard.silent]
    longest = limits.longest(heard.speakers, silent)
    for reply, norm in zip(heard.silent, silent, strict=True):
        reply.norm = min(norm, longest)  # what stands in for it may be as long as it says it is
    if limits.shorten(heard.speakers, longest):
        _sum(heard, total, keep)  # once more, with the shortened updates
        for reply in heard.speakers:
            reply.norm *= reply.scale
    if heard.noise:
        heard.noise = min(heard.noise / float(norm_of(total)) ** 2, _MOST_NOISE)


def _sum(heard: RoundReplies, total: np.ndarray, keep: bool) -> None:
    layout, before = heard.now.layout, heard.now.layout.views(heard.now.sent)
    coded, heard.noise = [reply for reply in heard.speakers if reply.code], 0.0
    fits = [reply for reply in heard.speakers if reply.weights]
    while True:
        whole, weights = fits, [reply.weight * reply.scale for reply in fits]
        norms = measure(before, [reply.weights for reply in fits], weights, total)
        fits = [reply for reply, norm in zip(whole, norms, strict=True)
                if _accept(heard, reply, float32(), norm, layout.size)]  # fmt: skip
        if len(fits) == len(whole):  # else the sum holds what was rejected, and is made anew
            break
    fits += [reply for reply in coded if _add_coded(heard, reply, total, keep)]
    heard.speakers = sorted(fits, key=lambda reply: reply.node)


def _add_coded(heard: RoundReplies, reply: Reply, total: np.ndarray, keep: bool) -> bool:
    """Adds the update in a code to the sum, and says whether it fits."""
    asked, size = heard.now.request, len(total)
    try:
        codec = asked.codec_of(len(reply.code))
        code = from_bytes(codec, reply.code, size)
    except InputError as error:
        heard.reject(reply.node, error)
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        update = codec.decode(code, asked.key(reply.node), size)
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
    if not tally.fits(codec, np.float64(reported), np.float64(actual), size):
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

"""The client's side: what of its update leaves a node."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from taciturn.core import client
from taciturn.core.codecs import to_bytes
from taciturn.core.rules import ClientStats, Rule
from taciturn.errors import InputError
from taciturn.federation.layout import Arrays, Layout, difference, measure
from taciturn.federation.protocol import Report, Request

_LOSSES = ("train_loss", "loss")  # what apps call it
_LEAST = 1e-6  # probability that is reported


class Residual(NamedTuple):
    """What codes left out, on a node. What the last one did counts once the server says that it
    took that code: of one that was lost or rejected, nothing has reached the model."""

    accepted: np.ndarray  # of all codes that the server took
    next: np.ndarray  # of these and the last one
    round: Any  # in which the last one was made


class Answer(NamedTuple):
    """What leaves a node, and what it keeps."""

    speaks: bool
    report: Report
    code: bytes = b""  # of the update; none in silence, and where weights are sent as they are
    residual: Residual | None = None  # to keep; None without feedback, and in silence


def answer(
    asked: Request, sent: Arrays, trained: Arrays, metrics: Mapping[str, Any], node: str,
    own: Rule | None = None, kept: Residual | None = None,
) -> Answer:  # fmt: skip
    """What a node answers that `trained` from the arrays it was `sent`. `own` is a rule of the
    client's own, `kept` what codes have left out so far."""
    if missing := [name for name in sent if name not in trained]:
        raise InputError(f"`{missing[0]}` is not in it")
    layout = Layout.of(sent, asked.exclude)
    before, after, size = layout.views(sent), layout.views(trained), layout.size
    stats = _stats(asked, measure(before, [after])[0], metrics)
    decision = client.decide(asked.rule, stats, asked.context)
    speaks = bool(decision.speaks)
    report = Report(decision.norm, decision.norm, decision.probability)
    if own is not None:
        state = own.init(size, None)  # what it broadcasts, too
        speaks = speaks and bool(own.speaks(stats._replace(uniform=_uniform()), state))
        report = report._replace(own=max(getattr(state, "probability", 1.0), _LEAST))
    if not (asked.coded and speaks):
        return Answer(speaks, report)
    left_out = None
    if asked.codec.feedback:
        left_out = np.zeros(size, np.float32)
        if kept is not None and kept.next.shape == (size,):  # else the model is another one
            left_out = kept.next if asked.accepted >= kept.round else kept.accepted
    update, key = difference(before, after), asked.key(node)
    coded = client.encode(asked.codec, update, key, left_out, int(decision.nbytes))
    code = to_bytes(coded.codec, coded.code, size)
    if left_out is None or coded.residual is None:
        return Answer(True, report, code)
    report = report._replace(encoded_norm=float(coded.norm or 0.0))
    return Answer(True, report, code, Residual(left_out, coded.residual, asked.round))


def _stats(asked: Request, norm: float, metrics: Mapping[str, Any]) -> ClientStats:
    """What this client knows of itself, as far as the rule looks at it."""
    stats, rule = ClientStats(norm, _uniform(), silence=asked.silence), asked.rule
    loss = next((name for name in _LOSSES if name in metrics), _LOSSES[0])
    for figure, name in (("examples", asked.weighted_by), ("loss", loss)):
        if figure in rule.looks_at:
            value = metrics.get(name)
            if not isinstance(value, int | float):
                raise InputError(f"`{rule.name}` looks at the {figure}: report it as `{name}`")
            stats = stats._replace(**{figure: float(value)})
    return stats


def _uniform() -> float:
    """A draw that nobody else uses: from the system's entropy, so that no state is kept."""
    return float(np.random.default_rng().random())

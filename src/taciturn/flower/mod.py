"""The client mod: measures what training changed, and leaves the weights out of a silent reply."""

from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log

from taciturn.core import client
from taciturn.core.codecs import to_bytes
from taciturn.core.policy import parse_part
from taciturn.core.rules import ClientStats, Rule
from taciturn.errors import InputError
from taciturn.flower import downlink, protocol, records
from taciturn.flower.protocol import Report, Request
from taciturn.flower.records import Layout

_LOSSES = ("train_loss", "loss")  # what apps call it
_RESIDUAL = "taciturn.residual"  # the records of a node's state
_LEAST = 1e-6  # probability that is reported


def speak(rule: Rule | str | None = None) -> Mod:
    """A client mod that lets a client stay silent when the server's rule says so.

    It reports how far training moved the arrays and, in silence, takes the weights out of the
    reply. A client that speaks sends them in the codec that the server names. The mod must be
    listed first, so that it sees what leaves the device. Evaluation, and servers without
    `Taciturn`, are left alone.

    Args:
      rule: a rule of the client's own, `fixed` or `random`, as an object or as text such as
        `fixed:0.5`, which can only make it quieter. Where the server counts who speaks 1/p times,
        as under `optimal` and `budget`, clients with `fixed` answer with an error.
    """
    own = parse_part("rule", rule) if isinstance(rule, str) else rule
    if own is not None and (
        not isinstance(own, Rule) or own.name not in ("full", "fixed", "random")
    ):
        raise InputError(
            f"A client's own rule must need nobody else: full, fixed or random, got {rule!r}."
        )

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        try:
            has = downlink.receive(message, context)
        except InputError as error:
            log(WARNING, "taciturn: there is nothing to train from: %s", error)
            metrics = MetricRecord({protocol.HAS: [-1, 0]})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)
        record: Any = message.content.pop(protocol.REQUEST, None)
        if record is None:
            reply = call_next(message, context)
        else:
            reply = _trained(message, context, call_next, record, own)
        if has is not None and not reply.has_error():
            for told in protocol.metrics_of(reply.content).values():
                told[protocol.HAS] = has
        return reply

    return mod


def _trained(
    message: Message, context: Context, call_next: ClientAppCallable, record: Any, own: Rule | None
) -> Message:
    """The reply to a request; one that cannot be answered as asked leaves as it is."""
    protocol.separate(message.content, record)
    # The app may change the records it is given; the arrays in them it can only replace.
    sent = [ArrayRecord(dict(arrays)) for arrays in message.content.array_records.values()]
    node = message.metadata.dst_node_id
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    try:
        if len(sent) != 1:
            raise InputError(
                f"the request has {len(sent)} ArrayRecords, and `speak()` can compare with one only"
            )
        asked = protocol.read_request(record)
        if own is not None and own.name == "fixed" and asked.rule.probability is not None:
            problem = (
                f'`speak("fixed")` cannot be combined with the server\'s rule `{asked.rule.name}`, '
                "which counts who speaks 1/p times: a client's own rule must be `random` there."
            )
            log(WARNING, "taciturn: %s", problem)
            return Message(Error(code=0, reason=problem), reply_to=message)
        _answer(reply, sent[0], asked, own, node, context)
    except InputError as error:
        # Sent whole, it counts like any other, if the server can read it.
        log(WARNING, "taciturn: the reply is left as it is: %s", error)
        protocol.remark(reply.content, error)
    return reply


def _answer(
    reply: Message, sent: ArrayRecord, asked: Request, own: Rule | None, node: int, context: Context
) -> None:
    """Adds the report to the reply, and writes its weights in the codec or takes them out."""
    if len(reply.content.array_records) != 1 or len(reply.content.metric_records) != 1:
        raise InputError("it needs one ArrayRecord and one MetricRecord")
    name, trained = next(iter(reply.content.array_records.items()))
    metrics = next(iter(reply.content.metric_records.values()))
    layout = Layout.of(sent, asked.exclude)
    if missing := [layer for layer in layout.names if layer not in trained]:
        raise InputError(f"`{missing[0]}` is not in it")
    before, after = layout.views(sent), layout.views(trained)
    norm = records.measure(before, [after], layout.wide)[0]
    stats = _stats(asked, norm, metrics)
    decision = client.decide(asked.rule, stats, asked.context)
    speaks = bool(decision.speaks)
    report = Report(decision.norm, decision.norm, decision.probability)
    if own is not None:
        state = own.init(layout.size, None)  # what it broadcasts, too
        speaks = speaks and bool(own.speaks(stats._replace(uniform=_uniform()), state))
        report = report._replace(own=max(getattr(state, "probability", 1.0), _LEAST))
    if asked.coded or not speaks:
        del reply.content[name]
        if arrays := {key: trained[key] for key in trained if key not in layout.names}:
            reply.content[name] = ArrayRecord(arrays)
    code = b""
    if asked.coded and speaks:
        update = records.difference(before, after)
        code, norm = _encoded(update, norm, int(decision.nbytes), asked, node, context)
        report = report._replace(encoded_norm=norm)
    protocol.write_report(reply.content, report, code, asked.form)


def _encoded(
    update: np.ndarray, norm: float, nbytes: int, asked: Request, node: int, context: Context
) -> tuple[bytes, float]:
    """The code of an update, and the norm of what was encoded: with feedback another one than that
    of the update. What the code leaves out is then kept in the node's state."""
    residual = _residual(context, asked, len(update)) if asked.codec.feedback else None
    sent = client.encode(asked.codec, update, asked.key(node), residual, nbytes)
    code = to_bytes(sent.codec, sent.code, len(update))
    if residual is None:
        return code, norm
    kept = {"accepted": Array(residual), "next": Array(sent.residual)}
    context.state[_RESIDUAL] = ArrayRecord(kept)
    context.state[f"{_RESIDUAL}.round"] = MetricRecord({"round": asked.round})
    return code, float(sent.norm or 0.0)


def _stats(asked: Request, norm: float, metrics: MetricRecord) -> ClientStats:
    """What this client knows of itself, as far as the rule looks at it."""
    stats = ClientStats(norm, _uniform(), silence=asked.silence)
    loss = next((name for name in _LOSSES if name in metrics), _LOSSES[0])
    for figure, name in (("examples", asked.weighted_by), ("loss", loss)):
        if figure in asked.rule.looks_at:
            value = metrics.get(name)
            if not isinstance(value, int | float):
                raise InputError(
                    f"`{asked.rule.name}` looks at the {figure}: report it as `{name}`"
                )
            stats = stats._replace(**{figure: float(value)})
    return stats


def _residual(context: Context, asked: Request, size: int) -> np.ndarray:
    """What the codec left out of all codes that the server took; 0 where the model is another one.

    What the last code left out counts once the server says that it took that code: of one that was
    lost or rejected, nothing has reached the model.
    """
    if (kept := context.state.array_records.get(_RESIDUAL)) is not None:
        said = int(context.state.metric_records[f"{_RESIDUAL}.round"]["round"])
        residual = kept["next" if asked.accepted >= said else "accepted"].numpy()
        if residual.shape == (size,):
            return residual
    return np.zeros(size, np.float32)


def _uniform() -> float:
    """A draw that nobody else uses: from the system's entropy, so that no state is kept."""
    return float(np.random.default_rng().random())

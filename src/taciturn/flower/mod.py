"""The client mod: measures what training changed, and leaves the weights out of a silent reply."""

from logging import WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log

from taciturn.core.policy import parse_part
from taciturn.core.rules import Rule
from taciturn.errors import InputError
from taciturn.federation import client
from taciturn.federation.layout import Layout
from taciturn.federation.protocol import Request, remark_of
from taciturn.flower import downlink, protocol
from taciturn.flower.records import arrays_of, record_of

_RESIDUAL = "taciturn.residual"  # the record of a node's state


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
    if own is not None and getattr(own, "name", "") not in ("full", "fixed", "random"):
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
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    try:
        if len(sent) != 1:
            raise InputError(
                f"the request has {len(sent)} ArrayRecords, and `speak()` can compare with one only"
            )
        asked = Request.read(record)
        if own is not None and own.name == "fixed" and asked.rule.probability is not None:
            problem = (
                f'`speak("fixed")` cannot be combined with the server\'s rule `{asked.rule.name}`, '
                "which counts who speaks 1/p times: a client's own rule must be `random` there."
            )
            log(WARNING, "taciturn: %s", problem)
            return Message(Error(code=0, reason=problem), reply_to=message)
        found = _answer(reply, sent[0], asked, own, context)
        protocol.write_report(reply.content, found.report, found.code, tuple(record["form"]))
    except InputError as error:
        # Sent whole, it counts like any other, if the server can read it.
        log(WARNING, "taciturn: the reply is left as it is: %s", error)
        reply.content[protocol.REMARK] = ConfigRecord({"problem": remark_of(error)})
    return reply


def _answer(
    reply: Message, sent: ArrayRecord, asked: Request, own: Rule | None, context: Context
) -> client.Answer:
    """What the node answers; arrays that are not to leave it are taken out of the reply."""
    content = reply.content
    if len(content.array_records) != 1 or len(content.metric_records) != 1:
        raise InputError("it needs one ArrayRecord and one MetricRecord")
    name, trained = next(iter(content.array_records.items()))
    metrics = next(iter(content.metric_records.values()))
    before = arrays_of(sent)
    kept = context.state.array_records.get(_RESIDUAL) if asked.codec.feedback else None
    residual = None if kept is None else client.Residual(**arrays_of(kept))
    node = f"{reply.metadata.src_node_id}"
    found = client.answer(asked, before, arrays_of(trained), metrics, node, own, residual)
    if found.residual is not None:
        context.state[_RESIDUAL] = record_of(found.residual._asdict())
    if asked.coded or not found.speaks:
        del content[name]
        weights = Layout.of(before, asked.exclude).names
        if rest := {key: array for key, array in trained.items() if key not in weights}:
            content[name] = ArrayRecord(rest)
    return found

"""The client mod: measures what training changed, and leaves the weights out of a silent reply."""

from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, MetricRecord
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log

from taciturn.core import client
from taciturn.core.arrays import norm as arrays_norm
from taciturn.core.codecs import to_bytes
from taciturn.core.policy import parse_part
from taciturn.core.rules import Rule, Situation
from taciturn.errors import InputError
from taciturn.flower import downlink, protocol
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout
from taciturn.flower.sums import difference, norm

_LOSSES = ("train_loss", "loss")  # what apps call it

# Records in a node's state.
_KEPT, _RESIDUAL = "taciturn", "taciturn.residual"


def speak(rule: Rule | str | None = None) -> Mod:
    """A client mod that lets a client stay silent when the server's rule says so.

    It compares the arrays that the app returns with those it was sent, adds the norm of the
    difference to the reply's metrics and, in silence, takes the weights out of the reply. One who
    speaks sends them in the codec that the server names. The mod must be listed first, so that it
    sees what leaves the device. Evaluation, and a server that does not use `Taciturn`, are left
    alone.

    Args:
      rule: a rule of the client's own, `fixed` or `random`, as an object or as text such as
        `fixed:0.5`. The client then speaks when both rules say so: its own can only make it
        quieter.
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
            return downlink.lacking(message)
        reply = work(message, context, call_next)
        downlink.tell(reply, has)
        return reply

    def work(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        config = _config(message)
        if config is None:
            return call_next(message, context)
        if len(message.content.array_records) != 1:
            reply = call_next(message, context)
            if not reply.has_error():
                _leave(reply, f"the request has {len(message.content.array_records)} ArrayRecords, "
                       "and `speak()` can compare with one alone")  # fmt: skip
            return reply
        # The app may change the records it is given; the arrays in them it can only replace.
        sent = ArrayRecord(dict(next(iter(message.content.array_records.values()))))
        node = message.metadata.dst_node_id
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            _answer(reply, sent, protocol.read_request(config), own, node, context)
        except InputError as error:
            _leave(reply, error)
        return reply

    return mod


def _leave(reply: Message, problem: object) -> None:
    """Leaves a reply as it is: sent whole, it counts like any other, if it can be read."""
    log(WARNING, "taciturn: the reply is left as it is: %s", problem)
    protocol.remark(reply.content, problem)


def _config(message: Message) -> dict[str, Any] | None:
    """The server's config if this is a message that may be answered with silence."""
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return None
    if not message.has_content():
        return None
    for config in message.content.config_records.values():
        if protocol.RULE in config:
            return dict(config)
    return None


def _answer(
    reply: Message, sent: ArrayRecord, asked: Request, own: Rule | None, node: int, context: Context
) -> None:
    """Adds the norm to the reply, and writes its weights in the codec or takes them out."""
    if len(reply.content.array_records) != 1 or len(reply.content.metric_records) != 1:
        raise InputError("it needs one ArrayRecord and one MetricRecord")
    name, trained = next(iter(reply.content.array_records.items()))
    metrics = next(iter(reply.content.metric_records.values()))
    layout = Layout.of(sent, asked.exclude)
    missing = [layer for layer in layout.names if layer not in trained]
    if missing:
        raise InputError(f"`{missing[0]}` is not in it")
    before, after = layout.views(sent), layout.views(trained)
    situation = _situation(asked, norm(before, after, layout.wide), metrics, context)
    decision = client.decide(asked.rule, situation, asked.context)
    speaks = decision.speaks
    if own is not None and speaks:
        speaks = bool(
            own.speaks(situation._replace(uniform=_uniform()), own.init(layout.size, None))
        )
    metrics[protocol.NORM] = float(decision.norm)
    if asked.rule.probability is not None:
        metrics[protocol.PROBABILITY] = float(decision.probability)
    if "silence" in asked.rule.looks_at:
        context.state[_KEPT] = MetricRecord({"silence": 0 if speaks else situation.silence + 1})
    if speaks and not asked.coded:
        return
    arrays = {key: array for key, array in trained.items() if key not in set(layout.names)}
    if speaks:
        update = difference(before, after)
        if asked.codec.feedback:
            update += _residual(context, len(update))
            metrics[protocol.ENCODED_NORM] = float(arrays_norm(update))
        key, codec = asked.key(node), asked.codec
        if codec.lengths is not None and asked.rule.nbytes is not None:
            codec = codec.at(codec.lengths.fit(len(update), decision.nbytes))
        code = codec.encode(update, key)
        arrays[protocol.CODE] = _array(to_bytes(codec, code, len(update)))
        if codec.feedback:
            update -= codec.decode(code, key, len(update))
            context.state[_RESIDUAL] = ArrayRecord({"residual": Array(update)})
    if arrays:
        reply.content[name] = ArrayRecord(arrays)
    else:
        del reply.content[name]


def _situation(asked: Request, norm: float, metrics: MetricRecord, context: Context) -> Situation:
    """What this client knows of itself, as far as the rule looks at it."""
    rule, situation = asked.rule, Situation(norm, _uniform())
    if "examples" in rule.looks_at:
        examples = metrics.get(asked.weighted_by)
        if not isinstance(examples, int | float):
            raise InputError(f"`{rule.name}` looks at `{asked.weighted_by}`, and it is not there")
        situation = situation._replace(examples=float(examples))
    if "loss" in rule.looks_at:
        loss = next((metrics[key] for key in _LOSSES if key in metrics), None)
        if not isinstance(loss, int | float):
            raise InputError(f"`{rule.name}` looks at the loss: report it as `{_LOSSES[0]}`")
        situation = situation._replace(loss=float(loss))
    if "silence" in rule.looks_at:
        kept = context.state.metric_records.get(_KEPT, {}).get("silence", 0)
        situation = situation._replace(silence=max(int(kept), asked.silence))
    return situation


def _residual(context: Context, size: int) -> np.ndarray:
    """What codecs left out before: 0 on a new node, or where the model has another size."""
    record = context.state.array_records.get(_RESIDUAL)
    kept = np.zeros(size, np.float32) if record is None else record["residual"].numpy()
    return kept if kept.shape == (size,) else np.zeros(size, np.float32)


def _array(data: bytes) -> Array:
    return Array(np.frombuffer(data, np.uint8))


def _uniform() -> float:
    """A draw that nobody else uses: from the system's entropy, so that no state is kept."""
    return float(np.random.default_rng().random())

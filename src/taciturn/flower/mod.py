"""The client mod: measures what training changed, and leaves the weights out of a silent reply."""

from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log

from taciturn.core import client
from taciturn.core.policy import parse_part
from taciturn.core.rules import Rule, full
from taciturn.errors import InputError, UnknownName
from taciturn.flower.records import Layout
from taciturn.flower.sums import norm

# What the strategy writes into the config, and the mod into the metrics.
RULE, CONTEXT, EXCLUDE = "taciturn.rule", "taciturn.context", "taciturn.exclude"
NORM = "taciturn.norm"


def speak(rule: Rule | str | None = None) -> Mod:
    """A client mod that lets a client stay silent when the server's rule says so.

    It compares the arrays that the app returns with those it was sent, adds the norm of the
    difference to the reply's metrics and, in silence, takes the weights out of the reply. It must
    be listed first, so that it sees what leaves the device. Evaluation, and a server that does not
    use `Taciturn`, are left alone. Nothing is kept between rounds.

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
        asked = _asked(message)
        if asked is None:
            return call_next(message, context)
        # The app may change the records it is given; the arrays in them it can only replace.
        sent = ArrayRecord(dict(next(iter(message.content.array_records.values()))))
        reply = call_next(message, context)
        if not reply.has_error():
            _answer(reply, sent, asked, own)
        return reply

    return mod


def _asked(message: Message) -> dict[str, Any] | None:
    """The server's config if this is a message that may be answered with silence."""
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return None
    if not message.has_content() or len(message.content.array_records) != 1:
        return None
    for config in message.content.config_records.values():
        if RULE in config:
            return dict(config)
    return None


def _answer(reply: Message, sent: ArrayRecord, asked: dict[str, Any], own: Rule | None) -> None:
    """Adds the norm to the reply and takes the weights out of it in silence."""
    if len(reply.content.array_records) != 1 or len(reply.content.metric_records) != 1:
        log(WARNING, "taciturn: a reply needs one ArrayRecord and one MetricRecord; left as it is.")
        return
    name, trained = next(iter(reply.content.array_records.items()))
    layout = Layout.of(sent, asked[EXCLUDE])
    try:
        measured = norm(layout.views(sent), layout.views(trained), layout.wide)
    except (InputError, KeyError) as error:
        # What does not fit the model is for the server to reject: it knows what it sent.
        log(
            WARNING,
            "taciturn: the update cannot be measured (%s); the reply is left as it is.",
            error,
        )
        return
    rule, context = _rule(asked)
    reported, speaks = client.decide(rule, measured, context, _uniform())
    if own is not None and speaks:
        speaks = bool(own.speaks(reported, _uniform(), own.init().context))
    next(iter(reply.content.metric_records.values()))[NORM] = float(reported)
    if not speaks:
        rest = {key: array for key, array in trained.items() if key not in set(layout.names)}
        if rest:
            reply.content[name] = ArrayRecord(rest)
        else:
            del reply.content[name]


def _rule(asked: dict[str, Any]) -> tuple[Rule, float]:
    """The server's rule and its context; a rule that is unknown here makes the client speak."""
    try:
        return parse_part("rule", asked[RULE]), asked[CONTEXT]
    except UnknownName:
        log(WARNING, "taciturn: the rule `%s` is unknown here; speaking.", asked[RULE])
        everyone = full()
        return everyone, everyone.init().context


def _uniform() -> float:
    """A draw that nobody else uses: from the system's entropy, so that no state is kept."""
    return float(np.random.default_rng().random())

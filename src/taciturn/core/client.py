"""The client's side of a round: trained weights in, message out (the paper's Algorithm 2)."""

import math
from typing import Any, NamedTuple

import numpy as np

from taciturn.core import arrays
from taciturn.core.arrays import Array, Scalar, check_flat, namespace
from taciturn.core.codecs import Codec
from taciturn.core.codecs.codec import Code
from taciturn.core.rules import ClientStats, Rule
from taciturn.core.tally import Message
from taciturn.errors import InputError


def respond(
    rule: Rule, weights: Array, trained: Array, examples: float, context: Any, uniform: Scalar, *,
    loss: Scalar = math.nan, silence: Scalar = 0,
) -> Message:  # fmt: skip
    """The message of a client that trained on n_k `examples`, from `weights` to `trained`.

    `context` came with the weights; `uniform`, `loss` and `silence` are as in `ClientStats`.
    """
    check_flat(weights)
    if trained.shape != weights.shape:
        raise InputError(
            f"The trained weights must have {weights.shape[0]} entries like the model, "
            f"got shape {tuple(trained.shape)}."
        )
    if not (math.isfinite(examples) and examples > 0):
        raise InputError(f"`examples` must be above 0, got {examples!r}.")
    with np.errstate(over="ignore", invalid="ignore"):
        update = trained - weights
        stats = ClientStats(arrays.norm(update), uniform, loss, silence, examples)
    speaks, norm, probability, nbytes = decide(rule, stats, context)
    spoken = update if speaks else None
    return Message(examples, norm, spoken, probability=probability, nbytes=int(nbytes))


class Decision(NamedTuple):
    """What a client does."""

    speaks: Scalar
    norm: Scalar  # that it reports
    probability: Scalar  # how likely it was to speak
    nbytes: Scalar  # that its code may have; 0 where the rule leaves that to the codec


def decide(rule: Rule, stats: ClientStats, context: Any) -> Decision:
    """What a client does, or each of many where the fields of `stats` are vectors. One with a norm
    that is not finite stays silent and reports NaN, which the server rejects."""
    xp = namespace(stats.norm)
    norm = xp.asarray(stats.norm)
    finite = xp.isfinite(norm)
    chance = 1.0 if rule.probability is None else rule.probability(stats, context)
    nbytes = 0 if rule.nbytes is None else rule.nbytes(stats, context)
    return Decision(  # a rule may say the same of everyone, in a plain number
        (finite & rule.speaks(stats, context))[()],
        xp.where(finite, norm, math.nan)[()],
        xp.where(finite, chance, xp.ones_like(norm))[()],
        xp.astype(xp.where(finite, nbytes, 0), xp.int32)[()],
    )


def must_speak(rule: Rule, context: Any, silence: int) -> bool:
    """Whether a client that was silent so often in a row speaks, whatever its update and draw."""
    return bool(rule.speaks(ClientStats(0.0, 1.0, 0.0, silence, 0.0), context))


class Encoded(NamedTuple):
    """An update as it is sent."""

    code: Code
    codec: Codec  # of that length
    norm: Scalar | None  # with feedback ‖Δ + e‖
    residual: Array | None  # with feedback what the code leaves out of Δ + e


def encode(
    codec: Codec, update: Array, key: Array, residual: Array | None = None, nbytes: int = 0
) -> Encoded:
    """The code of an update Δ, and what it leaves out. With feedback, `residual` is e, left out
    before; None for nothing. `nbytes` is that of a `Decision`."""
    size = update.shape[0]
    if codec.lengths is not None and nbytes:
        codec = codec.at(codec.lengths.fit(size, nbytes))
    if not codec.feedback:
        return Encoded(codec.encode(update, key), codec, None, None)
    update = update if residual is None else update + residual
    code = codec.encode(update, key)
    left_out = update - codec.decode(code, key, size)
    return Encoded(code, codec, arrays.norm(update), left_out)


def through(
    message: Message, codec: Codec, key: Array, residual: Array | None = None
) -> tuple[Message, Array | None]:
    """The message as the server reads it, and the residual after it, which silence leaves alone."""
    update = message.update
    if update is None:
        return message, residual
    sent, size = encode(codec, update, key, residual, message.nbytes), update.shape[0]
    decoded = sent.codec.decode(sent.code, key, size)
    nbytes = sent.codec.nbytes(size) if message.nbytes else 0
    return message._replace(update=decoded, encoded_norm=sent.norm, nbytes=nbytes), sent.residual

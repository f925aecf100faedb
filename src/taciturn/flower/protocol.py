"""What strategy and mod tell each other: the request's config, and what a reply holds besides.

Both sides come from this file; they need not be of the same version. A client that cannot read what
it is asked sends its weights whole, says why, and the round goes on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from taciturn import __version__
from taciturn.core.codecs import Codec, float32
from taciturn.core.hashing import fold
from taciturn.core.policy import parse_part, spell
from taciturn.core.rules import Rule
from taciturn.errors import InputError

VERSION = 4

# In the request's config.
PROTOCOL, RULE, CONTEXT = "taciturn.protocol", "taciturn.rule", "taciturn.context."
EXCLUDE, CODEC = "taciturn.exclude", "taciturn.codec"
WEIGHTED_BY = "taciturn.weighted_by"
SEED, ROUND = "taciturn.seed", "taciturn.round"
SILENCE, SERVER = "taciturn.silence", "taciturn.version"

# In the reply's metrics.
NORM, ENCODED_NORM = "taciturn.norm", "taciturn.encoded_norm"
PROBABILITY = "taciturn.probability"
# Of the public model that a node has: see `downlink.py`.
HAS_VERSION, CHECKSUM = "taciturn.has_version", "taciturn.checksum"
REPORTED = (NORM, ENCODED_NORM, PROBABILITY, HAS_VERSION, CHECKSUM)

CODE = "taciturn.code"  # the array with the bytes of all weights
REMARK = "taciturn"  # the config record of a reply that says what was not understood


@dataclass(frozen=True)
class Request:
    """What a client is asked.

    Attributes:
      rule, context: who speaks, and what the server broadcasts.
      codec: how the weights are written; with `float32` they stay as they are.
      exclude: names of arrays, or patterns, that are always sent.
      weighted_by: the metric that has n_k.
      seed, round: what the codec's key is made of; rounds are counted over all starts of a run.
      silence: how many times in a row the server heard this client's silence.
    """

    rule: Rule
    context: Any
    codec: Codec
    exclude: tuple[str, ...]
    weighted_by: str
    seed: int
    round: int
    silence: int = 0

    @property
    def coded(self) -> bool:
        return self.codec != float32()

    def key(self, node: int) -> np.ndarray:
        """The words that a node's codec draws from."""
        words = np.array([self.seed & 0xFFFFFFFF, self.seed >> 32 & 0xFFFFFFFF], np.uint32)
        for number in (self.round, node, node >> 32):
            words = fold(words, number)
        return words


def write_request(asked: Request, config: ConfigRecord) -> None:
    """Adds a request to the config of a message, but for the context."""
    config[PROTOCOL], config[SERVER] = VERSION, __version__
    config[RULE] = spell(asked.rule)
    config[EXCLUDE] = list(asked.exclude)
    config[WEIGHTED_BY] = asked.weighted_by
    if asked.coded:
        config[CODEC] = spell(asked.codec)
        config[SEED] = asked.seed
        config[ROUND] = asked.round


def write_context(context: Any, messages: Iterable[Message]) -> None:
    """Adds what the rule broadcasts to the configs that have a request; messages may share them."""
    for message in messages:
        for config in message.content.config_records.values():
            if RULE in config:
                for name, value in context._asdict().items():
                    config[CONTEXT + name] = float(value)


def tell_silence(message: Message, silence: int) -> Message:
    """The message, telling its node how many times in a row it was silent.

    A node that was started again has forgotten, and so has one in a new run of the same folder.
    """
    content = RecordDict(dict(message.content))
    for name, config in message.content.config_records.items():
        if RULE in config:
            content[name] = ConfigRecord(dict(config) | {SILENCE: silence})
    return Message(content=content, metadata=message.metadata)


def read_request(config: Mapping[str, Any]) -> Request:
    """The request in a config, or an `InputError` that says what is not understood."""
    version = config.get(PROTOCOL, 1)
    if version != VERSION:
        raise InputError(
            f"the server, taciturn {config.get(SERVER, 'of an older version')}, speaks version "
            f"{version} of the protocol, this node speaks {VERSION}"
        )
    rule = parse_part("rule", config[RULE])
    first = rule.broadcast(rule.init(1, 1), 1)  # what it broadcasts is in the config
    given = {key.removeprefix(CONTEXT): value for key, value in config.items()
             if key.startswith(CONTEXT)}  # fmt: skip
    if set(given) != set(first._fields):
        raise InputError(
            f"`{rule.name}` needs the numbers {sorted(first._fields)}, got {sorted(given)}"
        )
    codec = float32() if CODEC not in config else parse_part("codec", config[CODEC])
    return Request(
        rule, first._replace(**given), codec, tuple(config[EXCLUDE]),
        str(config.get(WEIGHTED_BY, "num-examples")), int(config.get(SEED, 0)),
        int(config.get(ROUND, 0)), int(config.get(SILENCE, 0)),
    )  # fmt: skip


def remark(content: RecordDict, problem: object) -> None:
    """Adds to a reply why it is not as it was asked for."""
    text = f"{problem}".rstrip(".")
    content[REMARK] = ConfigRecord({"problem": f"{text} (taciturn {__version__})"})


def read_remark(content: RecordDict) -> str | None:
    """Why a reply is not as it was asked for, if it says so."""
    record = content.config_records.get(REMARK)
    problem = None if record is None else record.get("problem")
    return None if problem is None else f"{problem}"[:300]


def without_reported(metrics: MetricRecord) -> MetricRecord:
    """What the app reported, without what the mod added."""
    return MetricRecord({key: value for key, value in metrics.items() if key not in REPORTED})

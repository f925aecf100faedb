"""What a server asks of a client, and what a client reports.

A client that cannot read what it is asked, such as one of another version, sends its weights whole,
says why, and the round goes on.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from taciturn import __version__
from taciturn.core.codecs import Codec, float32
from taciturn.core.policy import parse_part, spell
from taciturn.core.rules import Rule
from taciturn.errors import InputError

VERSION = 7
_CONTEXT = "context."  # begins the names of what the rule broadcasts
_AS_THEY_ARE = ("weighted_by", "seed", "round", "silence", "accepted")  # fields of a `Request`


def key_of(*parts: int | str) -> np.ndarray:
    """The two words that a codec draws from, made of the run's seed and what names the code."""
    return np.frombuffer(blake2b(repr(parts).encode(), digest_size=8).digest(), "<u4")


@dataclass(frozen=True)
class Request:
    """What a client is asked."""

    rule: Rule  # who speaks, and what the server broadcasts
    context: Any
    codec: Codec  # how the weights are written; with `float32` they stay as they are
    exclude: tuple[str, ...]  # names of arrays, or patterns, that are always sent
    weighted_by: str  # the metric that has n_k
    seed: int  # what the codec's key is made of; rounds are counted over all starts of a run
    round: int
    silence: int = 0  # how many times in a row the server heard this client's silence
    accepted: int = 0  # the last round in which the server took what this client said

    @property
    def coded(self) -> bool:
        return self.codec != float32()

    def codec_of(self, nbytes: int) -> Codec:
        """What a code of so many bytes is written in."""
        return self.codec if self.rule.nbytes is None else self.codec.at(nbytes)

    def key(self, node: str) -> np.ndarray:
        """The words that a node's codec draws from."""
        return key_of(self.seed, self.round, node)

    def written(self) -> dict[str, Any]:
        """The request in numbers, text and lists of text."""
        return {
            "protocol": VERSION, "version": __version__, "rule": spell(self.rule),
            "codec": spell(self.codec), "exclude": list(self.exclude),
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            **{_CONTEXT + name: float(value) for name, value in self.context._asdict().items()},
        }  # fmt: skip

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Request":
        """What was `written`, or an `InputError` that says what is not understood."""
        if (version := record.get("protocol")) != VERSION:
            raise InputError(
                f"the server, taciturn {record.get('version')}, speaks version {version} of the "
                f"protocol, this node speaks {VERSION}"
            )
        rule = parse_part("rule", record["rule"])
        first = rule.broadcast(rule.init(1, 1), 1)  # the type of the context
        context = {name: record.get(_CONTEXT + name) for name in first._fields}
        if missing := [name for name, value in context.items() if value is None]:
            raise InputError(
                f"`{rule.name}` needs the numbers {missing}, which the server did not send"
            )
        return cls(
            rule, first._replace(**context), parse_part("codec", record["codec"]),
            tuple(record["exclude"]), **{name: record[name] for name in _AS_THEY_ARE},
        )  # fmt: skip


class Report(NamedTuple):
    """What a client says of its update."""

    norm: float  # m_k
    encoded_norm: float  # that of what was encoded, with feedback; else m_k
    probability: float = 1.0  # how likely the server's rule let the client speak
    own: float = 1.0  # how likely a rule of the client's own did

    def packed(self) -> bytes:
        """How many numbers the report has up to the last that is not as usual, and these."""
        usual = Report(self.norm, self.norm)
        count = max(i for i in range(1, 5) if i == 1 or self[i - 1] != usual[i - 1])
        return struct.pack(f"<B{count}d", count, *self[:count])


def unpack(packed: Any, types: str = "") -> tuple[Report, tuple[Any, ...], bytes]:
    """The report, the numbers of these types behind it, and the code behind both."""
    try:
        count = packed[0]
        numbers = struct.unpack_from(format := f"<B{count}d{types}", packed)
        norm, end = numbers[1], count + 1
        report = Report(*numbers[1:end], *Report(norm, norm)[count:])
    except (struct.error, TypeError, IndexError):
        raise InputError("Its report cannot be read.") from None
    return report, numbers[end:], packed[struct.calcsize(format) :]


def remark_of(problem: object) -> str:
    """What a client says that does not do as it was asked."""
    return f"{f'{problem}'.rstrip('.')} (taciturn {__version__})"

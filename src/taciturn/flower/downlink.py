"""The way down on Flower's wire: nodes keep the public model, and get the messages since.

A request has the public model whole, or the messages that make it of what the node has, and in
either case its version. The reply says the version that the node has now and a checksum of it: the
server never assumes what a node has. What a node keeps lies in its `context.state`.

Flower stores that state after it has sent the reply. Where the state is large and rounds are short,
the next request meets the state before: such a node is sent the messages since the version before.
"""

import glob
import zlib
from collections import deque
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore import log

from taciturn.core import downlink
from taciturn.core.codecs import Codec, from_bytes, to_bytes
from taciturn.core.hashing import DOWN
from taciturn.core.policy import least_error, parse_part, spell
from taciturn.errors import InputError
from taciturn.federation.layout import Arrays, Layout, difference
from taciturn.federation.protocol import key_of
from taciturn.flower import records
from taciturn.flower.records import arrays_of, record_of

RECORD = "taciturn.down"  # the config record of a request, and the records of a node's state
_PUBLIC, _LOG = "downlink/public/", "downlink/log"  # names of saved arrays
_MESSAGES = "taciturn.messages"  # the array with the bytes of messages


class Downlink:
    """The server's side; `kept` is how many messages are kept, None for as many as pay."""

    def __init__(
        self, codec: Codec, layout: Layout, seed: int, initial: ArrayRecord, kept: int | None
    ) -> None:
        self.codec, self.layout, self.seed = codec, layout, seed
        self.public = initial  # P, with the arrays that always travel as they were last
        self.weights = initial  # θ, the inner strategy's model
        most = downlink.most_kept(codec, layout.size)
        self.log: deque[bytes] = deque(maxlen=most if kept is None else min(kept, most))
        self.version = 0  # how many messages there were
        self.sum: int | None = None  # the checksum of P; None before it is needed
        # The version that each node said it has, and the one before that; -1 for none.
        self.has: dict[str, tuple[int, int]] = {}
        self.late: set[str] = set()  # nodes that once had an older one than they said
        self.odd: set[str] = set()  # nodes that make another P, and get it whole

    def to(self, message: Message) -> Message:
        """The inner strategy's message, with what the node lacks of P in place of the model."""
        node, content = f"{message.metadata.dst_node_id}", RecordDict(dict(message.content))
        if len(names := list(content.array_records)) != 1:
            raise InputError(f"`down` needs requests with one ArrayRecord, got {len(names)}.")
        exclude = [glob.escape(layer.name) for layer in self.layout.rest]  # no patterns
        about = ConfigRecord({"codec": spell(self.codec, without="feedback"), "seed": self.seed,
                              "version": self.version, "exclude": exclude})  # fmt: skip
        since = self.has.get(node, (-1, -1))[node in self.late]
        missed = self.version - since  # more than there are where it has none
        if node in self.odd or missed > len(self.log):
            content[names[0]] = self.public
        else:
            about["since"] = since
            sent = b"".join(list(self.log)[len(self.log) - missed :])
            messages = {_MESSAGES: Array(np.frombuffer(sent, np.uint8))}
            content[names[0]] = ArrayRecord(self.layout.rest_of(self.public) | messages)
        content[RECORD] = about
        return Message(content=content, metadata=message.metadata)

    def check(self, node: str, said: Any) -> None:
        """Notes what a node says that it has; raises where that is not P."""
        knew = self.has.pop(node, None)
        if said is None and knew is None:
            return  # a node without the mod, which got P whole
        version, found = said if isinstance(said, list) and len(said) == 2 else (None, None)
        if version != self.version:
            if knew is not None:
                self.late.add(node)
            raise InputError(
                f"it has version {version} of the public model, and this is {self.version}."
            )
        if self.sum is None:
            self.sum = checksum(self.public, self.layout)
        if found != self.sum:
            if knew is not None:
                self.odd.add(node)
            raise InputError(
                f"its public model has the checksum {found}, and that of the server {self.sum}: "
                "it gets the model whole."
            )
        log(INFO, "Taciturn: node %s has version %d of the public model, checksum %d.",
            node, self.version, self.sum)  # fmt: skip
        self.has[node] = (self.version, -1 if knew is None else knew[0])

    def publish(self, weights: ArrayRecord) -> ArrayRecord:
        """P after a round that ended with these weights; the message goes to the log."""
        self.weights, size = weights, self.layout.size
        before, after = (self.layout.views(arrays_of(x)) for x in (self.public, weights))
        ahead = difference(before, after)
        key = key_of(self.seed, DOWN, self.version)
        sent = to_bytes(self.codec, self.codec.encode(ahead, key), size)
        moved = _moved(self.codec, self.layout, self.public, sent, key)
        self.public = ArrayRecord({**moved, **self.layout.rest_of(weights)})
        self.version, self.sum = self.version + 1, None
        self.log.append(sent)
        return self.public

    def go_on(self, version: int, seed: int, weights: ArrayRecord, tensors: Arrays) -> None:
        """Goes on with a run that is started again; what nodes have now is not known."""
        self.version, self.seed, self.weights, self.sum = version, seed, weights, None
        self.public = record_of({name: tensors[_PUBLIC + name] for name in weights})
        self.log.extend(row.tobytes() for row in tensors[_LOG])

    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays to save: P and the log."""
        sent = np.frombuffer(b"".join(self.log), np.uint8)
        sent = sent.reshape(len(self.log), self.codec.nbytes(self.layout.size))
        return {_LOG: sent} | {_PUBLIC + name: a for name, a in arrays_of(self.public).items()}


def receive(message: Message, context: Context) -> list[int] | None:
    """On a node: puts the public model into a request in place of messages, and keeps it. Returns
    what the reply must say; None where the server sends no public models. Raises where the node
    lacks the model that the messages build on."""
    about: Any = message.content.pop(RECORD, None)
    if about is None:
        return None
    name, sent = next(iter(message.content.array_records.items()))
    version, public = about["version"], ArrayRecord(dict(sent))
    if "since" in about:
        kept = context.state.array_records.get(RECORD)
        had: Any = context.state.metric_records.get(f"{RECORD}.version", {}).get("version", -1)
        if kept is None or not about["since"] <= had <= version:
            raise InputError(f"it has version {had} of the public model")
        public = _caught_up(kept, sent, about, had)
    context.state[RECORD] = public
    context.state[f"{RECORD}.version"] = MetricRecord({"version": version})
    message.content[name] = ArrayRecord(dict(public))
    return [version, checksum(public, Layout.of(arrays_of(public), about["exclude"]))]


def checksum(record: ArrayRecord, layout: Layout) -> int:
    """The checksum of the bytes of all weights, in their order."""
    found = 0
    for layer in layout.views(arrays_of(record)):
        found = zlib.crc32(np.ascontiguousarray(layer).data, found)
    return found


def _caught_up(kept: ArrayRecord, sent: ArrayRecord, about: Any, had: int) -> ArrayRecord:
    """The public model that messages make of the one that a node had."""
    layout = Layout.of(arrays_of(kept), about["exclude"])
    codec = least_error(parse_part("codec", about["codec"]))
    since, length = about["since"], codec.nbytes(layout.size)
    data = records.view(sent[_MESSAGES]).tobytes()
    if len(data) != length * (about["version"] - since):
        raise InputError(f"the messages have {len(data)} bytes")
    for version in range(had, about["version"]):
        one = data[(version - since) * length :][:length]
        kept = _moved(codec, layout, kept, one, key_of(about["seed"], DOWN, version))
    return ArrayRecord({**kept, **layout.rest_of(sent)})


def _moved(
    codec: Codec, layout: Layout, public: ArrayRecord, sent: bytes, key: np.ndarray
) -> ArrayRecord:
    """P after a message; the arrays that always travel stay as they are."""
    zero = np.zeros(layout.size, np.float32)
    update = downlink.moved(codec, zero, from_bytes(codec, sent, layout.size), key)
    weights = records.moved(layout, public, update)
    return ArrayRecord({**public, **weights})

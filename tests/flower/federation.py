"""A federation in one process: Flower's apps and strategies, without its network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from taciturn.flower import protocol, speak

# Flower sets these where it starts an app; a message cannot be made without them.
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


def record(**arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def model(size: int = 6) -> ArrayRecord:
    """Two arrays, `size` weights in all."""
    return record(a=np.zeros((2, size // 4), np.float32), b=np.zeros(size - size // 4 * 2, "f4"))


def flat(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def context(node: int) -> Context:
    return Context(0, node, {"partition-id": node}, RecordDict(), {})


def pulled(targets: Sequence[np.ndarray], examples: Sequence[int], rate: float = 0.5, mods=None):
    """An app whose client k moves `rate` of the way to its target; exact to repeat in a loop."""
    app = ClientApp(mods=[speak()] if mods is None else mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = context.node_config["partition-id"]
        arrays = message.content["arrays"]
        trained, at = {}, 0
        for name, array in arrays.items():
            weights = array.numpy()
            target = targets[k][at : at + weights.size].reshape(weights.shape)
            at += weights.size
            trained[name] = Array(weights + weights.dtype.type(rate) * (target - weights))
        metrics = MetricRecord({"num-examples": examples[k], "train_loss": float(k) + 1.0})
        content = RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.5, "loss": 2.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class LocalGrid(Grid):
    """Hands messages to an app and its replies back.

    Args:
      app: one for all nodes.
      nodes: how many there are.
      late: nodes whose replies never arrive.
      broken: nodes whose replies are errors.
      tamper: `(node, reply) -> reply`, for what a node can do wrong.
    """

    def __init__(self, app, nodes, late=(), broken=(), tamper=None) -> None:
        self.app, self.nodes, self.late, self.broken = app, nodes, set(late), set(broken)
        self.tamper = tamper or (lambda node, reply: reply)
        self.received: list[Message] = []
        self.contexts = {node: context(node) for node in range(nodes)}

    def set_run(self, run) -> None:
        pass

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(range(self.nodes))

    def get_nodes(self):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout=None) -> list[Message]:
        replies = []
        for message in sorted(messages, key=lambda message: message.metadata.dst_node_id):
            node = message.metadata.dst_node_id
            if node in self.late:
                continue
            if node in self.broken:
                replies.append(Message(Error(code=0, reason="out of order"), reply_to=message))
                continue
            # What goes over a network is a copy.
            copy = RecordDict(
                {name: type(item)(dict(item)) for name, item in message.content.items()}
            )
            sent = Message(content=copy, metadata=message.metadata)
            replies.append(self.tamper(node, self.app(sent, self.contexts[node])))
        self.received = replies or self.received  # nobody may be asked to evaluate
        return replies


def config(**values) -> ConfigRecord:
    return ConfigRecord(values)


def said(reply: Message) -> protocol.Said:
    """What a reply says beside its arrays."""
    return protocol.read_said(reply.content)


def restate(content: RecordDict, code: bytes | None = None, **changes: float) -> None:
    """Makes the mod say something else: other numbers, or another code."""
    found = protocol.read_said(content)
    del content[found.name]
    content[found.name] = found.metrics
    report = found.report._replace(**changes)
    protocol.write_report(content, report, found.code if code is None else code)

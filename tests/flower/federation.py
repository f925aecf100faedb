"""A federation in one process: Flower's apps and strategies, without its network."""

from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.supercore.task_identity import TaskIdentity

from taciturn.core import client, downlink, server, tally
from taciturn.core.hashing import DOWN
from taciturn.core.policy import parse
from taciturn.federation.protocol import Request, key_of
from taciturn.federation.replies import Reply
from taciturn.flower import Taciturn, protocol, speak

# Flower sets these where it starts an app; a message cannot be made without them.
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

NODES, SIZE, SEED, BAD = 5, 10, 7, 3  # `BAD` is the node that does something wrong
EXAMPLES = (10, 20, 30, 40, 50)


def record(**arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def numpy(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items()}


def model(size: int = SIZE) -> ArrayRecord:
    """Two arrays, `size` weights in all."""
    return record(a=np.zeros((2, size // 4), np.float32), b=np.zeros(size - size // 4 * 2, "f4"))


def flat(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def context(node: int) -> Context:
    return Context(0, node, {"partition-id": node}, RecordDict(), {})


def targets(seed=0, nodes=NODES, size=SIZE) -> np.ndarray:
    """Where each client wants the model to be."""
    spread = np.linspace(0.2, 2.0, nodes)[:, None]
    draws = np.random.default_rng(seed).standard_normal((nodes, size))
    return (1 + spread * draws).astype(np.float32)


def app_of(step, mods=None) -> ClientApp:
    """An app whose client k makes `(arrays, metrics)` of `step(k, arrays)`."""
    app = ClientApp(mods=[speak()] if mods is None else mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = numpy(message.content["arrays"])
        trained, metrics = step(context.node_config["partition-id"], arrays)
        content = RecordDict({"arrays": record(**trained), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.5, "loss": 2.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def toward(arrays, target: np.ndarray, rate: float) -> dict[str, np.ndarray]:
    """Arrays `rate` of the way from these to the target."""
    moved, at = {}, 0
    for name, weights in arrays.items():
        part = target[at : at + weights.size].reshape(weights.shape)
        at += weights.size
        moved[name] = weights + weights.dtype.type(rate) * (part - weights)
    return moved


def pulled(targets: Sequence[np.ndarray], examples=EXAMPLES, rate: float = 0.5, mods=None):
    """An app whose client k moves `rate` of the way to its target; exact to repeat in a loop."""

    def step(k, arrays):
        metrics = {"num-examples": examples[k], "train_loss": k + 1.0}
        return toward(arrays, targets[k], rate), metrics

    return app_of(step, mods)


class LocalGrid:
    """Hands messages to an app and its replies back.

    Args:
      app: one for all nodes.
      nodes: how many there are.
      late: nodes whose replies never arrive.
      broken: nodes whose replies are errors.
      tamper: `(node, reply) -> reply`, for what a node can do wrong.
    """

    def __init__(self, app, nodes, late=(), broken=(), tamper=None) -> None:
        self.app, self.late, self.broken = app, set(late), set(broken)
        self.tamper = tamper or (lambda node, reply: reply)
        self.received: list[Message] = []
        self.contexts = {node: context(node) for node in range(nodes)}

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

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


class Recorded:
    """Keeps what a strategy was given."""

    def aggregate_train(self, server_round, replies):
        self.seen = list(replies)
        return super().aggregate_train(server_round, self.seen)


class Spy(Recorded, flower.FedAvg):
    """A strategy of somebody's own that averages."""


def run(
    policy=None, rounds=1, inner=flower.FedAvg, wanted=None, grid=None, start=None, tamper=None,
    late=(), broken=(), mods=None, evaluate_fn=None, examples=EXAMPLES, **options,
):  # fmt: skip
    """A federation from its first round to the end: strategy, Flower's result, and the grid.

    `inner` is a strategy or a class; `options` are those of `Taciturn`.
    """
    wanted = targets() if wanted is None else wanted
    inner = inner(fraction_evaluate=0.0) if isinstance(inner, type) else inner
    app = pulled(wanted, examples, mods=mods)
    grid = grid or LocalGrid(app, len(wanted), late, broken, tamper)
    strategy = Taciturn(inner, policy, **{"seed": SEED} | options)
    start = model(len(wanted[0])) if start is None else start
    result = strategy.start(grid, start, num_rounds=rounds, evaluate_fn=evaluate_fn)
    return strategy, result, grid


def plain_loop(policy, wanted, rounds, step=None):
    """The core's own loop over clients as in `pulled`, without limits.

    Returns the last state, what each client's codec left out, and how many spoke in each round.
    The weights are those of `step(t, complete)`, if given, to whom the silent have their stand-in.
    """
    policy, kept, spoke = parse(policy), [None] * len(wanted), []
    state = server.init(policy, np.zeros(wanted.shape[1], np.float32), rounds=rounds)
    for t in range(1, rounds + 1):
        opened = server.open(policy, state.memory, len(wanted))
        asked = Request(policy.rule, opened.context, policy.codec, (), "n", SEED, t)
        sent = downlink.trained_from(state)
        stand_in, complete = sent + policy.stand_in.predict(state.memory.stand_in), []
        heard = tally.start(sent)
        for k, target in enumerate(wanted):
            trained = sent + np.float32(0.5) * (target - sent)
            said = client.respond(policy.rule, sent, trained, EXAMPLES[k], opened.context, 0.0)
            read, kept[k] = client.through(said, policy.codec, asked.key(f"{k}"), kept[k])
            heard = tally.add(heard, read, opened, policy.codec)
            complete.append((stand_in if said.update is None else trained).astype("f4"))
        state, info = server.close(policy, state, heard)
        if step is not None:
            state = state._replace(weights=step(t, complete))
        state = downlink.publish(policy, state, key_of(SEED, DOWN, t - 1))
        spoke.append(int(info.spoke))
    return state, kept, spoke


def mean_of(wanted, examples=EXAMPLES) -> np.ndarray:
    """The first mean update of `pulled` where these are the weights of all."""
    return 0.5 * np.asarray(examples, float) @ wanted / np.sum(examples)


def claim(metric, value):
    """A change for `bad`: another value of this metric."""
    return lambda content: content["metrics"].update({metric: value})


def bad(change):
    """Changes the reply of node `BAD` on its way: `(content) -> None`, or another message."""

    def tamper(node, reply):
        if node == BAD:
            items = {name: type(item)(dict(item)) for name, item in reply.content.items()}
            content = RecordDict(items)
            if protocol.PACKED in content:
                restate(content)  # a node need not leave out the names of its metrics
            reply = Message(content=content, metadata=reply.metadata)
            change(content)
        return reply

    return tamper


def said(content: RecordDict) -> Reply:
    """What a reply of the app `pulled` says."""
    known = protocol.form_of("metrics", {"num-examples": 1, "train_loss": 0.0})
    found = Reply("")
    protocol.read_reply(found, content, known if protocol.PACKED in content else ())
    return found


def restate(content: RecordDict, code: bytes | None = None, **changes: float) -> None:
    """Makes the mod say something else: other numbers, or another code."""
    found = said(content)
    del content[next(iter(protocol.metrics_of(content)))]
    content[found.name] = MetricRecord(found.metrics)
    report = found.report._replace(**changes)
    protocol.write_report(content, report, found.code if code is None else code)

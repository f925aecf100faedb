"""The strategy wrapper: rounds in which clients may be silent, around a strategy that averages."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import QFedAvg, Result, Strategy
from flwr.supercore.logger import FLOWER_LOGGER, log

from taciturn.checks import whole
from taciturn.core import codecs, rules, standins
from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError
from taciturn.federation import aggregation, history, state
from taciturn.federation.replies import Reply, Traffic
from taciturn.federation.server import Server
from taciturn.flower import compatibility, inner_replies, protocol, records
from taciturn.flower.downlink import Downlink
from taciturn.flower.inner_replies import FlowerRound
from taciturn.flower.records import arrays_of, record_of

DEFAULT = "budget"  # around a strategy that averages
# Around one that compares replies: all of them, with little noise.
COMPARED = "full+eden:3"
_METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


class Taciturn(Strategy, Server):
    """Wraps a strategy so that clients with the mod `speak` may stay silent.

    Args:
      inner: the strategy that takes the step, one that averages such as FedAvg, FedAdam or QFedAvg.
        One that compares replies (Krum, MultiKrum, Bulyan, FedMedian, FedTrimmedAvg) is given the
        speakers alone, or, where they are too few, replaced by a trimmed mean. Flower's wrappers
        for central privacy are refused.
      policy: who speaks, what stands in for the silent, and the codec, as an object or text. By
        default `budget`, 4 kB for each client; around a strategy that compares replies all speak,
        with 3 bits for each weight.
      absent: what happens to clients whose reply is an error, late or missing: `ignore` leaves them
        out of the mean, `stand-in` treats them as silent clients of mean weight.
      exclude: names of arrays, or patterns such as `head.*`, that are always sent.
      buffers: names or patterns of arrays that are no weights, such as running means: they are
        always sent, and averaged whatever `inner` is. By default those of PyTorch, Flax and Keras.
      min_clients: with fewer clients that count in a round, the model stays: 1 by default, and 3
        where replies are compared, as far as so many are asked: of two, either may be the bad one.
      folder: where the state is saved after every round; a run that is started again goes on from
        it. Use an absolute path: Flower starts a ServerApp where it likes.
      compares: whether `inner` compares replies, for strategies that are not Flower's own.
      seed: what the codec's masks and rotations are drawn from; drawn itself by default.
      track: a tracker that gets the figures of every round: tensorboard, wandb, mlflow or trackio.
      weight_limit: times the median of the round that a reply weighs at the most, and a silent one
        twice the median; None without a bound.
      norm_limit: times the upper quartile that an update can be long, where clients may be silent
        and replies are averaged; None without a bound. With the stand-in `ignore`, both limits
        shrink with the share that speaks, to 2 at least.
      kept_messages: with a codec for the way down, how many messages are kept for nodes that were
        away; by default as many as are shorter than the model.

    Attributes:
      history: a row per round.
      nodes: how often each node was asked and spoke, and when last.
    """

    def __init__(
        self, inner: Strategy, policy: Policy | str | None = None, *, absent: str = "ignore",
        exclude: str | Sequence[str] = (), buffers: str | Sequence[str] | None = None,
        min_clients: int | None = None, folder: str | Path | None = None,
        compares: bool | None = None, seed: int | None = None, track: str | None = None,
        weight_limit: float | None = 10.0, norm_limit: float | None = 3.0,
        kept_messages: int | None = None,
    ) -> None:  # fmt: skip
        compares = isinstance(inner, compatibility.COMPARING) if compares is None else compares
        policy = (COMPARED if compares else DEFAULT) if policy is None else policy
        policy = parse(policy) if isinstance(policy, str) else policy
        # Plain Flower, to the bit: it makes do with as many replies as come.
        plain = policy.rule == rules.full() and policy.codec == codecs.float32()
        self._needs = compatibility.needs(inner) if compares and not plain else 1
        if compares:
            policy = replace(policy, stand_in=standins.ignore())
            if policy.rule.name == "adaptive":  # its threshold must not follow bad replies
                robust = rules.adaptive(**dict(policy.rule.params) | {"robust": True})
                policy = replace(policy, rule=robust)
        compatibility.refuse(inner)
        self.inner = inner
        kept = kept_messages
        self.kept_messages = None if kept is None else whole("kept_messages", kept, 0)
        Server.__init__(
            self, policy, engine="Flower", steps=compatibility.names_of(inner), absent=absent,
            exclude=exclude, buffers=buffers, min_clients=min_clients, folder=folder, seed=seed,
            compares=compares, track=track, weight_limit=weight_limit, norm_limit=norm_limit,
            log=FLOWER_LOGGER,
        )  # fmt: skip
        self._state = compatibility.InnerState(inner)
        self._form: tuple[str, ...] = ()  # of the metrics in the round before
        self._with_mod: set[str] = set()  # nodes that understood a request since this start
        self._round: FlowerRound  # since `configure_train`
        self._downlink: Downlink | None = None

    def summary(self) -> None:
        """Logs the policy and the inner strategy's settings."""
        log(INFO, "\t├──> Taciturn settings:")
        log(INFO, "\t│\t├── Policy: %s", self.policy)
        if self._needs > 1:
            log(INFO, "\t│\t├── Replies that %s needs: %d; with fewer, a trimmed mean is taken",
                type(self.inner).__name__, self._needs)  # fmt: skip
        log(INFO, "\t│\t└── Errors, late and missing clients: %s", self.absent)
        self.inner.summary()

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, timeout: float = 3600,
        train_config: ConfigRecord | None = None, evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:  # fmt: skip
        """Runs all rounds; where the folder has a state in it, those that are left. Arguments and
        result are those of Flower's `Strategy.start`."""
        self.done, self.history, self.nodes, self._with_mod = 0, [], history.Nodes(), set()
        self.rounds = num_rounds

        def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(round + self.done, arrays) if evaluate_fn else None
            self.evaluated(round + self.done, "evaluate_metrics_serverapp", metrics)
            return metrics

        with self.running(), ExitStack() as stack:
            arrays, before = self._find(initial_arrays)
            stack.enter_context(compatibility.counting_on(self.done, num_rounds))
            result = super().start(
                grid, arrays, max(num_rounds - self.done, 0), timeout, train_config,
                evaluate_config, evaluate if evaluate_fn else None,
            )  # fmt: skip
            result.arrays = result.arrays or arrays  # where no round changed the model
            for kind in _METRICS:
                old = {t: MetricRecord(metrics) for t, metrics in before.get(kind, {}).items()}
                new = {t + self.done: metrics for t, metrics in getattr(result, kind).items()}
                setattr(result, kind, old | new)
            self.finish(arrays_of(result.arrays))
        return result

    def _find(self, initial: ArrayRecord) -> tuple[ArrayRecord, state.Results]:
        """The model to begin with, and the results so far."""
        self._begin(initial)
        found, results = self.find(arrays_of(initial))
        if found is None:
            return initial, results
        model, values, about = record_of(found[0]), *found[1:]
        self._state.load(values, about["inner"])
        self._form = tuple(about["form"])
        if self._downlink is None:
            return model, results
        self._downlink.go_on(self.done, self.seed, model, values)
        return self._downlink.public, results

    def _begin(self, initial: ArrayRecord) -> None:
        layout, down, kept = self.begin(arrays_of(initial)), self.policy.down, self.kept_messages
        if self.policy.has_public:
            self._downlink = Downlink(down, layout, self.seed, initial, kept)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages, with the request to each client in a record of its own."""
        compatibility.refuse_wrapper()
        server_round += self.done
        if self._layout is None:
            self._begin(arrays)
        down = self._downlink
        model = arrays if down is None else down.weights
        config = ConfigRecord(dict(config))  # strategies write into what they are given
        messages = list(self.inner.configure_train(server_round, model, config, grid))
        weighted_by = getattr(self.inner, "weighted_by_key", "num-examples")
        opened = self.open(server_round, arrays_of(arrays), max(1, len(messages)), weighted_by)
        name = getattr(self.inner, "arrayrecord_key", "arrays")
        own = {"name": name, "model": model, "whole": records.record_bytes(arrays)}
        now = self._round = FlowerRound(**vars(opened), **own)
        messages = [
            protocol.ask(message, self.ask(now, f"{message.metadata.dst_node_id}"), self._form)
            for message in messages
        ]
        full, made = sum(map(records.message_bytes, messages)), dict[int, ArrayRecord]()
        for i, message in enumerate(messages):
            if down is not None:
                messages[i] = down.to(message)
            elif f"{message.metadata.dst_node_id}" in self._with_mod:
                messages[i] = protocol.joined(message, made)
        payload = sum(records.payload(record) for message in messages
                      for record in message.content.array_records.values())  # fmt: skip
        total = sum(map(records.message_bytes, messages))
        now.down = Traffic(payload, overhead=total - payload, full=full)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fills in the silent and lets the inner strategy aggregate."""
        now = self._round
        averages = compatibility.averages(self.inner)
        read = (self._read(message, now) for message in replies)
        self.hear(now, read, keep=not averages)
        del replies, read
        first = now.everyone[:1]
        self._form = protocol.form_of(first[0].name, first[0].metrics) if first else ()
        # A report is there of whoever has the mod and understood the request.
        self._with_mod |= {reply.node for reply in now.everyone if reply.report is not None}
        handed = None
        if not averages:
            # Before the round is learned from: the stand-ins are those that it began with. QFedAvg
            # weighs each client by its own loss.
            each, absent = isinstance(self.inner, QFedAvg), self.stood_in(now)
            handed = inner_replies.one_by_one(now, self.policy, self.memory, absent, each)
        mean, info = self.learn(now)
        arrays = metrics = None
        if info.counts:
            arrays, metrics = inner_replies.step(
                self.inner, now, mean, handed, self._needs, self.compares
            )
        results = info.spoke + info.silent + info.rejected
        log(INFO, compatibility.RECEIVED, "aggregate_train", results, now.errors)
        metrics = MetricRecord() if metrics is None else metrics
        row = self.note(now, info, metrics)
        for key, value in row.items():
            if key != "round" and not math.isnan(value):
                metrics[f"taciturn.{key}"] = value
        model, down = now.model if arrays is None else arrays, self._downlink
        if down is not None:
            arrays = down.publish(model)
        if self.store is not None:
            values, kinds = self._state.save()
            values |= {} if down is None else down.tensors()
            self.store.add(row["round"], _METRICS[0], metrics)
            self.store.save(arrays_of(model), values, {"form": self._form, "inner": kinds})
        return arrays, metrics

    def _read(self, message: Message, now: FlowerRound) -> Reply:
        """The reply in a message."""
        full = written = records.message_bytes(message)
        reply = Reply(f"{message.metadata.src_node_id}", message=message)
        if message.has_error():
            reply.traffic = Traffic(overhead=written, full=written)
            reply.error = f"{message.error.reason}"
            return reply
        arrays = message.content.array_records
        payload = sum(map(records.payload, arrays.values()))
        always = sum(records.payload(now.layout.rest_of(x)) for x in arrays.values())
        try:
            has = protocol.read_reply(reply, message.content, self._form)
            if self._downlink is not None:
                self._downlink.check(reply.node, has)
            if reply.name == now.name:
                raise InputError(f"its metrics have the name `{now.name}`, that of arrays.")
            key = getattr(self.inner, "train_loss_key", "")  # powers of it weigh in the mean
            loss = reply.metrics.get(key, 0.0)
            if isinstance(loss, list) or loss < 0:
                raise InputError(f"`{key}` must be 0 or more, got {loss!r}.")
            if not any(name in reply.arrays for name in now.layout.names):
                long = any(protocol.CODE in x for x in arrays.values())
                in_metrics = 0 if long else len(reply.code)
                whole = {next(iter(arrays), now.name): now.whole}
                full = records.message_bytes(message, whole) - in_metrics
                payload += in_metrics
        except InputError as error:
            reply.problem = f"{error}"
        reply.traffic = Traffic(payload, always, written - payload, full)
        return reply

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages."""
        server_round += self.done
        messages = list(self.inner.configure_evaluate(server_round, arrays, config, grid))
        if self._downlink is not None:
            messages = list(map(self._downlink.to, messages))
        nodes = {f"{message.metadata.dst_node_id}" for message in messages}
        self._round = replace(self._round, asked=nodes, rejected=[])
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The inner strategy's metrics, of replies that can be put together."""
        server_round, now = server_round + self.done, self._round
        messages = list(replies)
        found = [self._read(message, now) for message in messages if not message.has_error()]
        # Errors are left to the inner strategy, which counts and logs them.
        kept = [message for message in messages if message.has_error()]
        by = now.request.weighted_by
        for reply in aggregation.accepted(now, found, lambda reply: reply.check_metrics(by)):
            content = RecordDict({reply.name: MetricRecord(reply.metrics)})
            kept.append(Message(content=content, metadata=reply.message.metadata))
        metrics = self.inner.aggregate_evaluate(server_round, kept)
        self.evaluated(server_round, "evaluate_metrics_clientapp", metrics)
        return metrics

"""The strategy wrapper: rounds in which clients may be silent, around any strategy that averages.

A round is that of `taciturn.core.server`: open, tally, close. The inner strategy takes the step;
the core learns from what the clients did, whatever step is made of it.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import QFedAvg, Result, Strategy
from flwr.supercore import log

from taciturn import runs
from taciturn.checks import choice, number, whole
from taciturn.core import budget, client, rules, server, standins, tally
from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError
from taciturn.flower import (
    aggregation,
    byte_counts,
    compatibility,
    downlink,
    history,
    inner_replies,
    protocol,
)
from taciturn.flower import buffers as buffers_of
from taciturn.flower.aggregation import Round, RoundReplies
from taciturn.flower.node_stats import Nodes
from taciturn.flower.protocol import Request
from taciturn.flower.records import Layout
from taciturn.flower.replies import Limits
from taciturn.flower.state import Results, State, Store
from taciturn.track import Tracker

DEFAULT = "budget"  # around a strategy that averages
# Around one that compares replies: all of them, with little noise.
COMPARED = "full+eden:3"
_NAMED = 6  # arrays that are named in the log
_METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")


class Taciturn(Strategy):
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
        self,
        inner: Strategy,
        policy: Policy | str | None = None,
        *,
        absent: str = "ignore",
        exclude: str | Sequence[str] = (),
        buffers: str | Sequence[str] | None = None,
        min_clients: int | None = None,
        folder: str | Path | None = None,
        compares: bool | None = None,
        seed: int | None = None,
        track: str | None = None,
        weight_limit: float | None = 10.0,
        norm_limit: float | None = 3.0,
        kept_messages: int | None = None,
    ) -> None:
        compares = isinstance(inner, compatibility.COMPARING) if compares is None else compares
        policy = (COMPARED if compares else DEFAULT) if policy is None else policy
        policy = parse(policy) if isinstance(policy, str) else policy
        choice("absent", absent, ("ignore", "stand-in"))
        silence = policy.rule != rules.full()
        if compares:
            policy = replace(policy, stand_in=standins.ignore())
            if policy.rule.name == "adaptive":  # its threshold must not follow bad replies
                robust = rules.adaptive(**dict(policy.rule.params) | {"robust": True})
                policy = replace(policy, rule=robust)
        compatibility.refuse(inner, policy.stand_in)
        self.inner, self.policy, self.absent = inner, policy, absent
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self.buffers = [buffers] if isinstance(buffers, str) else buffers
        self.min_clients = None if min_clients is None else whole("min_clients", min_clients, 1)
        self.seed = secrets.randbits(62) if seed is None else whole("seed", seed, 0, 2**62)
        self.kept_messages = (
            None if kept_messages is None else whole("kept_messages", kept_messages, 0)
        )
        averaged = silence and not compares
        weight, norm = _limit("weight_limit", weight_limit), _limit("norm_limit", norm_limit)
        self.limits = Limits(
            weight, norm if averaged else math.inf, averaged and not policy.stand_in.counts,
            getattr(inner, "train_loss_key", None),
        )  # fmt: skip
        self.history: list[dict[str, Any]] = []
        self.nodes = Nodes()
        self._compares = compares
        self._needs = compatibility.needs(inner) if compares and silence else 1
        self._store = None if folder is None else Store(Path(folder), policy, inner)
        about = {"policy": str(policy), "inner": type(inner).__name__}
        self._tracker = None if track is None else Tracker(track, Path(folder or "."), about)
        self._done = 0  # rounds of earlier starts
        self._rounds: int | None = None  # of the whole run, once it has been started
        self._form: tuple[str, ...] = ()  # of the metrics in the round before
        self._with_mod: set[int] = set()  # nodes that understood a request since this start
        self._evaluating: set[int] = set()
        self._round: Round | None = None
        self._layout: Layout | None = None  # this and what follows: known when the model is
        self._exclude: tuple[str, ...] = ()
        self._memory: Any = None
        self._total = np.zeros(0)
        self._downlink: downlink.Downlink | None = None

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
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Runs all rounds; where the folder has a state in it, those that are left.

        Arguments and result are those of Flower's `Strategy.start`.
        """
        self._done, self.history, self.nodes, self._with_mod = 0, [], Nodes(), set()
        self._rounds = num_rounds

        def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(round + self._done, arrays) if evaluate_fn else None
            self._note(round + self._done, "evaluate_metrics_serverapp", metrics)
            return metrics

        with ExitStack() as stack:
            if self._store is not None:
                stack.enter_context(runs.claimed(self._store.folder))
            arrays, before = self._find(initial_arrays, num_rounds)
            stack.enter_context(history.counting_on(self._done, num_rounds))
            if self._tracker is not None:
                self._tracker.open(str(self.policy))
                stack.callback(self._tracker.close)
            result = super().start(
                grid, arrays, max(num_rounds - self._done, 0), timeout, train_config,
                evaluate_config, evaluate if evaluate_fn else None,
            )  # fmt: skip
            result.arrays = result.arrays or arrays  # where no round changed the model
            for kind in _METRICS:
                old = {t: MetricRecord(metrics) for t, metrics in before.get(kind, {}).items()}
                new = {t + self._done: metrics for t, metrics in getattr(result, kind).items()}
                setattr(result, kind, old | new)
            if self._store is not None:
                self._store.finish(self.history, result.arrays, self.nodes)
        history.log_upload(self.history, True)
        return result

    def _find(self, initial: ArrayRecord, rounds: int) -> tuple[ArrayRecord, Results]:
        """The model to begin with, and the results so far."""
        self._begin(initial)
        if self._store is None:
            return initial, {}
        if not self._store.exists():
            return initial, self._store.results.load(-1)  # what a first round left that was lost
        state, results = self._store.load(initial, self._memory)
        self._done, self.history, self.nodes = state.round, state.history, state.nodes
        self._memory, self.seed, self._form = state.memory, state.seed, state.form
        rule = self._memory.rule
        if isinstance(rule, budget.Budget) and rule.run != rounds:
            log(WARNING, "Taciturn: the run had %d rounds and now has %d: bytes are spread anew.",
                int(rule.run), rounds)  # fmt: skip
            rule = budget.extended(self.policy.rule, rule, self._total.size, rounds)
            self._memory = self._memory._replace(rule=rule)
        log(INFO, "Taciturn: going on after round %d of %d.", self._done, rounds)
        if self._downlink is not None:
            self._downlink.go_on(state.round, state.seed, state.model, state.downlink)
            return self._downlink.public, results
        return state.model, results

    def _begin(self, arrays: ArrayRecord) -> Layout:
        """The layout of the model; sets what is known before the first round."""
        buffers = buffers_of.patterns_of(arrays) if self.buffers is None else self.buffers
        self._layout = layout = Layout.of(arrays, self.exclude, buffers)
        self._exclude = (*self.exclude, *buffers)
        if not layout.size:
            raise InputError(
                f"A model needs floating-point arrays that are not excluded, got {list(arrays)}."
            )
        if whole := layout.rest_of(arrays):
            names = [*list(whole)[:_NAMED], "…"][: len(whole)]
            log(INFO, "Taciturn: %d of %d arrays always travel whole, %s bytes in every reply: %s",
                len(whole), len(arrays), f"{byte_counts.payload(whole):,}",
                ", ".join(names))  # fmt: skip
        # The core needs their number only: the weights themselves stay in Flower's records.
        self._total = np.zeros(layout.size, layout.wide)
        self._memory = server.remember(self.policy, self._total, self._rounds)
        self._downlink = downlink.begin(self.policy, layout, self.seed, arrays, self.kept_messages)
        return layout

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages, with the request to each client in a record of its own."""
        compatibility.refuse_wrapper()
        layout, server_round = self._layout or self._begin(arrays), server_round + self._done
        rule, down = self.policy.rule, self._downlink
        model = arrays if down is None else down.weights
        config = ConfigRecord(dict(config))  # strategies write into what they are given
        messages = list(self.inner.configure_train(server_round, model, config, grid))
        cohort = max(1, len(messages))
        if server_round == self._done + 1 and (
            why := budget.doubt(rule, layout.size, cohort, self._rounds or 1)
        ):
            log(WARNING, "Taciturn: %s.", why)
        config = server.open(self.policy, self._memory, cohort)
        request = Request(
            rule, config.context, self.policy.codec, self._exclude,
            getattr(self.inner, "weighted_by_key", "num-examples"), self.seed, server_round,
            form=self._form,
        )  # fmt: skip
        for i, message in enumerate(messages):
            own = self.nodes[message.metadata.dst_node_id]
            asked = replace(request, silence=own.in_a_row, accepted=own.last_spoke)
            messages[i] = protocol.ask(message, asked)
        full = sum(map(byte_counts.message_bytes, messages))
        if down is not None:
            messages = list(map(down.to, messages))
        else:
            made: dict[int, ArrayRecord] = {}
            messages = [
                protocol.joined(message, made)
                if message.metadata.dst_node_id in self._with_mod else message
                for message in messages
            ]  # fmt: skip
        bytes_down = sum(map(byte_counts.message_bytes, messages))
        nodes = {message.metadata.dst_node_id for message in messages}
        payload = sum(byte_counts.payload(record) for message in messages
                      for record in message.content.array_records.values())  # fmt: skip
        self._round = Round(
            config=config, request=request, layout=layout,
            name=getattr(self.inner, "arrayrecord_key", "arrays"), limits=self.limits,
            sent=arrays if down is None else down.public, model=model, asked=nodes,
            must_speak={
                node for node in nodes
                if client.must_speak(rule, config.context, self.nodes[node].in_a_row)
            },
            bytes_down=bytes_down, payload_down=payload, bytes_down_full=full, downlink=down,
        )  # fmt: skip
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fills in the silent and lets the inner strategy aggregate."""
        if self._round is None:
            raise InputError("`configure_train` must be called before `aggregate_train`.")
        now, server_round = self._round, server_round + self._done
        heard = aggregation.hear(replies, now)
        del replies
        aggregation.add_up(heard, now, self._total, keep=not compatibility.averages(self.inner))
        self.nodes.note(server_round, now.asked, heard)
        self._form = heard.form
        self._with_mod |= {
            reply.node for reply in heard.everyone if not (reply.without_mod or reply.remark)
        }
        arrays, metrics, info = self._close(server_round, heard, now)
        row = history.row(server_round, now, heard, info)
        history.received(heard.results, heard.errors)
        metrics = MetricRecord() if metrics is None else metrics
        own = history.numbers(metrics, prefix="train_")
        metrics.update(
            {f"taciturn.{key}": value for key, value in row.items()
             if key != "round" and not math.isnan(value)}
        )  # fmt: skip
        self.history.append(row | {"accuracy": math.nan, "loss": math.nan} | own)
        history.log_round(row, heard.reasons)
        history.log_upload(self.history, False, self._rounds)
        model, down = now.model if arrays is None else arrays, self._downlink
        if down is not None:
            arrays = down.publish(model)
        if self._store is not None:
            tensors = {} if down is None else down.tensors()
            state = State(server_round, self.history, model, self._memory, self.seed, self.nodes,
                          self._form, tensors)  # fmt: skip
            self._store.results.add(server_round, "train_metrics_clientapp", metrics)
            self._store.save(state)
        self._track(server_round, row | own)
        return arrays, metrics

    def _close(
        self, server_round: int, heard: RoundReplies, now: Round
    ) -> tuple[ArrayRecord | None, MetricRecord | None, server.RoundInfo]:
        """Learns from the round and lets the inner strategy take the step."""
        absent = heard.errors + heard.missing if self.absent == "stand-in" else 0
        tallied = tally.with_absent(heard.tally(self._total, now), absent, now.config)
        handed = None
        if not compatibility.averages(self.inner):
            # Before the round is learned from: the stand-ins are those that it began with.
            each = isinstance(self.inner, QFedAvg)  # it weighs each client by its own loss
            handed = inner_replies.one_by_one(heard, now, self.policy, self._memory, absent, each)
        # By default, all who are asked are enough.
        least = self.min_clients or min(3 if self._compares else 1, len(now.asked))
        mean, self._memory, info = server.learn(
            self.policy, self._memory, tallied, at_least=least, donate=True
        )
        if not info.counts:
            left_out = info.silent and not info.spoke and not self.policy.stand_in.counts
            log(WARNING, "Taciturn: %d spoke and %d were silent in round %d: the model stays.%s",
                info.spoke, info.silent, server_round,
                " The silent are left out: a larger k of `adaptive`, or a stand-in that counts, "
                "avoids this." if left_out else "")  # fmt: skip
            return None, None, info
        arrays, metrics = inner_replies.step(
            self.inner, server_round, heard, now, mean, handed, self._needs, self._compares
        )
        return arrays, metrics, info

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages."""
        server_round += self._done
        messages = list(self.inner.configure_evaluate(server_round, arrays, config, grid))
        if self._downlink is not None:
            messages = list(map(self._downlink.to, messages))
        self._evaluating = {message.metadata.dst_node_id for message in messages}
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The inner strategy's metrics, of replies that can be put together."""
        if self._round is None:
            raise InputError("`configure_train` must be called before `aggregate_evaluate`.")
        server_round += self._done
        replies = aggregation.hear_evaluation(replies, self._evaluating, self._round)
        metrics = self.inner.aggregate_evaluate(server_round, replies)
        self._note(server_round, "evaluate_metrics_clientapp", metrics)
        return metrics

    def _note(self, round: int, kind: str, metrics: MetricRecord | None) -> None:
        """Keeps what was evaluated after a round."""
        if metrics is None:
            return
        if self._store is not None:
            self._store.results.add(round, kind, metrics)
        if self.history and self.history[-1]["round"] == round:
            tested = history.numbers(metrics)
            self.history[-1] |= tested
            if self._store is not None:
                self._store.note(self.history)
            self._track(round, tested)

    def _track(self, round: int, figures: Mapping[str, float]) -> None:
        if self._tracker is not None:
            named = {key: value for key, value in figures.items() if key != "round"}
            self._tracker.add(str(self.policy), [(round, named)])


def _limit(name: str, value: float | None) -> float:
    return math.inf if value is None else number(name, value, 1.0, math.inf, "[1, inf]")

"""The strategy wrapper: rounds in which clients may be silent, around any strategy that averages.

A round is that of `taciturn.core.server`: open, tally, close. The inner strategy takes the step;
the core learns from what the clients did, whatever step is made of it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from taciturn.core import server, standins, tally
from taciturn.core.codecs import float32
from taciturn.core.policy import Policy, parse, spell
from taciturn.core.tally import Opening, Tally
from taciturn.errors import InputError
from taciturn.flower import byte_counts, compatibility, records, replies, sums
from taciturn.flower.mod import CONTEXT, EXCLUDE, RULE
from taciturn.flower.records import Layout
from taciturn.flower.replies import Details, Reply
from taciturn.flower.state import Store
from taciturn.flower.sums import HANDED_ON
from taciturn.track import Tracker


@dataclass
class _Round:
    """What is known of a round when its messages are sent.

    Attributes:
      opening: what the core knows.
      sent: the model that the clients get.
      asked: their nodes.
      bytes_down, payload_down: all bytes that are sent, and those of arrays among them.
    """

    opening: Opening
    sent: ArrayRecord
    asked: set[int]
    bytes_down: int
    payload_down: int


@dataclass
class _Heard:
    """What came back in a round.

    Attributes:
      speakers, silent: the replies that count.
      errors, rejected, missing: how many there were of each.
      bytes_up, payload_up: all bytes that came, and those of arrays among them.
      bytes_up_full: what would have come if all had spoken.
      total: Σ n·Δ over the speakers, a vector per layer; empty where nobody needs it.
    """

    speakers: list[Reply]
    silent: list[Reply]
    errors: int = 0
    rejected: int = 0
    missing: int = 0
    bytes_up: int = 0
    payload_up: int = 0
    bytes_up_full: int = 0
    total: Sequence[np.ndarray] = ()

    def reject(self, node: int, reason: object) -> None:
        self.rejected += 1
        log(WARNING, "Taciturn: the reply of node %d is rejected: %s", node, reason)


class Taciturn(Strategy):
    """Wraps a strategy so that clients with the mod `speak` may stay silent.

    Args:
      inner: the strategy that takes the step: FedAvg, FedAdam, FedYogi, FedAdagrad, FedAvgM,
        FedProx, QFedAvg or another that averages. From one that compares replies (Krum, MultiKrum,
        Bulyan, FedMedian, FedTrimmedAvg) silent clients are left out: copies of one stand-in would
        win. Flower's wrappers for central differential privacy are refused, see docs/flower.md.
      policy: who speaks and what stands in for the silent, as an object or text.
      absent: what happens to clients whose reply is an error, late or missing: `ignore` leaves them
        out of the mean, `stand-in` treats them as silent clients of mean weight.
      exclude: names of arrays, or patterns such as `head.*`, that are always sent.
      min_clients: with fewer clients that count in a round, the model stays.
      folder: a run folder. The state is saved there after every round, and a run that is started
        again goes on from it. Use an absolute path: Flower starts a ServerApp where it likes.
      compares: whether `inner` compares replies, for strategies that are not Flower's own.
      track: a tracker that gets the figures of every round: tensorboard, wandb, mlflow or trackio.
    """

    def __init__(
        self,
        inner: Strategy,
        policy: Policy | str = "adaptive+ou",
        *,
        absent: str = "ignore",
        exclude: str | Sequence[str] = (),
        min_clients: int = 1,
        folder: str | Path | None = None,
        compares: bool | None = None,
        track: str | None = None,
    ) -> None:
        if not isinstance(inner, Strategy):
            raise InputError(f"The inner strategy must be a Flower Strategy, got {inner!r}.")
        compatibility.refuse(inner)
        policy = parse(policy) if isinstance(policy, str) else policy
        if policy.codec != float32():
            raise InputError(
                f"Flower writes arrays itself: a policy has no codec here, "
                f"got `{spell(policy.codec)}`."
            )
        if absent not in ("ignore", "stand-in"):
            raise InputError(f"`absent` must be ignore or stand-in, got {absent!r}.")
        if isinstance(min_clients, bool) or not isinstance(min_clients, int) or min_clients < 1:
            raise InputError(f"`min_clients` must be at least 1, got {min_clients!r}.")
        if compatibility.compares(inner) if compares is None else compares:
            policy = replace(policy, stand_in=standins.ignore())
        self.inner = inner
        self.policy = policy
        self.absent = absent
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self.min_clients = min_clients
        self.history: list[dict[str, Any]] = []
        self._weighted_by: str = getattr(inner, "weighted_by_key", "num-examples")
        self._array_name: str = getattr(inner, "arrayrecord_key", "arrays")
        self._store = None if folder is None else Store(Path(folder), inner)
        self._tracker: Tracker | None = None
        if track is not None:
            about = {"policy": str(policy), "inner": type(inner).__name__}
            self._tracker = Tracker(track, Path(folder or "."), about)
        self._done = 0  # rounds of earlier starts
        self._layout: Layout | None = None
        self._state: Any = None
        self._round: _Round | None = None
        self._total: list[np.ndarray] = []

    def summary(self) -> None:
        """Logs the policy and the inner strategy's settings."""
        log(INFO, "\t├──> Taciturn settings:")
        log(INFO, "\t│\t├── Policy: %s", self.policy)
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
        self._done, self.history = 0, []
        arrays = initial_arrays
        self._begin(arrays)
        if self._store is not None and self._store.exists():
            saved = self._store.load(self.policy, arrays, self._state)
            self._done, self.history, arrays, self._state = saved
            log(INFO, "Taciturn: going on after round %d of %d.", self._done, num_rounds)
        done = self._done
        if self._tracker is not None:
            self._tracker.open(str(self.policy))

        def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(round + done, arrays) if evaluate_fn else None
            self._note(round + done, metrics)
            return metrics

        result = super().start(
            grid,
            arrays,
            max(num_rounds - done, 0),
            timeout,
            train_config,
            evaluate_config,
            evaluate if evaluate_fn else None,
        )
        if not result.arrays:  # no round changed the model
            result.arrays = arrays
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp",
                     "evaluate_metrics_serverapp"):  # fmt: skip
            setattr(result, kind, {t + done: m for t, m in getattr(result, kind).items()})
        if self._store is not None:
            self._store.finish(self.policy, self.history, result.arrays)
        if self._tracker is not None:
            self._tracker.close()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages, with the rule and its context in their config."""
        compatibility.refuse_wrapper()
        if self._layout is None:
            self._begin(arrays)
        opening = server.open(self.policy, self._state)
        # A copy, because strategies write into the config that they are given.
        config = ConfigRecord(dict(config))
        config[RULE] = spell(self.policy.rule)
        config[CONTEXT] = float(opening.context)
        config[EXCLUDE] = self.exclude
        messages = list(self.inner.configure_train(server_round + self._done, arrays, config, grid))
        self._round = _Round(
            opening=opening,
            sent=arrays,
            asked={message.metadata.dst_node_id for message in messages},
            bytes_down=sum(byte_counts.message_bytes(message) for message in messages),
            payload_down=len(messages) * byte_counts.payload(arrays),
        )
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fills in the silent and lets the inner strategy aggregate."""
        if self._round is None or self._layout is None:
            raise InputError("`configure_train` must be called before `aggregate_train`.")
        now, layout, policy = self._round, self._layout, self.policy
        server_round += self._done
        heard = self._hear(replies, now, layout)
        del replies
        tallied = self._tally(heard, now, layout.wide)
        absent = heard.errors + heard.missing if self.absent == "stand-in" else 0
        tallied = _with_absent(tallied, absent, now.opening)

        counting, examples = len(heard.speakers), tallied.examples_spoke
        if policy.stand_in.counts:
            counting += len(heard.silent) + absent
            examples = examples + tallied.examples_silent
        arrays, metrics = None, None
        if counting < self.min_clients or not examples > 0:
            log(WARNING, "Taciturn: %d clients count in round %d: the model stays.%s",
                counting, server_round, self._hint(heard))  # fmt: skip
            # Nobody moves the model, but the rule learns from the norms.
            self._state, info = server.close(policy, self._state, _left_out(tallied))
        else:
            averages = compatibility.averages(self.inner)
            hand_over = self._as_one if averages else self._one_by_one
            handed, info = hand_over(heard, now, layout, tallied, absent)
            heard.speakers, heard.silent = [], []
            del tallied  # the inner strategy may need the memory
            if (
                compatibility.averages(self.inner)
                and type(self.inner).aggregate_train is flower.FedAvg.aggregate_train
            ):
                # The mean of one reply is that reply: no need to read and write it once more.
                arrays = next(iter(handed[0].content.array_records.values()))
                metrics = next(iter(handed[0].content.metric_records.values()))
                del metrics[self._weighted_by]
            else:
                arrays, metrics = self.inner.aggregate_train(server_round, handed)
            arrays = None if arrays is None else records.cast(arrays, now.sent)

        row = {
            "round": server_round,
            "asked": len(now.asked),
            "spoke": int(info.spoke),
            "silent": int(info.silent),
            "rejected": heard.rejected,
            "errors": heard.errors,
            "missing": heard.missing,
            "threshold": float(info.threshold),
            "norm_mean": float(info.norm_mean),
            "norm_std": float(info.norm_std),
            "bytes_up": heard.payload_up,
            "overhead_up": heard.bytes_up - heard.payload_up,
            "bytes_up_full": heard.bytes_up_full,
            "bytes_down": now.payload_down,
            "overhead_down": now.bytes_down - now.payload_down,
        }
        metrics = MetricRecord() if metrics is None else metrics
        for key, value in row.items():
            if key != "round" and not math.isnan(value):
                metrics[f"taciturn.{key}"] = value
        self.history.append(row | {"accuracy": math.nan, "loss": math.nan})
        if self._store is not None:
            model = now.sent if arrays is None else arrays
            self._store.save(server_round, policy, self.history, model, self._state)
        self._track(server_round, row)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages."""
        return self.inner.configure_evaluate(server_round + self._done, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The inner strategy's metrics."""
        metrics = self.inner.aggregate_evaluate(server_round + self._done, replies)
        self._note(server_round + self._done, metrics)
        return metrics

    def _begin(self, arrays: ArrayRecord) -> None:
        """The layout of the model and the state before the first round."""
        layout = Layout.of(arrays, self.exclude)
        if not layout.size:
            raise InputError(
                f"A model needs floating-point arrays that are not excluded, got {list(arrays)}."
            )
        # The core's state needs their number only: the weights themselves stay in Flower's records.
        state = server.init(self.policy, np.zeros(layout.size, layout.wide), HANDED_ON)
        self._layout, self._state = layout, state._replace(weights=np.zeros(0, layout.wide))
        self._total = []

    def _hear(self, messages: Iterable[Message], now: _Round, layout: Layout) -> _Heard:
        """Reads the replies, measures them, and rejects what does not fit."""
        heard = _Heard([], [])
        found: list[Reply] = []
        answered: set[int] = set()
        name, whole = self._array_name, byte_counts.record_bytes(now.sent)
        for message in messages:
            node, written = message.metadata.src_node_id, byte_counts.message_bytes(message)
            heard.bytes_up += written
            if message.has_error():
                heard.errors += 1
                heard.bytes_up_full += written
                log(WARNING, "Taciturn: node %d failed: %s", node, message.error.reason)
                continue
            parts = list(message.content.array_records.values())
            heard.payload_up += sum(byte_counts.payload(part) for part in parts)
            if node not in now.asked or node in answered:
                heard.reject(node, "it was not asked, or had answered.")
                heard.bytes_up_full += written
                continue
            answered.add(node)
            try:
                reply = replies.read(message, layout, self._weighted_by)
            except InputError as error:
                heard.reject(node, error)
                heard.bytes_up_full += written
                continue
            found.append(reply)
            if reply.weights is None:
                written = byte_counts.message_bytes_with(message, {name: whole})
            heard.bytes_up_full += written
        heard.missing = max(0, len(now.asked) - len(answered) - heard.errors)
        form = Counter(reply.form for reply in found).most_common(1)
        for reply in found:
            if reply.form != form[0][0]:
                heard.reject(reply.node, f"its metrics {reply.form} are not those of most.")
            else:
                (heard.silent if reply.weights is None else heard.speakers).append(reply)
        self._measure(heard, layout, now.sent)
        return heard

    def _measure(self, heard: _Heard, layout: Layout, sent: ArrayRecord) -> None:
        """The speakers' norms and Σ n·Δ; whose norm is not what it reported is rejected."""
        before = layout.views(sent)
        if compatibility.averages(self.inner) or self._state.stand_in:
            # The same memory in every round: new memory has to be brought in page by page.
            self._total = heard.total = self._total or layout.vectors()
        while True:
            speakers, heard.speakers = heard.speakers, []
            norms = sums.measure(
                before,
                [reply.weights or [] for reply in speakers],
                layout.wide,
                [reply.examples for reply in speakers],
                heard.total,
            )
            for reply, norm in zip(speakers, norms, strict=True):
                reported = norm if reply.norm is None else reply.norm
                if math.isfinite(norm) and self._fits(reported, norm, layout.size):
                    reply.norm = norm
                    heard.speakers.append(reply)
                else:
                    heard.reject(
                        reply.node,
                        f"its update has the norm {norm:g}, it reported {reported:g}; "
                        "`speak()` must be the first of its mods.",
                    )
            if len(heard.speakers) == len(speakers):
                return
            # The sum holds what was rejected: once more, without it.

    def _fits(self, reported: float, norm: float, size: int) -> bool:
        codec = self.policy.codec
        return bool(tally.fits(codec, np.float64(reported), np.float64(norm), size))

    def _tally(self, heard: _Heard, now: _Round, dtype: np.dtype[Any]) -> Tally:
        """What was heard, in numbers; the sum of updates stays where it is."""
        everyone = heard.speakers + heard.silent
        tallied = tally.of(
            np.zeros(0, dtype),
            np.asarray([reply.examples for reply in everyone], dtype),
            np.asarray([reply.norm for reply in everyone], dtype),
            np.arange(len(everyone)) < len(heard.speakers),
            now.opening,
        )
        return tallied._replace(n_rejected=tallied.n_rejected + heard.rejected)

    def _as_one(
        self, heard: _Heard, now: _Round, layout: Layout, tallied: Tally, absent: int
    ) -> tuple[list[Message], server.RoundInfo]:
        """The mean of all clients as one reply, for a strategy that would take it anyway."""
        pattern = (heard.speakers or heard.silent)[0].message
        name = self._record_name(heard)
        parts = [replies.details(reply, layout) for reply in heard.speakers]
        if self.policy.stand_in.counts and tallied.examples_silent > 0:
            parts.append(self._silent_details(heard, layout, tallied))
        whole = replies.mean(parts)
        whole.metrics[self._weighted_by] = whole.examples
        # Nothing but their sum is needed of the replies; a cohort's memory is worth having back.
        for reply in heard.speakers:
            reply.weights = None
            for record in reply.message.content.array_records.values():
                record.clear()
        self._state, info = sums.close(self.policy, self._state, tallied, heard.total)
        weights = records.moved(layout, layout.views(now.sent), heard.total)
        return [replies.write(pattern, name, now.sent, weights, whole)], info

    def _one_by_one(
        self, heard: _Heard, now: _Round, layout: Layout, tallied: Tally, absent: int
    ) -> tuple[list[Message], server.RoundInfo]:
        """Everyone who spoke, and the silent as one reply with their summed weight."""
        name, stand_in = self._record_name(heard), self.policy.stand_in
        handed = [
            replies.write(
                reply.message, name, now.sent, reply.arrays, replies.details(reply, layout)
            )
            for reply in heard.speakers
        ]
        if stand_in.counts and tallied.examples_silent > 0:
            scale = (
                float(tallied.examples_capped / tallied.examples_silent) if stand_in.capped else 1.0
            )
            expected = layout.vectors()
            sums.predict(stand_in, self._state.stand_in, scale, expected)
            weights = records.moved(layout, layout.views(now.sent), expected)
            del expected
            whole = self._silent_details(heard, layout, tallied)
            known = heard.silent or heard.speakers
            if isinstance(self.inner, flower.QFedAvg):
                # It weighs clients by their loss, each for itself. They share the arrays' memory.
                each = [(reply, replies.details(reply, layout)) for reply in heard.silent]
                each += [(known[0], whole)] * absent
            else:
                whole.metrics[self._weighted_by] = whole.examples
                each = [(known[0], whole)]
            handed += [
                replies.write(reply.message, name, now.sent, weights, part) for reply, part in each
            ]
        self._state, info = sums.close(self.policy, self._state, tallied, heard.total)
        return handed, info

    def _hint(self, heard: _Heard) -> str:
        """What to do if it stays for good."""
        if heard.speakers or not heard.silent or self.policy.stand_in.counts:
            return ""
        return " All were silent and are left out; `adaptive,k=2` or a larger k lets more speak."

    def _silent_details(self, heard: _Heard, layout: Layout, tallied: Tally) -> Details:
        """The silent and the absent as one. Of the absent it is assumed that they are like them."""
        known = [replies.details(reply, layout) for reply in heard.silent or heard.speakers]
        return replies.mean(known, float(tallied.examples_silent))

    def _record_name(self, heard: _Heard) -> str:
        if heard.speakers:
            return str(next(iter(heard.speakers[0].message.content.array_records)))
        return self._array_name

    def _note(self, round: int, metrics: MetricRecord | None) -> None:
        """Keeps a round's `accuracy` and `loss` for the run folder."""
        if metrics is None or not self.history or self.history[-1]["round"] != round:
            return
        tested = {key: float(metrics[key]) for key in ("accuracy", "loss")
                  if isinstance(metrics.get(key), int | float)}  # fmt: skip
        self.history[-1] |= tested
        if self._store is not None:
            self._store.note(self.history[-1])
        self._track(round, tested)

    def _track(self, round: int, figures: Mapping[str, float]) -> None:
        if self._tracker is not None:
            named = {key: value for key, value in figures.items() if key != "round"}
            self._tracker.add(str(self.policy), [(round, named)])


def _with_absent(tallied: Tally, absent: int, opening: Opening) -> Tally:
    """The tally with clients that nothing was heard of: silent, of mean weight and norm."""
    answered = int(tallied.n_spoke + tallied.n_silent)
    if not absent or not answered:
        return tallied
    examples = tallied.norms.weight * absent / answered
    share = (
        min(1.0, float(tallied.norms.mean) / float(opening.stand_in_norm))
        if opening.stand_in_norm > 0
        else 1.0
    )
    return tallied._replace(
        examples_silent=tallied.examples_silent + examples,
        examples_capped=tallied.examples_capped + examples * share,
    )


def _left_out(tallied: Tally) -> Tally:
    """The tally with its counts and norms, but with nobody in the mean."""
    zero = tallied.examples_spoke * 0
    return tallied._replace(examples_spoke=zero, examples_silent=zero, examples_capped=zero)

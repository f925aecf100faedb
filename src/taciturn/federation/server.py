"""What a server does in each round and remembers between them, whatever carries the messages.

A round is that of `taciturn.core.server`: open, tally, close. Somebody else takes the step; the
core learns from what the clients did, whatever step is made of it.
"""

import logging
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.checks import choice, number, whole
from taciturn.core import budget, client, rules, server, tally
from taciturn.core.policy import Policy
from taciturn.core.server import RoundInfo
from taciturn.errors import InputError
from taciturn.federation import aggregation, history
from taciturn.federation.aggregation import Round
from taciturn.federation.layout import Arrays, Layout, buffers_of, nbytes_of
from taciturn.federation.protocol import Request
from taciturn.federation.replies import Limits, Reply
from taciturn.federation.state import Found, Results, Store
from taciturn.track import Tracker

_NAMED = 6  # arrays that are named in the log


class Server:
    """The server's side; arguments are those of `taciturn.flower.Taciturn`, and the names of what
    carries the messages (`engine`) and of what takes the server's step (`steps`)."""

    def __init__(
        self, policy: Policy, *, engine: str, steps: Sequence[str], compares: bool, absent: str,
        exclude: str | Sequence[str], buffers: str | Sequence[str] | None, min_clients: int | None,
        folder: str | Path | None, seed: int | None, track: str | None, weight_limit: float | None,
        norm_limit: float | None, log: logging.Logger,
    ) -> None:  # fmt: skip
        self.policy, self.engine, self.compares = policy, engine, compares
        self.absent = choice("absent", absent, ("ignore", "stand-in"))
        if policy.stand_in.own:
            raise InputError(
                f"The stand-in `{policy.stand_in.name}` needs an update of every node on the "
                "server, which keeps sums alone: `ou` or `last` would do."
            )
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self.buffers = [buffers] if isinstance(buffers, str) else buffers
        self.min_clients = None if min_clients is None else whole("min_clients", min_clients, 1)
        self.seed = secrets.randbits(62) if seed is None else whole("seed", seed, 0, 2**62)
        self.log = log
        averaged = policy.rule != rules.full() and not compares
        alone = averaged and not policy.stand_in.counts
        weight, norm = (
            math.inf if limit is None else number(name, limit, "[1, inf]")
            for name, limit in (("weight_limit", weight_limit), ("norm_limit", norm_limit))
        )
        self.limits = Limits(weight, norm if averaged else math.inf, alone, log)
        self.history: list[dict[str, Any]] = []
        self.nodes = history.Nodes()
        self.done = 0  # rounds of earlier starts
        self.rounds: int | None = None  # of the whole run, where that is known
        self.store = None if folder is None else Store(Path(folder), self, steps)
        about = {"policy": str(policy), "inner": steps[0]}
        self._tracker = None if track is None else Tracker(track, Path(folder or "."), about)
        self._layout: Layout | None = None  # this and what follows: known when the model is
        self._whole: tuple[str, ...] = ()  # patterns of arrays that always travel
        self.memory: Any = None
        self._total = np.zeros(0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A block in which the folder is this server's, and the tracker is open."""
        with ExitStack() as stack:
            if self.store is not None:
                stack.enter_context(runs.claimed(self.store.folder))
            if self._tracker is not None:
                self._tracker.open(str(self.policy))
                stack.callback(self._tracker.close)
            yield

    def begin(self, arrays: Arrays) -> Layout:
        """The layout of the model; sets what is known before the first round."""
        buffers = buffers_of(arrays) if self.buffers is None else self.buffers
        self._layout = layout = Layout.of(arrays, self.exclude, buffers)
        self._whole = (*self.exclude, *buffers)
        if not layout.size:
            raise InputError(
                f"A model needs floating-point arrays that are not excluded, got {list(arrays)}."
            )
        # The core needs their number only: the weights themselves stay with the engine.
        self._total = np.zeros(layout.size, layout.wide)
        self.memory = server.remember(self.policy, self._total, self.rounds)
        return layout

    def find(self, arrays: Arrays) -> tuple[Found | None, Results]:
        """The state in the folder, of a run that began with this model, and its results so far."""
        found, results = (None, {}) if self.store is None else self.store.load(arrays)
        if found is None:
            return None, results
        rule = self.memory.rule
        if isinstance(rule, budget.Budget) and self.rounds and rule.run != self.rounds:
            self.log.warning("Taciturn: the run had %d rounds and now has %d: bytes are spread "
                             "anew.", int(rule.run), self.rounds)  # fmt: skip
            rule = budget.extended(self.policy.rule, rule, self._total.size, self.rounds)
            self.memory = self.memory._replace(rule=rule)
        self.log.info("Taciturn: going on after round %d of %d.", self.done, self.rounds)
        return found, results

    def open(self, round: int, arrays: Arrays, cohort: int, weighted_by: str) -> Round:
        """A round in which so many clients are asked to train from these arrays."""
        layout, rule = self._layout or self.begin(arrays), self.policy.rule
        if round == self.done + 1:
            if why := budget.doubt(rule, layout.size, cohort, self.rounds or 1):
                self.log.warning("Taciturn: %s.", why)
            if whole := layout.rest_of(arrays):
                names = [*list(whole)[:_NAMED], "…"][: len(whole)]
                self.log.info("Taciturn: %d of %d arrays always travel whole, %s bytes in every "
                              "reply: %s", len(whole), len(arrays), f"{nbytes_of(whole):,}",
                              ", ".join(names))  # fmt: skip
        config = server.open(self.policy, self.memory, cohort)
        request = Request(
            rule, config.context, self.policy.codec, self._whole, weighted_by, self.seed, round
        )
        return Round(config=config, request=request, layout=layout, limits=self.limits,
                     sent=arrays, log=self.log)  # fmt: skip

    def ask(self, now: Round, node: str) -> Request:
        """What a node is asked."""
        own = self.nodes[node]
        now.asked.add(node)
        return replace(now.request, silence=own.in_a_row, accepted=own.last_spoke)

    def hear(self, now: Round, replies: Iterable[Reply], keep: bool = False) -> None:
        """Puts into a round what came back, without replies that are wrong, and adds it up. With
        `keep`, decoded updates stay with the replies."""
        asked = now.request

        def check(reply: Reply) -> None:
            reply.check(now.layout, asked)
            in_a_row = self.nodes[reply.node].in_a_row
            if not reply.spoke and client.must_speak(asked.rule, asked.context, in_a_row):
                raise InputError(f"It is silent, and `{asked.rule.name}` says it must speak now.")
            if reply.remark is not None:
                self.log.warning(
                    "Taciturn: node %s does not do as it was asked: %s", reply.node, reply.remark
                )

        kept = aggregation.accepted(now, replies, check)
        self.limits.bound_buffers(kept, now.layout, now.sent)
        for reply in kept:
            above = {name: np.maximum(reply.arrays[name], 0) for name in now.layout.variances}
            reply.arrays = {**reply.arrays, **above}
            (now.speakers if reply.spoke else now.silent).append(reply)
        aggregation.add_up(now, self._total, keep)
        self.nodes.note(now)

    def stood_in(self, now: Round) -> int:
        """How many clients did not answer and count as silent."""
        return now.errors + now.missing if self.absent == "stand-in" else 0

    def learn(self, now: Round) -> tuple[np.ndarray, RoundInfo]:
        """The mean update, and what people look at; `info.counts` says whether the model moves."""
        everyone, total = now.everyone, self._total
        n = np.asarray([reply.examples for reply in everyone], total.dtype)
        m = np.asarray([reply.norm for reply in everyone], total.dtype)
        p = np.asarray([reply.probability for reply in everyone], total.dtype)
        spoke = np.arange(len(everyone)) < len(now.speakers)
        nbytes = np.asarray([reply.charged(now.request) for reply in everyone])
        each = self.policy.rule.each
        tallied = tally.of(total, n, m, spoke, now.config, p, each=each, nbytes=nbytes)
        tallied = tallied._replace(n_rejected=tallied.n_rejected + len(now.rejected))
        tallied = tally.with_absent(tallied, self.stood_in(now), now.config)
        # By default, all who are asked are enough.
        least = self.min_clients or min(3 if self.compares else 1, len(now.asked))
        mean, self.memory, info = server.learn(
            self.policy, self.memory, tallied, at_least=least, donate=True
        )
        if not info.counts:
            left_out = info.silent and not info.spoke and not self.policy.stand_in.counts
            self.log.warning(
                "Taciturn: %d spoke and %d were silent in round %d: the model stays.%s",
                info.spoke, info.silent, now.request.round,
                " The silent are left out: a larger k of `adaptive`, or a stand-in that counts, "
                "avoids this." if left_out else "")  # fmt: skip
        return mean, info

    def note(self, now: Round, info: RoundInfo, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The row of a round, which goes to the history, the log and the tracker. Its replies are
        freed."""
        now.speakers, now.silent = [], []
        row = history.row(now, info)
        own = history.numbers(metrics, prefix="train_")
        self.history.append(row | {"accuracy": math.nan, "loss": math.nan} | own)
        history.log_round(self.log, row, now.rejected)
        history.log_upload(self.log, self.history, rounds=self.rounds)
        self._track(row["round"], row | own)
        return row

    def evaluated(self, round: int, kind: str, metrics: Mapping[str, Any] | None) -> None:
        """Keeps what was evaluated after a round."""
        if metrics is None:
            return
        if self.store is not None:
            self.store.add(round, kind, metrics)
        if self.history and self.history[-1]["round"] == round:
            tested = history.numbers(metrics)
            self.history[-1] |= tested
            if self.store is not None:
                self.store.note()
            self._track(round, tested)

    def finish(self, model: Arrays) -> None:
        """Writes what a run leaves, and says what it uploaded."""
        if self.store is not None:
            self.store.finish(model)
        history.log_upload(self.log, self.history, self.engine)

    def _track(self, round: int, figures: Mapping[str, float]) -> None:
        if self._tracker is not None:
            named = {key: value for key, value in figures.items() if key != "round"}
            self._tracker.add(str(self.policy), [(round, named)])

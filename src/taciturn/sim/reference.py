"""The plain loop: the paper's Algorithms 1 to 3, line by line.

Slow and obvious on purpose. The compiled engine is checked against it; read this one first.
"""

import time
from collections.abc import Generator, Mapping, Sequence
from copy import copy
from itertools import islice, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import client, downlink, server, tally
from taciturn.core.policy import Policy
from taciturn.progress import Chunk, Group
from taciturn.settings import Settings
from taciturn.sim import defaults, draws, history, local
from taciturn.sim.model import Model, flat_model, make_scores
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task, with_test


class SimState(NamedTuple):
    """What goes from round to round: the server's state, and what is kept of each client."""

    server: server.ServerState
    silence: np.ndarray | None  # how many times running; None where the rule does not look at it
    residuals: np.ndarray | None  # what the codec left out; None without feedback
    versions: np.ndarray | None  # of the public model that it has; None where there is none
    last: np.ndarray | None  # what it said last, as decoded; None where no stand-in needs it


def stream(
    task: Task, arms: Mapping[str, Policy], settings: Settings, groups: Sequence[Group] = ()
) -> Generator[Chunk]:
    """Every policy of `arms` with every seed, one after another, round by round.

    `groups` are what is left of a simulation that goes on; all of it by default.
    """
    model, scores = flat_model(task), make_scores(task)
    tested = history.tested_columns(task)
    trainer = Trainer(task, model, with_test(task)[0], settings)
    runs = groups or [Group((arm,), (seed,)) for arm in arms for seed in settings.all_seeds]
    for i, run in enumerate(runs):
        (arm,), (seed,) = run.arms, run.seeds
        one = _Run(arms[arm], settings, seed, trainer)
        carried = run.state(one.begin()) if run.done else one.begin()
        for t in range(run.done, settings.rounds):
            began = time.perf_counter()
            carried, seen, missed, answers = one.round(t, carried)
            seconds = time.perf_counter() - began
            kept = settings.kept_messages
            columns = history.recorded([one.policy], model.size, seen, missed, t, kept, tested)
            weights = downlink.trained_from(carried.server)
            if settings.evaluates(t):
                with jax.default_matmul_precision(trainer.precision):
                    for name, score in scores(weights).items():
                        columns[name][:] = score
            yield Chunk(
                # Copies, because clients write into what they remember.
                run._replace(done=t + 1, state=SimState(carried.server, *map(copy, carried[1:]))),
                columns,
                np.array([seconds]),
                tuple(runs[i + 1 :]),
                weights=weights[None, None] if t + 1 == settings.rounds else None,
                participation=history.participation_of(run.seeds, *answers),
            )


class _Run:
    """One policy with one seed."""

    def __init__(self, policy: Policy, settings: Settings, seed: int, trainer: "Trainer") -> None:
        self.policy, self.settings, self.trainer = policy, settings, trainer
        self.optimizer = local.server_optimizer(settings.server_optimizer, settings.server_lr)
        self.keys = draws.run_keys(seed)

    def begin(self) -> SimState:
        """Algorithm 1: initialise θ_0, the prediction and the sums behind it."""
        policy, population = self.policy, self.trainer.clients.population
        weights = np.asarray(self.trainer.model.init(self.keys.init))
        state = server.init(policy, weights, self.optimizer, self.settings.rounds)
        silence = np.zeros(population, np.int32) if "silence" in policy.rule.looks_at else None
        table = population, weights.size
        residuals = np.zeros(table, weights.dtype) if policy.codec.feedback else None
        last = np.zeros(table, weights.dtype) if policy.stand_in.own else None
        versions = np.zeros(population, np.int32) if policy.has_public else None
        return SimState(state, silence, residuals, versions, last)

    def round(self, t: int, carried: SimState) -> tuple[SimState, dict[str, Any], Any, Any]:
        """The state after round t, in which what is kept of clients is written over; what was seen
        and how many messages clients had missed, as in `history.recorded`; and who was asked, what
        each of them weighs and what it answered, as in `participation_of`."""
        policy, settings, trainer = self.policy, self.settings, self.trainer
        keys, state = draws.round_keys(self.keys, t), carried.server
        # C_t ← random set of N clients; they are sent θ_t and τ_t. With a codec for the way down
        # they get the messages since they last answered, which make P_t of what they have.
        public = downlink.trained_from(state)
        cohort = trainer.cohort(public, keys, t)
        there = np.asarray(draws.answers(keys, settings.cohort, settings.dropout))
        missed = np.zeros(settings.choice or settings.cohort, np.int32)
        if carried.versions is not None:
            missed = t - carried.versions[np.asarray(cohort)]
            carried.versions[np.asarray(cohort)[there]] = t
        config = server.open(policy, state.memory, settings.cohort)
        heard = tally.start(state.weights, policy.rule.each)
        examples = np.asarray(trainer.clients.examples_of(cohort))
        # With `choice` they were drawn by what they weigh, and count alike.
        counts = examples if settings.choice is None else np.ones_like(examples)
        answers = np.full(settings.cohort, history.NO_ANSWER)
        for slot in np.flatnonzero(there).tolist():
            # M_t^(k) ← ClientUpdate(k, θ_t, E, B, τ_t)
            k, n = cohort[slot], counts[slot].item()
            message = self.answer(carried, public, k, slot, n, config, keys, t)
            # A silent client becomes its stand-in when the tally is closed (Algorithm 3).
            before = None if carried.last is None else carried.last[k].copy()
            rejected = int(heard.n_rejected)
            heard = tally.add(heard, message, config, policy.codec, last=before)
            if heard.n_rejected > rejected:
                continue
            answers[slot] = history.SILENT if message.update is None else history.SPOKE
            if carried.last is not None and message.update is not None:
                carried.last[k] = message.update
        # τ_{t+1}, θ_{t+1}, and the sums updated with the step; then P_{t+1}.
        state, info = server.close(policy, state, heard, self.optimizer)
        state = downlink.publish(policy, state, np.asarray(draws.downlink_key(keys)))
        found = info._asdict() | {"missing": settings.cohort - there.sum()}
        seen = {name: np.array([[[number]]]) for name, number in found.items()}
        answered = (cohort, examples * there, answers[None])
        return carried._replace(server=state), seen, missed[None, None], answered

    def answer(
        self, carried: SimState, public: np.ndarray, k: Any, slot: int, examples: float,
        config: tally.RoundConfig, keys: draws.RoundKeys, t: int,
    ) -> tally.Message:  # fmt: skip
        """What client k says in round t, as the server reads it."""
        silence, residuals = carried.silence, carried.residuals
        trained, loss = self.trainer(public, k, slot, keys, t)
        uniform = draws.uniforms(keys, self.settings.cohort)[slot].item()
        message = client.respond(
            self.policy.rule, public, trained, examples, config.context, uniform,
            loss=loss, silence=0 if silence is None else int(silence[k]),
        )  # fmt: skip
        if silence is not None:
            silence[k] = 0 if message.update is not None else silence[k] + 1
        words = np.asarray(draws.codec_key(keys, k))
        kept = None if residuals is None else residuals[k]
        message, kept = client.through(message, self.policy.codec, words, kept)
        if residuals is not None:
            residuals[k] = kept
        return message


class Trainer:
    """Algorithm 2, lines 1 to 7: E epochs of mini-batch SGD on one client's data."""

    def __init__(self, task: Task, model: Model, clients: Clients, settings: Settings) -> None:
        self.task, self.model, self.clients, self.settings = task, model, clients, settings
        self.transformation = local.client_optimizer(settings)
        self.precision = defaults.PRECISIONS[settings.precision]
        self.step = jax.jit(local.make_step(task, model, self.transformation, settings.precision))
        self.rows = jax.jit(type(clients).batch)
        self.metrics = jax.jit(task.metrics)

    def cohort(self, weights: np.ndarray, keys: draws.RoundKeys, t: int) -> jax.Array:
        """Who is asked: any clients, or with `choice` those candidates whose loss is largest."""
        clients, settings = self.clients, self.settings
        if settings.choice is None:
            return draws.cohort(keys, clients.population, settings.cohort, t, self.task.cohort)
        examples = clients.examples_of(jnp.arange(clients.population))
        candidates = draws.candidates(keys, examples, settings.choice)
        with jax.default_matmul_precision(self.precision):
            losses = np.array([self.loss(weights, k) for k in candidates])
        order = np.argsort(np.where(np.isnan(losses), np.inf, -losses), kind="stable")
        return candidates[order[: settings.cohort]]

    def loss(self, weights: np.ndarray, k: jax.Array) -> float:
        """The mean loss over all rows of a client, dropout off."""
        params, sums = self.model.of(jnp.asarray(weights)), np.zeros(2)
        n = int(self.clients.rows_of(k[None])[0])
        for start in range(0, n, self.settings.batch):
            indices = np.arange(start, min(start + self.settings.batch, n))
            value, weight = self.metrics(params, self.rows(self.clients, k, indices))["loss"]
            sums += float(value.sum()), float(weight.sum())
        return sums[0] / sums[1] if sums[1] else np.nan

    def __call__(
        self, weights: np.ndarray, k: jax.Array, slot: int, keys: draws.RoundKeys, t: int
    ) -> tuple[np.ndarray, float]:
        """What client k makes of the weights in round t, and its mean loss over the steps."""
        settings, n = self.settings, int(self.clients.rows_of(k[None])[0])
        lr = local.learning_rate(settings, settings.lr_schedule, t)
        size, total = settings.batch, 0.0
        whole = jnp.full(settings.cohort, settings.epochs * -(-n // size))
        steps = int(draws.local_steps(keys, whole, settings.stragglers)[slot])  # until time is up
        trained = self.model.unravel(jnp.asarray(weights))
        slots = self.transformation.init(trained)
        # An epoch's batches; its last one holds what is left.
        batches = [np.arange(i, min(i + size, n)) for i in range(0, n, size)]
        order = islice(product(range(settings.epochs), batches), steps)
        with jax.default_matmul_precision(self.precision):
            for step, (epoch, positions) in enumerate(order):
                batch = self.rows(self.clients, k, draws.shuffled(keys, slot, epoch, n, positions))
                mask, key = np.ones(len(positions), bool), draws.dropout_key(keys, slot, step)
                given = trained, slots, batch, mask, key, lr, settings.clip, settings.prox
                trained, slots, loss = self.step(*given)
                total += float(loss)
            return np.asarray(self.model.ravel(trained)), total / max(steps, 1)

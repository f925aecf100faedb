"""The plain loop: the paper's Algorithms 1 to 3, line by line.

Slow and obvious on purpose. The compiled engine is checked against it; read this one first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import client, downlink, messages, server, tally
from taciturn.core.policy import Policy
from taciturn.core.server import ServerState
from taciturn.progress import Chunk, Group
from taciturn.settings import Settings
from taciturn.sim import draws
from taciturn.sim.defaults import PRECISIONS
from taciturn.sim.history import as_recorded, bytes_up, downloads, tested_columns
from taciturn.sim.local import (
    Model,
    client_optimizer,
    flat_model,
    learning_rate,
    make_evaluate,
    make_step,
    server_optimizer,
)
from taciturn.sim.states import unpack
from taciturn.sim.voices import NO_ANSWER, SILENT, SPOKE, count
from taciturn.tasks.task import Clients, Task, with_test


class Carried(NamedTuple):
    """What goes from round to round: the server's state, and what clients remember.

    Attributes:
      silence: how often in a row each was silent; None where the rule does not look at it.
      residuals: what the codec left out of each; None without feedback.
      versions: of the public model that each has; None where there is none.
      last: what the server read of each when it last spoke; None where no stand-in needs it.
    """

    server: ServerState
    silence: np.ndarray | None
    residuals: np.ndarray | None
    versions: np.ndarray | None
    last: np.ndarray | None


def stream(
    task: Task, arms: Mapping[str, Policy], settings: Settings, groups: Sequence[Group] = ()
) -> Iterator[Chunk]:
    """Every policy of `arms` with every seed, one after another, round by round.

    Args:
      task, arms, settings: what is simulated.
      groups: what is left of a simulation that goes on; all of it by default.
    """
    model = flat_model(task)
    clients, test = with_test(task)
    trainer = Trainer(task, model, clients, settings)
    sums = jax.jit(make_evaluate(task, model, test.total))

    def evaluate(weights: np.ndarray) -> dict[str, float]:
        with jax.default_matmul_precision(trainer.precision):
            found = sums(weights, test, np.zeros(1, np.int32))
        return {name: float(score) for name, score in found.scores().items()}

    runs = groups or [Group((arm,), (seed,)) for arm in arms for seed in settings.all_seeds]
    for i, run in enumerate(runs):
        (arm,), done = run.arms, run.done
        for state, row, answers, seconds in _run_seed(
            arms[arm], settings, run, model, trainer, evaluate
        ):
            done += 1
            weights = downlink.trained_from(state.server)
            yield Chunk(
                run._replace(done=done, state=state),
                as_recorded({name: [[[value]]] for name, value in row.items()}),
                np.array([seconds]),
                model.size,
                waiting=tuple(runs[i + 1 :]),
                weights=weights[None, None] if done == settings.rounds else None,
                voices=count(run.seeds, *answers),
            )


def _run_seed(
    policy: Policy,
    settings: Settings,
    run: Group,
    model: Model,
    trainer: Trainer,
    evaluate: Callable[[np.ndarray], dict[str, float]],
) -> Iterator[tuple[Carried, dict[str, Any], tuple[Any, Any, Any], float]]:
    """The state after every round, what was recorded of it, who was asked and answered what, as in
    `voices.count`, and seconds."""
    optimizer = server_optimizer(settings.server_optimizer, settings.server_lr)
    keys = draws.run_keys(run.seeds[0])
    population = trainer.clients.population

    # Algorithm 1: initialise θ_0, the prediction and the sums behind it.
    state = server.init(policy, np.asarray(model.init(keys.init)), optimizer, settings.rounds)
    silence = np.zeros(population, np.int32) if "silence" in policy.rule.looks_at else None
    residuals, last = (
        np.zeros((population, model.size), state.weights.dtype) if needed else None
        for needed in (policy.codec.feedback, policy.stand_in.own)
    )
    versions = np.zeros(population, np.int32) if policy.has_public else None
    if run.done:
        carried = Carried(state, silence, residuals, versions, last)
        state, silence, residuals, versions, last = unpack(carried, run.state)
    for t in range(run.done, settings.rounds):
        began = time.perf_counter()
        round_keys = draws.round_keys(keys, t)
        # C_t ← random set of N clients; they are sent θ_t and τ_t. With a codec for the way down
        # they get the messages since they last answered, which make P_t of what they have.
        public = downlink.trained_from(state)
        if settings.choice is None:
            cohort = draws.cohort(round_keys, population, settings.cohort, t, trainer.own_cohort)
        else:
            cohort = trainer.choose(public, round_keys)
        uniforms = draws.uniforms(round_keys, settings.cohort)
        opening = server.open(policy, state.memory, settings.cohort)
        heard = tally.start(state.weights, policy.rule.each)
        there = np.ones(settings.cohort, bool)
        if settings.dropout:
            there = np.asarray(draws.answers(round_keys, settings.cohort, settings.dropout))
        rows, examples = (
            np.asarray(of(cohort)) for of in (trainer.clients.rows_of, trainer.clients.examples_of)
        )
        steps = trainer.steps(rows, round_keys)
        weights, answers = np.zeros(settings.cohort), np.full(settings.cohort, NO_ANSWER)
        missed = np.zeros(settings.choice or settings.cohort, np.int32)
        if versions is not None:
            missed = t - versions[np.asarray(cohort)]
            versions[np.asarray(cohort)[there]] = t
        for slot in np.flatnonzero(there).tolist():
            k = cohort[slot]
            # M_t^(k) ← ClientUpdate(k, θ_t, E, B, τ_t)
            rate = learning_rate(
                settings.lr, settings.lr_decay, settings.lr_schedule, t, settings.rounds
            )
            with jax.default_matmul_precision(trainer.precision):
                trained, loss = trainer(
                    public, k, rows[slot].item(), slot, round_keys, rate, steps[slot]
                )
            asked = 0 if silence is None else int(silence[k])
            # Who was drawn by what it weighs counts like the others.
            counts = examples[slot].item() if settings.choice is None else 1.0
            message = client.respond(policy.rule, public, trained, counts,
                                     opening.context, uniforms[slot].item(), loss=loss,
                                     silence=asked)  # fmt: skip
            if silence is not None:
                silence[k] = 0 if message.update is not None else asked + 1
            # With feedback, what was left out before is said too.
            said = messages.with_residual(message, None if residuals is None else residuals[k])
            # What the server counts is what it can read from the client's code.
            words = np.asarray(draws.codec_key(round_keys, k))
            message = messages.through(said, policy.codec, words)
            if residuals is not None and message.update is not None:
                residuals[k] = said.update - message.update
            # Silent clients become their stand-ins when the tally is closed (Algorithm 3).
            before = None if last is None else last[k].copy()
            heard = tally.add(heard, message, opening, policy.codec, last=before)
            if last is not None and message.update is not None:
                last[k] = message.update
            weights[slot] = examples[slot]
            if np.isfinite(message.norm):
                answers[slot] = SILENT if message.update is None else SPOKE
        # τ_{t+1}, θ_{t+1}, and the sums updated with the step; then P_{t+1}.
        state, info = server.close(policy, state, heard, optimizer)
        state = downlink.publish(policy, state, np.asarray(draws.downlink_key(round_keys)))
        seconds = time.perf_counter() - began

        row = info._asdict() | {"missing": settings.cohort - there.sum()}
        sent = downloads(policy, model.size, missed[None], t, settings.kept_messages)
        row |= {name: column.item() for name, column in sent.items()}
        row |= dict.fromkeys(trainer.tested, np.nan)
        row["bytes_up"] = bytes_up(policy, model.size, row["spoke"], row["nbytes"])
        del row["silent"], row["counts"], row["nbytes"]
        if settings.evaluates(t):
            scores = evaluate(downlink.trained_from(state))
            row |= {name: scores[name] for name in trainer.tested}
        # Copies, because clients write into them.
        carried = Carried(state, copy(silence), copy(residuals), copy(versions), copy(last))
        yield carried, row, (cohort, weights, answers[None]), seconds


class Trainer:
    """Algorithm 2, lines 1 to 7: E epochs of mini-batch SGD on one client's data."""

    def __init__(self, task: Task, model: Model, clients: Clients, settings: Settings) -> None:
        self.clients = clients
        self.settings = settings
        self.transformation = client_optimizer(settings)
        self.precision = PRECISIONS[settings.precision]
        self.own_cohort, self.tested = task.cohort, tested_columns(task)
        self.model = model
        self.step = jax.jit(make_step(task, self.transformation, settings.precision))
        self.batch = jax.jit(self._batch)
        self.rows = jax.jit(lambda clients, k, indices: clients.batch(k, indices))
        self.metrics = jax.jit(task.metrics)

    @staticmethod
    def _batch(clients, k, keys, slot, epoch, n, positions, step):  # type: ignore[no-untyped-def]
        indices = draws.shuffled(keys, slot, epoch, n, positions)
        return clients.batch(k, indices), draws.dropout_key(keys, slot, step)

    def choose(self, weights: np.ndarray, keys: draws.RoundKeys) -> jax.Array:
        """Power of choice: of some candidates those whose loss of the weights is largest."""
        examples = self.clients.examples_of(jnp.arange(self.clients.population))
        candidates = draws.candidates(keys, examples, self.settings.choice or 0)
        with jax.default_matmul_precision(self.precision):
            losses = np.array([self.loss(weights, k) for k in candidates])
        order = np.argsort(np.where(np.isnan(losses), np.inf, -losses), kind="stable")
        return candidates[order[: self.settings.cohort]]

    def loss(self, weights: np.ndarray, k: jax.Array) -> float:
        """The mean loss over all rows of a client, dropout off."""
        params, sums = self.model.unravel(jnp.asarray(weights)), np.zeros(2)
        n = int(self.clients.rows_of(k[None])[0])
        for start in range(0, n, self.settings.batch):
            indices = np.arange(start, min(start + self.settings.batch, n))
            value, weight = self.metrics(params, self.rows(self.clients, k, indices))["loss"]
            sums += float(value.sum()), float(weight.sum())
        return sums[0] / sums[1] if sums[1] else np.nan

    def steps(self, rows: np.ndarray, keys: draws.RoundKeys) -> np.ndarray:
        """How many local steps clients with so many rows do before time is up."""
        settings = self.settings
        steps = settings.epochs * -(-rows // settings.batch)
        if settings.stragglers:
            return np.asarray(draws.local_steps(keys, jnp.asarray(steps), settings.stragglers))
        return steps

    def __call__(
        self, weights: np.ndarray, k: jax.Array, n: int, slot: int, keys: draws.RoundKeys, lr: Any,
        steps: int,
    ) -> tuple[np.ndarray, float]:  # fmt: skip
        """The trained weights and the mean loss over so many steps on the n rows of client k."""
        batch_size, done = self.settings.batch, 0
        trained = self.model.unravel(jnp.asarray(weights))
        slots = self.transformation.init(trained)
        total = 0.0
        for epoch in range(self.settings.epochs):
            for start in range(0, n, batch_size):
                if done == steps:
                    break
                # The last batch of an epoch holds what is left.
                positions = np.arange(start, min(start + batch_size, n))
                batch, key = self.batch(self.clients, k, keys, slot, epoch, n, positions, done)
                mask = np.ones(len(positions), bool)
                trained, slots, loss = self.step(
                    trained, slots, batch, mask, key, lr, self.settings.clip
                )
                total += float(loss)
                done += 1
        return np.asarray(self.model.ravel(trained)), total / max(done, 1)

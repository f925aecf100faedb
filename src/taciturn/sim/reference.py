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

from taciturn.core import client, messages, server, tally
from taciturn.core.policy import Policy
from taciturn.core.server import ServerState
from taciturn.progress import Chunk, Group
from taciturn.settings import Settings
from taciturn.sim import draws
from taciturn.sim.defaults import PRECISIONS
from taciturn.sim.history import TESTED, as_recorded
from taciturn.sim.local import (
    Model,
    client_optimizer,
    flat_model,
    make_evaluate,
    make_step,
    server_optimizer,
)
from taciturn.sim.states import unpack
from taciturn.tasks.task import Clients, Task, with_test


class Carried(NamedTuple):
    """What goes from round to round: the server's state, and what clients remember.

    Attributes:
      silence: how often in a row each was silent; None where the rule does not look at it.
      residuals: what the codec left out of each; None without feedback.
      last: what the server read of each when it last spoke; None where no stand-in needs it.
    """

    server: ServerState
    silence: np.ndarray | None
    residuals: np.ndarray | None
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
    total = len(jax.tree.leaves(test)[0])
    sums = jax.jit(make_evaluate(task, model, total, total))

    def evaluate(weights: np.ndarray) -> dict[str, float]:
        with jax.default_matmul_precision(trainer.precision):
            found = sums(weights, test, np.zeros(1, np.int32))
        return {name: float(value / weight) for name, (value, weight) in found.items()}

    runs = groups or [Group((arm,), (seed,)) for arm in arms for seed in settings.all_seeds]
    for i, run in enumerate(runs):
        (arm,), done = run.arms, run.done
        for state, row, seconds in _run_seed(arms[arm], settings, run, model, trainer, evaluate):
            done += 1
            yield Chunk(
                run._replace(done=done, state=state),
                as_recorded({name: [[[value]]] for name, value in row.items()}),
                np.array([seconds]),
                model.size,
                waiting=tuple(runs[i + 1 :]),
                weights=state.server.weights[None, None] if done == settings.rounds else None,
            )


def _run_seed(
    policy: Policy,
    settings: Settings,
    run: Group,
    model: Model,
    trainer: Trainer,
    evaluate: Callable[[np.ndarray], dict[str, float]],
) -> Iterator[tuple[Carried, dict[str, Any], float]]:
    """The state after every round, what was recorded of it, and seconds."""
    optimizer = server_optimizer(settings.server_optimizer, settings.server_lr)
    keys = draws.run_keys(run.seeds[0])
    population = trainer.clients.population

    # Algorithm 1: initialise θ_0, the prediction and the sums behind it.
    state = server.init(policy, np.asarray(model.init(keys.init)), optimizer)
    silence = np.zeros(population, np.int32) if "silence" in policy.rule.looks_at else None
    residuals, last = (
        np.zeros((population, model.size), state.weights.dtype) if needed else None
        for needed in (policy.codec.feedback, policy.stand_in.own)
    )
    if run.done:
        state, silence, residuals, last = unpack(
            Carried(state, silence, residuals, last), run.state
        )
    for t in range(run.done, settings.rounds):
        began = time.perf_counter()
        round_keys = draws.round_keys(keys, t)
        # C_t ← random set of N clients; they are sent θ_t and τ_t.
        cohort = draws.cohort(round_keys, population, settings.cohort, t, trainer.own_cohort)
        uniforms = draws.uniforms(round_keys, settings.cohort)
        opening = server.open(policy, state.memory)
        heard = tally.start(state.weights, policy.rule.each)
        there = np.ones(settings.cohort, bool)
        if settings.dropout:
            there = np.asarray(draws.answers(round_keys, settings.cohort, settings.dropout))
        for slot in np.flatnonzero(there).tolist():
            k = cohort[slot]
            # M_t^(k) ← ClientUpdate(k, θ_t, E, B, τ_t)
            rate = settings.lr * settings.lr_decay**t
            with jax.default_matmul_precision(trainer.precision):
                trained, loss = trainer(state.weights, k, slot, round_keys, rate)
            examples = float(trainer.clients.examples_of(k[None])[0])
            asked = 0 if silence is None else int(silence[k])
            message = client.respond(policy.rule, state.weights, trained, examples,
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
        # τ_{t+1}, θ_{t+1}, and the sums updated with the step.
        state, info = server.close(policy, state, heard, optimizer)
        seconds = time.perf_counter() - began

        row = info._asdict() | {"missing": settings.cohort - there.sum()}
        row |= dict.fromkeys(TESTED, np.nan)
        del row["silent"], row["counts"]
        if settings.evaluates(t):
            scores = evaluate(state.weights)
            row |= {name: scores[name] for name in TESTED}
        # Copies, because clients write into them.
        yield Carried(state, copy(silence), copy(residuals), copy(last)), row, seconds


class Trainer:
    """Algorithm 2, lines 1 to 7: E epochs of mini-batch SGD on one client's data."""

    def __init__(self, task: Task, model: Model, clients: Clients, settings: Settings) -> None:
        self.clients = clients
        self.settings = settings
        self.transformation = client_optimizer(settings)
        self.precision = PRECISIONS[settings.precision]
        self.own_cohort = task.cohort
        self.model = model
        self.step = jax.jit(make_step(task, self.transformation, settings.precision))
        self.batch = jax.jit(self._batch)

    @staticmethod
    def _batch(clients, k, keys, slot, epoch, n, positions, step):  # type: ignore[no-untyped-def]
        indices = draws.shuffled(keys, slot, epoch, n, positions)
        return clients.batch(k, indices), draws.dropout_key(keys, slot, step)

    def __call__(
        self, weights: np.ndarray, k: jax.Array, slot: int, keys: draws.RoundKeys, lr: float
    ) -> tuple[np.ndarray, float]:
        """The trained weights and the mean loss over the steps."""
        batch_size, done = self.settings.batch, 0
        n = int(self.clients.rows_of(k[None])[0])
        trained = self.model.unravel(jnp.asarray(weights))
        slots = self.transformation.init(trained)
        total = 0.0
        for epoch in range(self.settings.epochs):
            for start in range(0, n, batch_size):
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

"""The plain loop: the paper's Algorithms 1 to 3, line by line.

Slow and obvious on purpose. The compiled engine is checked against it; read this one first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core import client, messages, server, tally
from taciturn.core.policy import Policy
from taciturn.progress import Progress, Tell
from taciturn.settings import Settings
from taciturn.sim import draws
from taciturn.sim.defaults import PRECISIONS
from taciturn.sim.history import History
from taciturn.sim.local import (
    Model,
    client_optimizer,
    flat_model,
    make_evaluate,
    make_step,
    server_optimizer,
)
from taciturn.tasks.task import Clients, Task, with_test


def run(
    task: Task, arms: Mapping[str, Policy], settings: Settings, tell: Tell
) -> dict[str, History]:
    """Every policy of `arms` with every seed, one after another."""
    model = flat_model(task)
    clients, test = with_test(task)
    trainer = Trainer(task, model, clients, settings)
    total = len(jax.tree.leaves(test)[0])
    sums = jax.jit(make_evaluate(task, model, total, total))

    def evaluate(weights: np.ndarray) -> dict[str, float]:
        found = sums(weights, test, np.zeros(1, np.int32))
        return {name: float(value / weight) for name, (value, weight) in found.items()}

    with jax.default_matmul_precision(PRECISIONS[settings.precision]):
        return {
            name: _run_arm(name, policy, settings, model, trainer, evaluate, tell)
            for name, policy in arms.items()
        }


def _run_arm(
    name: str,
    policy: Policy,
    settings: Settings,
    model: Model,
    trainer: Trainer,
    evaluate: Callable[[np.ndarray], dict[str, float]],
    tell: Tell,
) -> History:
    runs = [_run_seed(name, policy, settings, seed, model, trainer, evaluate, tell)
            for seed in settings.all_seeds]  # fmt: skip
    columns, weights, seconds = zip(*runs, strict=True)
    stacked = {key: np.stack([column[key] for column in columns]) for key in columns[0]}
    return History(
        policy=policy, seeds=settings.all_seeds, cohort=settings.cohort, size=model.size,
        weights=np.stack(weights), seconds=np.mean(seconds, axis=0), **stacked,
    )  # fmt: skip


def _run_seed(
    name: str,
    policy: Policy,
    settings: Settings,
    seed: int,
    model: Model,
    trainer: Trainer,
    evaluate: Callable[[np.ndarray], dict[str, float]],
    tell: Tell,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    optimizer = server_optimizer(settings.server_optimizer, settings.server_lr)
    keys = draws.run_keys(seed)
    rows, seconds = [], []
    silence: Counter[int] = Counter()  # how often in a row each client was silent
    heard_so_far, accuracy = 0, np.nan

    # Algorithm 1: initialise θ_0, the prediction and the sums behind it.
    state = server.init(policy, np.asarray(model.init(keys.init)), optimizer)
    for t in range(settings.rounds):
        began = time.perf_counter()
        round_keys = draws.round_keys(keys, t)
        # C_t ← random set of N clients; they are sent θ_t and τ_t.
        cohort = draws.cohort(round_keys, trainer.clients.population, settings.cohort, t,
                              trainer.own_cohort)  # fmt: skip
        uniforms = draws.uniforms(round_keys, settings.cohort)
        opening = server.open(policy, state.memory)
        heard = tally.start(state.weights)
        for slot in range(settings.cohort):
            k = cohort[slot]
            # M_t^(k) ← ClientUpdate(k, θ_t, E, B, τ_t)
            rate = settings.lr * settings.lr_decay**t
            trained, loss = trainer(state.weights, k, slot, round_keys, rate)
            examples = float(trainer.clients.examples_of(k[None])[0])
            message = client.respond(policy.rule, state.weights, trained, examples,
                                     opening.context, uniforms[slot].item(), loss=loss,
                                     silence=silence[int(k)])  # fmt: skip
            silence[int(k)] = 0 if message.update is not None else silence[int(k)] + 1
            # What the server counts is what it can read from the client's code.
            words = np.asarray(draws.codec_key(round_keys, k))
            message = messages.through(message, policy.codec, words)
            # Silent clients become their stand-ins when the tally is closed (Algorithm 3).
            heard = tally.add(heard, message, opening, policy.codec)
        # τ_{t+1}, θ_{t+1}, and the sums updated with the step.
        state, info = server.close(policy, state, heard, optimizer)
        seconds.append(time.perf_counter() - began)

        tested = {"accuracy": np.nan, "loss": np.nan}
        if settings.evaluates(t):
            scores = evaluate(state.weights)
            tested = {key: scores[key] for key in tested}
            accuracy = tested["accuracy"]
        heard_so_far += int(info.spoke)
        row = {key: getattr(info, key) for key in info._fields if key not in ("silent", "counts")}
        row |= tested
        rows.append({key: float(value) for key, value in row.items()})
        tell(
            Progress(name, seed, t + 1, accuracy, heard_so_far, (t + 1) * settings.cohort,
                     heard_so_far * policy.codec.nbytes(model.size))
        )  # fmt: skip

    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    for key in ("spoke", "rejected"):
        columns[key] = columns[key].astype(np.int32)
    return columns, state.weights, np.array(seconds)


class Trainer:
    """Algorithm 2, lines 1 to 7: E epochs of mini-batch SGD on one client's data."""

    def __init__(self, task: Task, model: Model, clients: Clients, settings: Settings) -> None:
        self.clients = clients
        self.own_cohort = task.cohort
        self.settings = settings
        self.transformation = client_optimizer(settings)
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

"""The settings of a simulation, checked once for every way of running it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import optax

from taciturn.checks import number
from taciturn.errors import InputError, UnknownName
from taciturn.sim.local import optimizer_of
from taciturn.tasks.task import Task

# What JAX calls the precision of matrix products. Weights and sums are float32 in all of them.
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}


class Progress(NamedTuple):
    """What a progress callback is told, after every round or chunk of rounds.

    Attributes:
      arm: the name of the policy.
      seed: which run, or None where all runs of the arm are side by side.
      round: how many rounds are done.
      accuracy: the last one measured, in [0, 1], mean over seeds; NaN before the first.
      spoke: how many clients spoke so far, mean over seeds.
      asked: how many were asked so far.
      bytes_up: bytes of updates uploaded so far, mean over seeds.
    """

    arm: str
    seed: int | None
    round: int
    accuracy: float
    spoke: float
    asked: int
    bytes_up: float


@dataclass(frozen=True)
class Settings:
    """What `simulate` was asked for, with the task's defaults filled in."""

    rounds: int
    cohort: int
    seeds: tuple[int, ...]
    batch: int
    epochs: int
    lr: float
    clip: float
    client_optimizer: str | optax.GradientTransformation
    server_optimizer: str | optax.GradientTransformation
    server_lr: float
    evaluate_every: int
    precision: str
    devices: int | None
    lanes: int | None
    progress: Callable[[Progress], None]

    def evaluates(self, round: int) -> bool:
        """Whether the model is tested after this round (counted from 0)."""
        return (round + 1) % self.evaluate_every == 0 or round + 1 == self.rounds


def settle(
    task: Task,
    *,
    rounds: int = 100,
    cohort: int = 10,
    seeds: int | Sequence[int] = (0,),
    batch: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    clip: float | None = None,
    client_optimizer: str | optax.GradientTransformation = "sgd",
    server_optimizer: str | optax.GradientTransformation = "sgd",
    server_lr: float | None = None,
    evaluate_every: int | None = None,
    precision: str = "float32",
    devices: int | None = None,
    lanes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Settings:
    """Checks the settings and fills in the task's defaults.

    Args:
      task: gives the defaults for `batch`, `epochs`, `lr` and `clip`.
      rounds: how many rounds.
      cohort: how many clients are asked in a round.
      seeds: one run a seed; a whole number means that many seeds from 0.
      batch, epochs: examples in a local batch, passes over a client's data.
      lr: the clients' learning rate.
      clip: the largest global norm of a batch's gradient; infinity for no clipping.
      client_optimizer: sgd, momentum, adam, yogi or an Optax transformation with its own rate.
      server_optimizer: the same, for the server; sgd at 1.0 is federated averaging.
      server_lr: the server's learning rate, 1.0 by default.
      evaluate_every: rounds between tests; by default twenty tests in a run. The last is tested.
      precision: of matrix products, float32, tf32 or bfloat16; weights are always float32.
      devices: how many devices to use, all of them by default.
      lanes: how many clients train at the same time on a device; chosen by itself.
      progress: called as work goes on.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    for name, which, rate in (
        ("lr", client_optimizer, lr),
        ("server_lr", server_optimizer, server_lr),
    ):
        optimizer_of(which)
        if not isinstance(which, str) and rate is not None:
            raise InputError(f"An Optax transformation has a rate of its own: leave out `{name}`.")
    rounds = _whole("rounds", rounds)
    cohort = _whole("cohort", cohort)
    population = task.clients.population
    if cohort > population:
        raise InputError(
            f"`cohort` must be at most the population of {population} clients, got {cohort}."
        )
    if isinstance(seeds, int):
        seeds = range(_whole("seeds", seeds))
    seeds = tuple(_whole("seeds", seed, 0) for seed in seeds)
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"`seeds` must be different whole numbers, got {list(seeds)}.")
    default_lr = task.lr if isinstance(client_optimizer, str) else 1.0
    clip = task.clip if clip is None else clip
    return Settings(
        rounds=rounds,
        cohort=cohort,
        seeds=seeds,
        batch=_whole("batch", task.batch if batch is None else batch),
        epochs=_whole("epochs", task.epochs if epochs is None else epochs),
        lr=number("lr", default_lr if lr is None else lr, 0.0, math.inf, "[0, inf)"),
        clip=math.inf if clip is None else number("clip", clip, 0.0, math.inf, "(0, inf]"),
        client_optimizer=client_optimizer,
        server_optimizer=server_optimizer,
        server_lr=number(
            "server_lr", 1.0 if server_lr is None else server_lr, 0, math.inf, "[0, inf)"
        ),
        evaluate_every=_whole(
            "evaluate_every", max(1, rounds // 20) if evaluate_every is None else evaluate_every
        ),
        precision=precision,
        devices=None if devices is None else _whole("devices", devices),
        lanes=None if lanes is None else _whole("lanes", lanes),
        progress=progress or (lambda _: None),
    )


def _whole(name: str, value: Any, least: int = 1) -> int:
    try:
        result = operator.index(value)
    except TypeError:
        raise InputError(f"`{name}` must be a whole number, got {value!r}.") from None
    if isinstance(value, bool) or result < least:
        raise InputError(f"`{name}` must be at least {least}, got {value!r}.")
    return result

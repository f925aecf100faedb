"""Settings as they are run: checked, with the defaults that are the task's."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from taciturn.checks import number, whole
from taciturn.core.policy import Policy
from taciturn.errors import InputError, UnknownName
from taciturn.settings import Settings
from taciturn.sim.devices import mesh
from taciturn.sim.local import SCHEDULES, optimizer_of
from taciturn.tasks.check import check, check_loss
from taciturn.tasks.task import Task

# What JAX calls the precision of matrix products. Weights and sums are float32 in all of them.
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}
MOST_SEED, MOST_RUNS = 2**32 - 1, 10**6
MOST_ROUNDS = 10**7  # of all runs of an arm: what is recorded of them has to fit into memory
MOST_EPOCHS, MOST_BATCH, MOST_LANES = 10**4, 10**6, 10**5

_S = TypeVar("_S", bound=Settings)


def fill_in(settings: _S, task: Task, plain: bool = False, policies: Iterable[Policy] = ()) -> _S:
    """The settings, checked like the task, with the defaults that are the task's.

    Args:
      settings, task: what is simulated.
      plain: whether the plain loop does it.
      policies: those that are to run with the settings.
    """
    check(task)
    if not isinstance(settings.precision, str) or settings.precision not in PRECISIONS:
        raise UnknownName("precision", settings.precision, PRECISIONS)
    if not isinstance(settings.lr_schedule, str) or settings.lr_schedule not in SCHEDULES:
        raise UnknownName("lr_schedule", settings.lr_schedule, SCHEDULES)
    for name, which, rate in (
        ("lr", settings.client_optimizer, settings.lr),
        ("server_lr", settings.server_optimizer, settings.server_lr),
    ):
        optimizer_of(which)
        if not isinstance(which, str) and rate is not None:
            raise InputError(f"An Optax transformation has a rate of its own: leave out `{name}`.")
    lr = task.lr if isinstance(settings.client_optimizer, str) else 1.0
    clip = math.inf if task.clip is None else task.clip
    usual = {
        "epochs": task.epochs, "batch": task.batch, "lr": lr, "clip": clip, "server_lr": 1.0,
        "evaluate_every": max(1, whole("rounds", settings.rounds, most=MOST_ROUNDS) // 20),
    }  # fmt: skip
    given = {name: getattr(settings, name) for name in usual}
    filled = usual | {name: value for name, value in given.items() if value is not None}
    for name, most in (("epochs", MOST_EPOCHS), ("batch", MOST_BATCH), ("evaluate_every", None)):
        filled[name] = whole(name, filled[name], most=most)
    # No batch has more rows than a client.
    filled["batch"] = min(filled["batch"], task.clients.longest)
    for name, interval in (("lr", "[0, inf)"), ("clip", "(0, inf]"), ("server_lr", "[0, inf)")):
        filled[name] = number(name, filled[name], 0.0, math.inf, interval)
    filled["dropout"] = number("dropout", settings.dropout, 0.0, 1.0, "[0, 1)")
    filled["stragglers"] = number("stragglers", settings.stragglers, 0.0, 1.0, "[0, 1]")
    filled["prox"] = number("prox", settings.prox, 0.0, math.inf, "[0, inf)")
    filled["lr_decay"] = number("lr_decay", settings.lr_decay, 0.0, 1.0, "(0, 1]")
    if settings.kept_messages is not None:
        filled["kept_messages"] = whole("kept_messages", settings.kept_messages, 0)
    for name in ("devices", "lanes"):
        if plain and getattr(settings, name) is not None:
            raise InputError(f"`{name}` is the engine's: the plain loop (`plain`) has none.")
    for name, most in (("devices", None), ("lanes", MOST_LANES)):
        if getattr(settings, name) is not None:
            filled[name] = whole(name, getattr(settings, name), most=most)
    if settings.devices is not None:
        mesh(filled["devices"])
    population = task.clients.population
    filled["cohort"] = whole("cohort", settings.cohort)
    if filled["cohort"] > population:
        raise InputError(
            f"`cohort` must be at most the population of {population} clients, "
            f"got {settings.cohort}."
        )
    if settings.choice is not None:
        filled["choice"] = _choice(settings.choice, filled["cohort"], task, policies)
    seeds = _seeds(settings)
    filled["rounds"] = whole("rounds", settings.rounds, most=MOST_ROUNDS // len(seeds))
    return replace(settings, seeds=seeds, seed=None, **filled)


def _choice(given: Any, cohort: int, task: Task, policies: Iterable[Policy]) -> int:
    population = task.clients.population
    choice = whole("choice", given)
    if not cohort <= choice <= population:
        raise InputError(
            f"`choice` must be at least the cohort of {cohort} and at most the population of "
            f"{population} clients, got {given}."
        )
    if task.cohort is not None:
        raise InputError(f"Task `{task.name}` draws its own cohorts: leave out `choice`.")
    for policy in policies:
        if policy.has_public:
            raise InputError(
                f"With `choice` clients download the whole model: the policy {policy} has a codec "
                f"for the way down."
            )
    check_loss(task)
    return choice


def _seeds(settings: Settings) -> tuple[int, ...]:
    if settings.seed is not None:
        if settings.seeds != 1:
            raise InputError("`seed` is one run and `seeds` are several: give one of them.")
        return (whole("seed", settings.seed, 0, MOST_SEED),)
    given: Any = settings.seeds
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        given = range(whole("seeds", given, 1, MOST_RUNS))
    found = tuple(whole("seeds", seed, 0, MOST_SEED) for seed in given)
    if not found or len(set(found)) != len(found):
        raise InputError(f"`seeds` must be different whole numbers, got {list(found)}.")
    return found

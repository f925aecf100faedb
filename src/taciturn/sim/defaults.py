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
from taciturn.tasks.check import check, metric_names
from taciturn.tasks.task import Task

# What JAX calls the precision of matrix products. Weights and sums are float32 in all of them.
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}
MOST_SEED, MOST_RUNS = 2**32 - 1, 10**6
MOST_ROUNDS = 10**7  # of all runs of an arm: what is recorded of them has to fit into memory
WHOLE = {"epochs": 10**4, "batch": 10**6, "evaluate_every": None, "devices": None, "lanes": 10**5}
REAL = {
    "lr": "[0, inf)", "clip": "(0, inf]", "server_lr": "[0, inf)", "dropout": "[0, 1)",
    "stragglers": "[0, 1]", "prox": "[0, inf)", "lr_decay": "(0, 1]",
}  # fmt: skip

_S = TypeVar("_S", bound=Settings)


def fill_in(settings: _S, task: Task, plain: bool = False, policies: Iterable[Policy] = ()) -> _S:
    """The settings, checked like the task, with the defaults that are the task's.

    `plain` is whether the plain loop runs, and `policies` are those that do so with these settings.
    """
    check(task)
    _check_names(settings)
    filled = _numbers(settings, task)
    for name in ("devices", "lanes"):
        if plain and name in filled:
            raise InputError(f"`{name}` is the engine's: the plain loop (`plain`) has none.")
    mesh(filled.get("devices"))  # raises where there are fewer
    cohort, population = whole("cohort", settings.cohort), task.clients.population
    most = f"at most the population of {population} clients, got"
    if cohort > population:
        raise InputError(f"`cohort` must be {most} {cohort}.")
    filled["cohort"] = cohort
    if settings.choice is not None:
        filled["choice"] = choice = whole("choice", settings.choice)
        if not cohort <= choice <= population:
            least = f"at least the cohort of {cohort}"
            raise InputError(f"`choice` must be {least} and {most} {choice}.")
        _check_choice(task, policies)
    seeds = _seeds(settings)
    filled["rounds"] = whole("rounds", settings.rounds, most=MOST_ROUNDS // len(seeds))
    return replace(settings, seeds=seeds, seed=None, **filled)


def _numbers(settings: Settings, task: Task) -> dict[str, Any]:
    """The settings that are numbers in an interval, and were given or have a default."""
    own_rate = not isinstance(settings.client_optimizer, str)
    filled: dict[str, Any] = {
        "epochs": task.epochs, "batch": task.batch, "lr": 1.0 if own_rate else task.lr,
        "clip": math.inf if task.clip is None else task.clip, "server_lr": 1.0,
        "evaluate_every": max(1, whole("rounds", settings.rounds, most=MOST_ROUNDS) // 20),
    }  # fmt: skip
    given = {name: getattr(settings, name) for name in (*WHOLE, *REAL)}
    filled |= {name: value for name, value in given.items() if value is not None}
    for name, most in WHOLE.items():
        if name in filled:
            filled[name] = whole(name, filled[name], most=most)
    for name, interval in REAL.items():
        filled[name] = number(name, filled.get(name), interval)
    # No batch has more rows than a client.
    filled["batch"] = min(filled["batch"], task.clients.longest)
    if settings.kept_messages is not None:
        filled["kept_messages"] = whole("kept_messages", settings.kept_messages, 0)
    return filled


def _check_names(settings: Settings) -> None:
    """Raises where a precision, a schedule or an optimiser is not one that there is."""
    for name, known in (("precision", PRECISIONS), ("lr_schedule", SCHEDULES)):
        value = getattr(settings, name)
        if not isinstance(value, str) or value not in known:
            raise UnknownName(name, value, known)
    for name, rate in (("client_optimizer", "lr"), ("server_optimizer", "server_lr")):
        optimizer = getattr(settings, name)
        optimizer_of(optimizer)
        if not isinstance(optimizer, str) and getattr(settings, rate) is not None:
            raise InputError(f"An Optax transformation has a rate of its own: leave out `{rate}`.")


def _check_choice(task: Task, policies: Iterable[Policy]) -> None:
    if task.cohort is not None:
        raise InputError(f"Task `{task.name}` draws its own cohorts: leave out `choice`.")
    for policy in policies:
        if policy.has_public:
            raise InputError(
                f"With `choice` clients download the whole model: the policy {policy} has a codec "
                f"for the way down."
            )
    if "loss" not in metric_names(task):
        raise InputError(f"`choice` needs a metric `loss`, task `{task.name}` has none.")


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

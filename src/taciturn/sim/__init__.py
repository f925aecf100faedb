"""The simulator: federated experiments on one machine."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError, UnknownName
from taciturn.progress import Tell, silence
from taciturn.settings import Settings
from taciturn.sim import engine, reference
from taciturn.sim.defaults import fill_in
from taciturn.sim.devices import prepare
from taciturn.sim.history import History
from taciturn.tasks import load
from taciturn.tasks.task import Task

__all__ = ["History", "compare", "fill_in", "prepare", "simulate"]


def simulate(
    task: Task | str,
    policy: Policy | str,
    *,
    plain: bool = False,
    progress: Tell = silence,
    **settings: Any,
) -> History:
    """Simulates one policy on a task.

    Args:
      task: a task, or the name of one that comes with the package.
      policy: a policy, or one as text, such as `adaptive+ou`.
      plain: whether to run the plain loop, which reads like the paper, instead of the compiled
        engine.
      progress: called as work goes on.
      **settings: those of `taciturn.settings.Settings`, which are also the options of
        `taciturn run`: rounds, cohort, seeds, batch, epochs, lr and so on.

    Returns:
      What happened, for every seed and round.
    """
    policy = parse(policy) if isinstance(policy, str) else policy
    arms = {str(policy): policy}
    return compare(task, arms, plain=plain, progress=progress, **settings)[str(policy)]


def compare(
    task: Task | str,
    arms: Mapping[str, Policy | str],
    *,
    plain: bool = False,
    progress: Tell = silence,
    **settings: Any,
) -> dict[str, History]:
    """Simulates several policies on a task, with the same seeds, cohorts and batches.

    Args:
      task: as for `simulate`.
      arms: a name and a policy for each.
      plain, progress, **settings: as for `simulate`.
    """
    task = load(task) if isinstance(task, str) else task
    if not arms:
        raise InputError("A comparison needs at least one policy, got none.")
    policies = {name: parse(p) if isinstance(p, str) else p for name, p in arms.items()}
    if plain:
        for name in ("devices", "lanes"):
            if settings.get(name) is not None:
                raise InputError(f"`{name}` is the engine's: the plain loop (`plain`) has none.")
    run = reference.run if plain else engine.run
    known = [field.name for field in fields(Settings)]
    for name in settings:
        if name not in known:
            raise UnknownName("setting", name, known)
    return run(task, policies, fill_in(Settings(**settings), task), progress)

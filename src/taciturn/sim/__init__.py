"""The simulator: federated experiments on one machine."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from taciturn.checks import flag
from taciturn.core.parts import Part
from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError, UnknownName
from taciturn.progress import Tell, silence
from taciturn.settings import Settings
from taciturn.sim import engine, reference
from taciturn.sim.defaults import fill_in
from taciturn.sim.devices import prepare
from taciturn.sim.history import History
from taciturn.sim.kept import save, saved
from taciturn.sim.trained import evaluate, model_of
from taciturn.tasks import load
from taciturn.tasks.task import Task

__all__ = [
    "History", "compare", "evaluate", "fill_in", "model_of", "prepare", "save", "saved", "simulate",
]  # fmt: skip


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
    policy = _policy("policy", policy)
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
    if not isinstance(arms, Mapping):
        raise InputError(f"`arms` must be a dict with a name and a policy for each, got {arms!r}.")
    if not arms:
        raise InputError("A comparison needs at least one policy: `arms` is empty.")
    policies = {str(name): _policy(f"arms[{name!r}]", p) for name, p in arms.items()}
    if not callable(progress):
        raise InputError(f"`progress` must be a function, got {progress!r}.")
    flag("plain", plain)
    run = reference.run if plain else engine.run
    known = [field.name for field in fields(Settings)]
    for name in settings:
        if name not in known:
            raise UnknownName("setting", name, known)
    return run(task, policies, fill_in(Settings(**settings), task, plain), progress)


def _policy(name: str, value: Any) -> Policy:
    if isinstance(value, str):
        return parse(value)
    if not isinstance(value, Policy):
        hint = ": a part alone is `Policy(rule)`" if isinstance(value, Part) else ""
        raise InputError(f"`{name}` must be a policy or its text, got {value!r}{hint}.")
    return value

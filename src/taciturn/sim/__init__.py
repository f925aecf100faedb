"""The simulator: federated experiments on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError
from taciturn.sim import devices, engine, reference
from taciturn.sim.history import History
from taciturn.sim.settings import settle
from taciturn.tasks import load
from taciturn.tasks.task import Task

__all__ = ["History", "compare", "settle", "simulate"]


def simulate(
    task: Task | str, policy: Policy | str, *, plain: bool = False, **settings: Any
) -> History:
    """Simulates one policy on a task.

    Args:
      task: a task, or the name of one that comes with the package.
      policy: a policy, or one as text, such as `adaptive+ou`.
      plain: whether to run the plain loop, which reads like the paper, in the place of the
        compiled engine.
      **settings: those of `taciturn.sim.settings.settle`: rounds, cohort, seeds, batch, epochs, lr,
        clip, client_optimizer, server_optimizer, server_lr, evaluate_every, precision,
        devices, progress.

    Returns:
      What happened, for every seed and round.
    """
    policy = parse(policy) if isinstance(policy, str) else policy
    return compare(task, {str(policy): policy}, plain=plain, **settings)[str(policy)]


def compare(
    task: Task | str, arms: Mapping[str, Policy | str], *, plain: bool = False, **settings: Any
) -> dict[str, History]:
    """Simulates several policies on a task, with the same seeds, cohorts and batches.

    Args:
      task: as for `simulate`.
      arms: a name and a policy for each.
      plain, **settings: as for `simulate`.
    """
    devices.prepare()
    task = load(task) if isinstance(task, str) else task
    if not arms:
        raise InputError("A comparison needs at least one policy, got none.")
    policies = {name: parse(p) if isinstance(p, str) else p for name, p in arms.items()}
    run = reference.run if plain else engine.run
    return run(task, policies, settle(task, **settings))

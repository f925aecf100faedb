"""The simulator: federated experiments on one machine."""

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from taciturn import runs
from taciturn.checks import flag, path_of
from taciturn.core import budget
from taciturn.core.parts import Part
from taciturn.core.policy import Policy, parse
from taciturn.errors import InputError, UnknownName
from taciturn.progress import Chunk, Tell, Totals, silence
from taciturn.settings import Settings
from taciturn.sim import engine, reference
from taciturn.sim.checkpoint import checkpointed
from taciturn.sim.defaults import fill_in
from taciturn.sim.devices import prepare
from taciturn.sim.history import History, gather
from taciturn.sim.identity import check_parts
from taciturn.sim.model import as_model, evaluate, flat_model
from taciturn.tasks import load, options_of
from taciturn.tasks.task import Task

__all__ = ["History", "as_model", "compare", "evaluate", "fill_in", "follow", "infeasible",
           "prepare", "simulate"]  # fmt: skip

log = logging.getLogger("taciturn")


def simulate(
    task: Task | str,
    policy: Policy | str,
    *,
    plain: bool = False,
    progress: Tell = silence,
    folder: Path | str | None = None,
    **settings: Any,
) -> History:
    """Simulates one policy on a task.

    Args:
      task: a task, or the name of one that comes with the package, with its options among the
        settings, as in `simulate("table", "budget", data=…, client=…, label=…)`.
      policy: a policy, or one as text, such as `adaptive+ou`.
      plain: whether to run the plain loop, which reads like the paper, instead of the compiled
        engine.
      progress: called as work goes on.
      folder: where the metrics of rounds and checkpoints are written as it goes on. A call that was
        stopped, or killed, goes on from there when it is made again.
      **settings: those of `taciturn.settings.Settings`, which are also the options of
        `taciturn run`: rounds, cohort, seeds, batch, epochs, lr and so on.

    Returns:
      What happened, for every seed and round.
    """
    policy = _policy("policy", policy)
    arms = {str(policy): policy}
    found = compare(task, arms, plain=plain, progress=progress, folder=folder, **settings)
    return found[str(policy)]


def compare(
    task: Task | str,
    arms: Mapping[str, Policy | str],
    *,
    plain: bool = False,
    progress: Tell = silence,
    folder: Path | str | None = None,
    **settings: Any,
) -> dict[str, History]:
    """Simulates several policies on a task, with the same seeds, cohorts and batches.

    With `choice` the candidates are the same, and each policy has cohorts of its own.

    Args:
      task: as for `simulate`.
      arms: a name and a policy for each.
      plain, progress, folder, **settings: as for `simulate`.
    """
    if not isinstance(arms, Mapping):
        raise InputError(f"`arms` must be a dict with a name and a policy for each, got {arms!r}.")
    if not arms:
        raise InputError("A comparison needs at least one arm, got none: `arms` is empty.")
    policies = {str(name): _policy(f"arms[{name!r}]", p) for name, p in arms.items()}
    if not callable(progress):
        raise InputError(f"`progress` must be a function, got {progress!r}.")
    flag("plain", plain)
    known = [field.name for field in fields(Settings)]
    if isinstance(task, str):
        own = [name for name in settings if name in options_of(task) and name not in known]
        task = load(task, **{name: settings.pop(name) for name in own})
    for name in settings:
        if name not in known:
            raise UnknownName("setting", name, known)
    filled = fill_in(Settings(**settings), task, plain, policies.values())
    if folder is None:
        return follow(task, policies, filled, progress, plain)
    with runs.claimed(path_of("folder", folder)):
        return follow(task, policies, filled, progress, plain, Path(folder))


def _policy(name: str, value: Any) -> Policy:
    if isinstance(value, str):
        return parse(value)
    if not isinstance(value, Policy):
        hint = ": a part alone is `Policy(rule)`" if isinstance(value, Part) else ""
        raise InputError(f"`{name}` must be a policy or its text, got {value!r}{hint}.")
    return value


def follow(
    task: Task, policies: Mapping[str, Policy], settings: Settings, tell: Tell, plain: bool = False,
    folder: Path | None = None,
) -> dict[str, History]:  # fmt: skip
    """The histories of a simulation that is run to its end.

    As `compare`, with settings that are filled in and a folder that the caller has claimed.
    """
    stream = reference.stream if plain else engine.stream
    check_parts(task, policies.values(), plain)
    for name, doubt in infeasible(task, policies, settings.cohort, settings.rounds).items():
        log.warning("%s: %s", name, doubt)
    totals, chunks = Totals(settings.cohort), []
    what = task, policies, settings
    records = stream(*what) if folder is None else checkpointed(stream, *what, folder)
    with closing(records):
        for record in records:
            for told in totals.add(record) if isinstance(record, Chunk) else [record]:
                tell(told)
            if isinstance(record, Chunk):
                chunks.append(record.kept)
    return gather(policies, settings, chunks)


def infeasible(
    task: Task, policies: Mapping[str, Policy], cohort: int, rounds: int
) -> dict[str, str]:
    """Which policies have a budget that cannot be kept, and why."""
    rules = {name: policy.rule for name, policy in policies.items() if policy.rule.nbytes}
    size = flat_model(task).size if rules else 0  # the model is traced for it
    found = {name: budget.doubt(rule, size, cohort, rounds) for name, rule in rules.items()}
    return {name: doubt for name, doubt in found.items() if doubt}

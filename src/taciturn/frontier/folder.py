"""The folder of a frontier: comparisons of one task, with the same settings, data and seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.core.policy import parse
from taciturn.errors import InputError, RunError
from taciturn.frontier.front import Frontier, Scores
from taciturn.frontier.policies import FULL, GRID, OWN, SMALL, SMALLER, named
from taciturn.report import series
from taciturn.settings import Plan, read_config
from taciturn.sim import fill_in, infeasible
from taciturn.sim.identity import identity, what_differs
from taciturn.sim.model import flat_model
from taciturn.studies import comparison
from taciturn.tasks.check import metric_names
from taciturn.tasks.task import Task, with_test

_Arm = tuple[str, int | None]  # a policy, and how many clients are asked for their loss


def complete(
    values: Mapping[str, Any], policies: str | None, folder: Path, say: Callable[[str], None]
) -> Frontier:
    """What all comparisons in a folder came to; policies that none of them has are run first.

    These are one comparison, and those with settings of their own another one. What was stopped is
    finished by the next call, whatever that asks for.

    Args:
      values: the fields of a plan, but for policies.
      policies: as `named` takes them; None for the built-in grid.
      folder: of the comparisons, all with the same identity.
      say: called with a line where a policy cannot be run.
    """
    arms = GRID if policies is None else {FULL: FULL} | named(policies)
    ((plan, task, _),) = comparison.prepare(values).values()
    if policies is None and flat_model(task).size < SMALL:
        arms = GRID | SMALLER
    variance, about = _variance(task), folder / "identity.json"
    with runs.claimed(folder) if about.exists() else runs.create(folder, task.name):
        _claim(about, identity(task, {}, plan))
        plans = {
            path.parent: Plan(**read_config(path)) for path in folder.glob("[0-9]*/config.toml")
        }
        there = {arm for own in plans.values() for arm in _arms(own)}
        names = {(text, _choice(name, plan)): name
                 for name, text in reversed((GRID | arms).items())}  # fmt: skip
        asked = [(text, _choice(name, plan)) for name, text in arms.items()]
        missing = {arm: names[arm] for arm in asked if arm not in there}
        free = (folder / str(n) for n in itertools.count(1) if not (folder / str(n)).exists())
        plans |= zip(free, _plans(missing, plan, task, say), strict=False)
        every = {text: parse(text) for own in plans.values() for text, _ in _arms(own)}
        _claim(about, identity(task, every, plan) | {"arms": {}})
        found = {}
        for below, own in plans.items():
            mine = replace(plan, arms=own.arms, choice=own.choice)
            ready = comparison.Ready(mine, task, comparison.policies_of(str(own.arms)))
            with comparison.saying_how("The same command goes on."):
                comparison.run_below(ready, below, comparison.Told())
            read = series.read(below)
            for text, choice in _arms(own):
                name = names.get((text, choice), text)
                found[name] = _scores(read[text], plan, variance)
    measure = "accuracy" if variance is None else "explained variance"
    return Frontier(task.name, measure, plan.cohort, found)


def _claim(about: Path, now: dict[str, Any]) -> None:
    """Raises where the runs there are of something else; what an arm does is kept from then on."""
    there = runs.read_json(about) if about.exists() else now
    there["what it does"] = now["what it does"] | there["what it does"]
    if what := what_differs(there, now):
        raise RunError(f"{about.parent} has other runs: {what}. Choose another `--out`.")
    runs.write_json(about, there)


def _choice(name: str, plan: Plan) -> int | None:
    """How many clients an arm of this name asks for their loss."""
    return OWN.get(name, {}).get("choice", plan.choice)


def _arms(plan: Plan) -> list[_Arm]:
    return [(text, plan.choice) for text in comparison.policies_of(str(plan.arms))]


def _plans(
    arms: Mapping[_Arm, str], plan: Plan, task: Task, say: Callable[[str], None]
) -> Iterator[Plan]:
    """The plans that run these arms, which have names; says which cannot be run."""
    for choice in dict.fromkeys(choice for _, choice in arms):
        own, policies = replace(plan, choice=choice), {t: parse(t) for t, c in arms if c == choice}
        left_out = infeasible(task, policies, plan.cohort, plan.rounds)
        try:
            fill_in(own, task, policies=policies.values())
        except InputError as error:
            left_out = dict.fromkeys(policies, str(error))
        for text, why in left_out.items():
            say(f"{arms[text, choice]} is left out: {why}")
        if texts := [text for text in policies if text not in left_out]:
            yield replace(own, arms="; ".join(texts))


def _variance(task: Task) -> float | None:
    """That of the test set, where numbers are predicted; None where accuracy is measured."""
    if "accuracy" in metric_names(task):
        return None
    examples = with_test(task)[1].examples
    labels = np.asarray(examples["y"] if isinstance(examples, Mapping) else [])
    if labels.ndim != 1 or labels.dtype.kind != "f" or not (found := labels.var(dtype=float)) > 0:
        raise InputError(f"Task `{task.name}` has no accuracy, and no numbers to be explained.")
    return float(found)


def _scores(read: series.Series, plan: Plan, variance: float | None) -> Scores:
    tested = [round for round in range(plan.rounds) if plan.evaluates(round)]
    share = read["accuracy"] if variance is None else 1 - read["loss"] / variance
    worst = 100 * read["worst_tenth"][:, -1]
    return Scores(
        read.seeds, 100 * share[:, tested], read.uploaded[:, tested],
        None if np.isnan(worst).any() else worst,
    )  # fmt: skip

"""The folder of a frontier: comparisons of one task, with the same settings, data and seeds."""

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs, studies
from taciturn.core.policy import parse
from taciturn.errors import InputError, RunError
from taciturn.frontier.front import Frontier, Scores
from taciturn.report import series
from taciturn.settings import Plan, read_config
from taciturn.sim.identity import identity, what_differs
from taciturn.sim.model import flat_model
from taciturn.summary import FULL, RECOMMENDED
from taciturn.tasks.check import metric_names
from taciturn.tasks.task import Task, with_test

log = logging.getLogger("taciturn")

# The recommended policy and its rivals; experiments/frontier/README.md says whose ideas they are.
GRID = {
    FULL: "full",
    RECOMMENDED: "budget",
    "budget:20kB": "budget:20kB",
    "budget:10kB": "budget:10kB",
    "silence + EDEN 0.1": "adaptive+ignore+eden:0.1",
    "silence, OU": "adaptive+ou",
    "silence, ignored": "adaptive+ignore",
    "LAG-style reuse": "adaptive+own",
    "EDEN 2 bits": "full+eden:2",
    "EDEN 1 bit": "full+eden:1",
    "EDEN 0.5 bits": "full+eden:0.5",
    "EDEN 0.1 bits": "full+eden:0.1",
    "QSGD 4 bits": "full+quantize:4",
    "QSGD 2 bits": "full+quantize:2",
    "sparse ternary 1 %": "full+sparse_ternary:0.01",
    "sparse ternary 1 %, feedback": "full+sparse_ternary:0.01,feedback=true",
    "optimal sampling 30 %": "optimal:0.3+zero",
    "optimal sampling 30 %, OU": "optimal:0.3+ou",
    "optimal sampling 30 %, last": "optimal:0.3+last",
    "FedPAQ": "random:0.5+ignore+quantize:4",
    "power of choice": "full",
}
# Of a model with so few weights the default may upload more than a tenth: smaller amounts as well.
SMALL, SMALLER = 10_000, {"budget:10%": "budget:10%", "budget:3%": "budget:3%"}
# Settings that an arm has beside the others'; it then runs by itself.
OWN: Mapping[str, Mapping[str, Any]] = {"power of choice": {"choice": 30}}


def complete(values: Mapping[str, Any], policies: str | None, folder: Path) -> Frontier:
    """What all comparisons in a folder came to, after policies that none of them has were run.

    A comparison that was stopped is finished by the next call, whatever that asks for. `policies`
    are texts or names of `GRID`, None for all of it, and `values` the other fields of a plan.
    """
    ((plan, task, _),) = studies.prepare(values).values()
    smaller = SMALLER if flat_model(task).size < SMALL else {}
    asked = GRID | smaller if policies is None else _asked(policies)
    arms = {name: (text, OWN.get(name, {}).get("choice", plan.choice))
            for name, text in (GRID | asked).items()}  # fmt: skip
    names = {arm: name for name, arm in reversed(arms.items())}  # the first that an arm has
    variance, about = _variance(task), folder / "identity.json"
    with runs.claimed(folder) if about.exists() else runs.create(folder, task.name):
        below: dict[Path, studies.Ready] = {}
        for path in folder.glob("[0-9]*/config.toml"):
            own = Plan(**read_config(path))
            mine = replace(plan, arms=own.arms, choice=own.choice)
            below[path.parent] = studies.Ready(mine, task, studies.policies_of(str(own.arms)))
        there = {(text, ready.plan.choice) for ready in below.values() for text in ready.policies}
        missing = {arms[name]: name for name in asked if arms[name] not in there}
        free = (folder / str(n) for n in itertools.count(1) if not (folder / str(n)).exists())
        below |= zip(free, _comparisons(missing, plan, task), strict=False)
        every = {t: policy for ready in below.values() for t, policy in ready.policies.items()}
        now = identity(task, every, plan) | {"arms": {}}
        known = runs.read_json(about) if about.exists() else now
        known["what it does"] = now["what it does"] | known["what it does"]  # kept from then on
        if what := what_differs(known, now):
            raise RunError(f"{folder} has other runs: {what}. Choose another `--out`.")
        runs.write_json(about, known)
        found = {}
        for path, ready in below.items():
            with studies.saying_how("The same command goes on."):
                studies.run_below(ready, path, studies.Told())
            for text, read in series.read(path).items():
                name = names.get((text, ready.plan.choice), text)
                found[name] = _scores(read, plan, variance)
    measure = "accuracy" if variance is None else "explained variance"
    return Frontier(task.name, measure, plan.cohort, found)


def _asked(policies: str) -> dict[str, str]:
    """Full communication and the policies that were asked for, those of the grid by their names."""
    parts = [part.strip() for part in policies.split(";")]
    texts = "; ".join(part for part in parts if part not in GRID)
    found = {FULL: FULL} | {name: GRID[name] for name in parts if name in GRID}
    return found | {text: text for text in (studies.policies_of(texts) if texts else ())}


def _comparisons(arms: Mapping[Any, str], plan: Plan, task: Task) -> Iterator[studies.Ready]:
    """A comparison for each `choice` of arms, (policy, choice) -> name; says which cannot run."""
    for choice in dict.fromkeys(choice for _, choice in arms):
        own, policies = replace(plan, choice=choice), {t: parse(t) for t, c in arms if c == choice}
        for text, why in studies.left_out(own, task, policies).items():
            log.warning("%s is left out: %s", arms[text, choice], why)
            del policies[text]
        if policies:
            yield studies.Ready(replace(own, arms="; ".join(policies)), task, policies)


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
    measured = None if np.isnan(worst).any() else worst
    return Scores(read.seeds, 100 * share[:, tested], read.uploaded[:, tested], measured)

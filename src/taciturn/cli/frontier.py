"""`taciturn frontier`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from taciturn.checks import path_of, whole
from taciturn.cli.command import Command, command, tell
from taciturn.errors import InputError, UnknownName, require
from taciturn.settings import Plan

_Options = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE …", help_behavior_hint="")]


@command
class Frontier(Command):
    """Draw accuracy against uploaded bytes: a grid of policies and seeds, side by side.

    TASK is `emnist`, `shakespeare`, `emnist-long`, `shakespeare-long` or `parkinsons`, with the
    settings of docs/frontier.md, or any task of `taciturn list`. Says which policies are on the
    Pareto front, and how many bytes each needed to reach 90, 95 and 99 % of the accuracy of full
    communication; leaves a table, a picture and the runs as JSON. Finished pieces are kept in the
    folder: a stopped command goes on where it was. `list` says what there is.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """What to learn; or `list`."""
    policies: str | None = None
    """Policies instead of the built-in grid, such as "adaptive+ou; full+eden:1", or names of
    `taciturn frontier list`, such as "power of choice"; `full` is always run beside them."""
    again: str | None = None
    """Policies whose runs in the folder are replaced, such as "budget; power of choice": for
    when what they do has changed. If the command is stopped, it goes on without this option."""
    seeds: int | None = None
    """How many seeds, from 0 (default: the experiment's, or 5)."""
    rounds: int | None = None
    """How many rounds (default: the experiment's, or 100)."""
    cohort: int | None = None
    """How many clients are asked in a round (default: the experiment's, or 10)."""
    epochs: int | None = None
    """Passes over a client's data in a round (default: the experiment's, or the task's)."""
    batch: int | None = None
    """Examples in a local batch (default: the experiment's, or the task's)."""
    lr: float | None = None
    """The clients' learning rate (default: the experiment's, or the task's)."""
    clip: float | None = None
    """Largest norm of a batch's gradient (default: the experiment's, or the task's)."""
    evaluate_every: int | None = None
    """Rounds between tests (default: the experiment's, or twenty tests in a run)."""
    option: _Options = ()
    """Options of the task: `--option client=subject# label=motor_UPDRS`."""
    precision: str | None = None
    """Of matrix products (default: bfloat16 on a GPU, float32 elsewhere)."""
    side_by_side: int | None = None
    """The most runs, a policy with a seed each, that are a piece: fewer end sooner (default: the
    experiment's, for pieces of minutes on a GPU; on a CPU all policies with one seed)."""
    data: Path | None = None
    """Where the data lie (default: TACITURN_DATA, the cache folder, or a download)."""
    out: Path = Path("frontier-results")
    """Folder of the results; what it has is not run again."""

    def go(self) -> None:
        for module in ("jax", "optax", "rich", "matplotlib", "scipy"):
            require(module, "sim")
        from taciturn.frontier import make
        from taciturn.frontier.experiments import experiment_of
        from taciturn.sim import prepare
        from taciturn.sim.defaults import PRECISIONS
        from taciturn.studies.pieces import Options

        if path_of("out", self.out).is_file():
            raise InputError(f"`--out` must be a folder, {self.out} is a file.")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        if self.task == "list":
            lines = make.listing(self.out)
        else:
            names = ("rounds", "cohort", "epochs", "batch", "lr", "clip", "evaluate_every")
            given = {name: getattr(self, name) for name in names}
            settings = {name: value for name, value in given.items() if value is not None}
            for name, value in settings.items():
                if isinstance(value, int):
                    whole(name, value)
            asked = Plan(option=self.option).task_options
            options = {key: value for key, value in asked.items() if value is not None}
            arms = None if self.policies is None else {"full": "full"} | _named(self.policies)
            again = () if self.again is None else tuple(_named(self.again))
            experiment = experiment_of(self.task, arms, settings, options)
            seeds = whole("seeds", experiment.seeds if self.seeds is None else self.seeds)
            if self.side_by_side is not None:
                whole("side_by_side", self.side_by_side)
            prepare()
            chosen = Options(
                self.out, seeds, None, self.precision, self.data, self.side_by_side, again
            )
            table, files = make.frontier(experiment, chosen, tell)
            lines = [table.title, "", table.text(), *map(str, files)]
        sys.stdout.write("\n".join(lines) + "\n")


def _named(asked: str) -> dict[str, str]:
    """Policies, written as text or as names of the grid, by the names that they have there."""
    from taciturn.frontier.policies import GRID, entry_of
    from taciturn.studies.comparison import policies_of

    parts = [part.strip() for part in asked.split(";")]
    texts = [part for part in parts if part not in GRID]
    found = {name: GRID[name] for name in parts if name in GRID}
    for text in policies_of("; ".join(texts)) if texts else ():
        entry = entry_of(text)
        found[entry.name if entry else text] = text
    return found

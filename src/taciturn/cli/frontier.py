"""`taciturn frontier`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from taciturn.checks import path_of, whole
from taciturn.cli.command import Command, tell
from taciturn.errors import InputError, UnknownName, require
from taciturn.settings import Plan

_Options = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE …", help_behavior_hint="")]
_SETTINGS = ("rounds", "cohort", "evaluate_every", "epochs", "batch", "lr", "clip")
_WHOLE = ("rounds", "cohort", "evaluate_every", "epochs", "batch", "seeds", "side_by_side")


@dataclass(frozen=True, kw_only=True)
class Frontier(Command):
    """Draw accuracy against uploaded bytes: a grid of policies and seeds, side by side.

    TASK is any task of `taciturn list`. Says which policies are on the Pareto front, and how many
    bytes each needed to reach 90, 95 and 99 % of the accuracy of full communication; leaves a
    table, a picture and the runs as JSON. Finished pieces are kept in the folder: a stopped command
    goes on where it was. `list` says which policies there are.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """What to learn; or `list`."""
    policies: str | None = None
    """Policies instead of the built-in grid, such as "adaptive+ou; full+eden:1", or names of
    `taciturn frontier list`, such as "power of choice"; `full` is always run beside them."""
    again: str | None = None
    """Policies whose runs in the folder are replaced, such as "budget; power of choice": for
    when what they do has changed. If the command is stopped, it goes on without this option."""
    seeds: int = 5
    """How many seeds, from 0."""
    rounds: int = 100
    """How many rounds."""
    cohort: int = 10
    """How many clients are asked in a round."""
    epochs: int | None = None
    """Passes over a client's data in a round (default: the task's)."""
    batch: int | None = None
    """Examples in a local batch (default: the task's)."""
    lr: float | None = None
    """The clients' learning rate (default: the task's)."""
    clip: float | None = None
    """Largest norm of a batch's gradient (default: the task's)."""
    evaluate_every: int | None = None
    """Rounds between tests (default: twenty tests in a run)."""
    option: _Options = ()
    """Options of the task: `--option client=subject# label=motor_UPDRS`."""
    precision: str | None = None
    """Of matrix products (default: bfloat16 on a GPU, float32 elsewhere)."""
    side_by_side: int | None = None
    """The most runs, a policy with a seed each, that are a piece: fewer end sooner (default: all on
    a GPU; on a CPU all policies with one seed)."""
    data: Path | None = None
    """Where the data lie (default: TACITURN_DATA, the cache folder, or a download)."""
    out: Path = Path("frontier-results")
    """Folder of the results; what it has is not run again."""

    def go(self) -> None:
        for module in ("jax", "optax", "rich", "matplotlib", "scipy"):
            require(module, "sim")
        from taciturn.frontier import front, picture
        from taciturn.frontier.policies import FULL, GRID, OWN, named
        from taciturn.sim import prepare
        from taciturn.studies import figure, pieces
        from taciturn.studies.experiment import Experiment

        if self.task == "list":
            sys.stdout.write("".join(f"{name:<30} {text}\n" for name, text in GRID.items()))
            return
        self._check()
        arms = GRID if self.policies is None else {FULL: FULL} | named(self.policies)
        again = () if self.again is None else tuple(named(self.again))
        own = {name: OWN[name] for name in arms if name in OWN}
        every = max(1, self.rounds // 20) if self.evaluate_every is None else self.evaluate_every
        given = asdict(self) | {"evaluate_every": every}
        settings = {name: given[name] for name in _SETTINGS if given[name] is not None}
        options = {k: v for k, v in Plan(option=self.option).task_options.items() if v is not None}
        experiment = Experiment(
            self.task, self.task, self.task, options, settings, arms, self.seeds, own=own
        )
        prepare()
        chosen = pieces.Options(self.out, self.precision, self.data, self.side_by_side, again)
        result = pieces.run(experiment, chosen, tell)
        table = front.table(result)
        made = table.write(self.out, f"table-{self.task}")
        made += figure.write(picture.draw(result), self.out, f"figure-{self.task}")
        sys.stdout.write("\n".join([table.title, "", table.text(), *map(str, made)]) + "\n")

    def _check(self) -> None:
        """Raises if an option cannot be used, before a folder is made."""
        from taciturn.sim.defaults import PRECISIONS
        from taciturn.tasks import TASKS

        if path_of("out", self.out).is_file():
            raise InputError(f"`--out` must be a folder, {self.out} is a file.")
        if self.task not in TASKS:
            raise UnknownName("task", self.task, TASKS)
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        for name in _WHOLE:
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

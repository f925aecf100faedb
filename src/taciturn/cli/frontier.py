"""`taciturn frontier`."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from taciturn.cli.command import Command
from taciturn.cli.run import Simulation
from taciturn.core.policy import import_files
from taciturn.errors import require
from taciturn.settings import Plan, Settings, TaskOptions


@dataclass(frozen=True, kw_only=True)
class Frontier(TaskOptions, Settings, Command):
    """Draw accuracy against uploaded bytes: a grid of policies and seeds, side by side.

    TASK is any task of `taciturn list`. Says which policies are on the Pareto front, and how many
    bytes each needed to reach 90, 95 and 99 % of the accuracy of full communication; leaves a
    table, a picture and the runs. What the folder has is not run again: a stopped command goes on,
    and other policies are added to the table. `list` says which policies there are; `--help-all`
    has all options.
    """

    rare = Simulation.rare

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = TaskOptions.task
    """What to learn; or `list`."""
    policies: str | None = None
    """Policies instead of the built-in grid, such as "adaptive+ou; full+eden:1", or names of
    `taciturn frontier list`, such as "power of choice"; `full` is always run beside them."""
    seeds: int | tuple[int, ...] = 5
    precision: str | None = None  # type: ignore[assignment]
    """Of matrix products (default: bfloat16 on a GPU, float32 elsewhere)."""
    trails: bool = False
    """Draw also how policies got where they end."""
    out: Path | None = None
    """Folder of the results (default: frontier-results/TASK)."""

    def go(self) -> None:
        for module in ("jax", "optax", "rich", "matplotlib", "scipy"):
            require(module, "sim")
        import jax

        from taciturn.frontier import folder, front, picture
        from taciturn.report import plots
        from taciturn.sim import prepare

        if self.task == "list":
            sys.stdout.write("".join(f"{name:<30} {text}\n" for name, text in folder.GRID.items()))
            return
        import_files(self.imports)
        values = {f.name: getattr(self, f.name) for f in fields(Plan) if hasattr(self, f.name)}
        if self.seed is not None and self.seeds == Frontier.seeds:  # one takes the other's place
            values["seeds"] = Plan.seeds
        prepare()
        if self.precision is None:
            values["precision"] = "bfloat16" if jax.default_backend() == "gpu" else "float32"
        out = self.out or Path("frontier-results", self.task)
        found = folder.complete(values, self.policies, out)
        table = front.table(found)
        made = [table.write(out / "table.csv")]
        made += plots.write(picture.draw(found, self.trails), out, "figure")
        sys.stdout.write("\n".join([table.title, "", table.text(), *map(str, made)]) + "\n")

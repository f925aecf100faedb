"""`python -m experiments.paper`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from taciturn.checks import path_of
from taciturn.cli.command import Command, File, command, tell
from taciturn.errors import InputError, UnknownName, require


@command
class Paper(Command):
    """Rebuild the paper's tables and figures, over seeds, and say which of its claims hold.

    `list` says what there is; `table NAME` and `figure NAME` make one, `all` makes all and a page
    with a verdict on each claim. `run NAME,NAME` runs experiments and draws nothing; `page` makes
    tables, figures and the page of what the folder has, and runs nothing. Finished runs are kept in
    the folder: a stopped command goes on where it was, and fewer seeds remove nothing. The main
    table takes minutes on a GPU; `table main --quick` does on a CPU.
    """

    action: tyro.conf.Positional[Literal["list", "run", "table", "figure", "page", "all"]]
    """What to do."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Of the table, the figure or the experiments; figures also have the paper's numbers, 2 to 7,
    and 8 is accuracy against bytes."""
    seeds: int | None = None
    """How many seeds of every arm, from 0 (default: the experiments' own, and 1 with `--quick`)."""
    rounds: int | None = None
    """How many rounds (default: the paper's)."""
    precision: str | None = None
    """Of matrix products (default: bfloat16 on a GPU, float32 elsewhere)."""
    quick: bool = False
    """Run `glyphs` and `synthetic` instead of EMNIST and Shakespeare."""
    data: Path | None = None
    """Where the data lie (default: TACITURN_DATA, the cache folder, or a download)."""
    out: Path = Path("paper-results")
    """Folder of the results; what it has is not run again."""
    page: File = None
    """The page of `all` and `page` (default: results.md in the folder)."""

    def go(self) -> None:
        for module in ("jax", "optax", "rich", "matplotlib", "scipy"):
            require(module, "sim")
        from experiments.paper import make, page
        from taciturn.sim import prepare
        from taciturn.sim.defaults import PRECISIONS
        from taciturn.studies.pieces import Options

        if self.action in ("run", "table", "figure") and self.name is None:
            raise InputError(
                f"`taciturn paper {self.action}` needs a name; see `taciturn paper list`."
            )
        if any(number is not None and number < 1 for number in (self.seeds, self.rounds)):
            raise InputError("`--seeds` and `--rounds` must be at least 1.")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        if self.action in ("all", "run", "page") and self.quick:
            raise InputError(f"`{self.action}` has no quick form; `table main --quick` has.")
        if self.page is not None and path_of("page", self.page).is_dir():
            raise InputError(f"`--page` must be a file, {self.page} is a folder.")
        if path_of("out", self.out).is_file():
            raise InputError(f"`--out` must be a folder, {self.out} is a file.")
        prepare()
        name, seeds = self.name or "", self.seeds or (1 if self.quick else None)
        options = Options(self.out, seeds, self.rounds, self.precision, self.data)
        if self.action == "list":
            lines = make.listing(self.out)
        elif self.action == "run":
            lines = make.run(name, options, tell)
        elif self.action == "page":
            lines = [*map(str, page.write(self.out, self.page, seeds))]
        elif self.action == "table":
            made, files = make.table(name, options, tell, self.quick)
            lines = [made.title, "", made.text(), *map(str, files)]
        elif self.action == "figure":
            lines = [*map(str, make.figure(name, options, tell, self.quick))]
        else:
            lines = [*map(str, make.everything(options, tell, self.page))]
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    tyro.cli(Paper, prog="python -m experiments.paper").go()

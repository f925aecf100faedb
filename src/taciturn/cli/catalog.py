"""`taciturn list` and `data`: what there is to run."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from taciturn.checks import path_of
from taciturn.cli.command import Command, File
from taciturn.core.policy import CODECS, RULES, STAND_INS
from taciturn.errors import InputError, require


@dataclass(frozen=True, kw_only=True)
class List(Command):
    """List the tasks, rules, stand-ins and codecs that there are."""

    def go(self) -> None:
        from taciturn.tasks import TASKS

        kinds: dict[str, Mapping[str, Callable[..., object]]] = {
            "tasks": TASKS, "rules": RULES, "stand-ins": STAND_INS, "codecs": CODECS,
        }  # fmt: skip
        for kind, names in kinds.items():
            sys.stdout.write(f"{kind}\n")
            for name, factory in names.items():
                summary = (factory.__doc__ or "").split("\n")[0].rstrip(":")
                sys.stdout.write(f"  {name:<18}{summary}\n")


@dataclass(frozen=True, kw_only=True)
class Data(Command):
    """See what data there are, bring them, check them, look at them.

    `list` says what is there and what is missing; `fetch NAME` downloads it into the cache folder;
    `check NAME` compares checksums and counts with the published ones; `show NAME` draws a PNG.
    """

    action: tyro.conf.Positional[Literal["list", "fetch", "check", "show"]]
    """What to do."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Of the data set, or for `show` of any task."""
    data: Path | None = None
    """Where to look (default: TACITURN_DATA and the cache folder)."""
    client: str | None = None
    """For `show table`: the column that says whose a row is."""
    label: str | None = None
    """For `show table`: the column that is to be learned."""
    out: File = None
    """The picture of `show` (default: NAME.png)."""

    def go(self) -> None:
        require("jax", "sim")
        from taciturn.data import inventory, sources
        from taciturn.report import task_plots
        from taciturn.tasks import load

        if self.action != "list" and self.name is None:
            raise InputError(
                f"`taciturn data {self.action}` needs a name; see `taciturn data list`."
            )
        name = self.name or ""
        if self.action == "list":
            lines = inventory.listing(self.data)
        elif self.action == "fetch":
            lines = [str(path) for path in sources.find_or_fetch(name, self.data)]
        elif self.action == "check":
            lines = inventory.check(name, self.data)
        else:
            picture = path_of("out", self.out or Path(f"{name}.png"))
            task = load(name, data=self.data, client=self.client, label=self.label)
            lines = [*([f"columns: {task.encode}"] if task.encode else []),
                     str(task_plots.show(task, picture))]  # fmt: skip
        sys.stdout.write("\n".join(lines) + "\n")

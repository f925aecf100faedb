"""`taciturn list`, `data`, `runs`, `report` and `watch`: what there is to run, and what has run."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from taciturn import runs
from taciturn.checks import path_of
from taciturn.cli.command import Command, File
from taciturn.core.policy import CODECS, RULES, STAND_INS
from taciturn.errors import InputError, require

_Folders = Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN …")]
_Accuracies = Annotated[tuple[float, ...], tyro.conf.arg(metavar="PERCENT …")]


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


@dataclass(frozen=True, kw_only=True)
class Runs(Command):
    """List the runs that are on disk: complete, stopped or running, how each arm did, and the
    settings in which they differ."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Where to look."""

    def go(self) -> None:
        require("rich", "report")
        from taciturn.report import listing

        listing.show(self.folder)


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Look at runs again: a table here, and a page with curves, tables and settings.

    For folders of simulations and of Flower federations, also while they run; several at a time to
    compare them. The page is one HTML file that needs no network.
    """

    folders: _Folders
    """Run folders."""
    out: Annotated[File, tyro.conf.arg(aliases=["-o"])] = None
    """The page, or with the ending .png a picture of the main curves (default: report.html in the
    folder; of several, in the current one)."""
    accuracies: _Accuracies = ()
    """Accuracies, of 100, until which uploads are counted (default: 90, 95 and 99 % of what full
    communication reached, or the best where it did not run)."""

    def go(self) -> None:
        given = _checked(self.folders)
        beside = given[0] / "report.html" if len(given) == 1 else Path("report.html")
        out = path_of("out", self.out or beside)
        if out.suffix not in (".html", ".htm", ".png"):
            raise InputError(f"`--out` must end in .html or .png, got {out}.")
        require("rich", "report")
        from taciturn.report import figures, page, series, terminal

        folders = series.expand(given)
        arms = series.read_all(folders)
        if out.suffix == ".png":
            figures.draw(arms, out, ", ".join(series.labels(folders)))
        else:
            shown = page.content(folders, arms, self.accuracies)
            runs.write_text(out, page.render(shown))
        summaries = {name: one.summary() for name, one in arms.items()}
        terminal.print_table(summaries, one_run=len(folders) == 1)
        sys.stdout.write(f"{out}\n")


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Look at runs while they go on: the page of `taciturn report`, live.

    A server on this machine shows the page until Ctrl-C. It reads the folders of simulations and of
    Flower federations and writes nothing. The folder may still be without rounds.
    """

    folders: _Folders
    """Run folders."""
    host: str = "127.0.0.1"
    """Where to listen; 0.0.0.0 shows the page to whoever can reach this machine."""
    port: int | None = None
    """At which port (default: one that is free)."""
    accuracies: _Accuracies = ()
    """As for `taciturn report`."""

    def go(self) -> None:
        from taciturn.report import watch

        if self.port is not None and not 0 <= self.port < 2**16:
            raise InputError(f"`port` must be in [0, 65535], got {self.port}.")
        source = watch.Source(_checked(self.folders), self.accuracies)
        with watch.serve(source, self.host, self.port or 0) as server:
            host, port = server.server_address[:2]
            sys.stdout.write(f"http://{host!s}:{port} shows it; Ctrl-C ends it.\n")
            sys.stdout.flush()
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                sys.stdout.write("\n")


def _checked(folders: tuple[Path, ...]) -> list[Path]:
    if not folders:
        raise InputError("A run folder is needed, such as one in runs/.")
    return [path_of("folders", folder) for folder in folders]

"""The command line: `taciturn run`.

Each subcommand is a dataclass: its fields are the options, its docstring is the help, and calling
`go` does the work.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, dataclass_transform

import tyro

from taciturn.core.policy import CODECS, RULES, STAND_INS, Policy, parse, parse_part
from taciturn.errors import InputError, UnknownName, require
from taciturn.settings import Settings
from taciturn.track import library

if TYPE_CHECKING:
    from taciturn.sim.history import History

_ABOUT = """Federated learning in which a client speaks only when it has something to say.

`taciturn COMMAND --help` has the options of each, `taciturn --version` the version."""
RECOMMENDED = "adaptive+ignore+eden:0.5"  # full accuracy at little more than 1 % of the upload
_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "DIR"}
_File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
_Folders = Annotated[
    tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN …", help_behavior_hint="")
]
_Accuracies = Annotated[
    tuple[float, ...], tyro.conf.arg(metavar="PERCENT …", help_behavior_hint="")
]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(cls: type[Any]) -> Any:
    """A dataclass whose fields are options: None is no default to show, a flag has no opposite."""
    made = dataclass(frozen=True, kw_only=True)(cls)
    for name, hint in typing.get_type_hints(made, include_extras=True).items():
        default = made.__dataclass_fields__[name].default
        kind, *others = [kind for kind in typing.get_args(hint) if kind is not NoneType] or [hint]
        if hint is bool and default is False:
            hint = tyro.conf.FlagCreatePairsOff[bool]
        elif default is None and kind in _METAVARS:
            shown = tyro.conf.arg(metavar=_METAVARS[kind], help_behavior_hint="")
            hint = Annotated[kind | None, shown]
        elif others and typing.get_origin(others[0]) is tuple:
            hint = Annotated[hint, tyro.conf.arg(metavar=f"{_METAVARS[kind]} …")]
        made.__annotations__[name] = hint
    return made


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every subcommand has."""

    debug: bool = False
    """Show the traceback of an error."""

    def go(self) -> None:
        """Does the work."""
        raise NotImplementedError


@command
class Run(Settings, Command):
    """Train federatedly with clients that stay silent, beside a run in which all speak.

    A policy is a rule, a stand-in and a codec, with arguments: `--policy adaptive+ignore+eden:0.5`,
    `--policy adaptive,k=0+ou,cap=true`. Without one, the paper's policy and the recommended one are
    run beside full communication.
    Rules: full, fixed:THRESHOLD, adaptive, random:PROBABILITY. Stand-ins: ou, zero, ignore, last.
    Codecs: float32, float16, bfloat16, quantize:BITS, eden:BITS, top_k:SHARE, sparse_ternary:SHARE.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")] = "glyphs"
    """What to learn: glyphs, emnist, shakespeare, fashion, … (see `taciturn list`)."""
    data: Path | None = None
    """Where the task's data lie (default: TACITURN_DATA, the cache folder, or a download)."""
    split: str | None = None
    """How `fashion` and `idx` are split over clients: iid or dirichlet (default: iid)."""
    alpha: float | None = None
    """Of the Dirichlet split; small means that clients have few labels (default: 0.3)."""
    rule: str | None = None
    """Who speaks (default: adaptive)."""
    stand_in: str | None = None
    """What takes the place of a silent client's update (default: ou)."""
    policy: str | None = None
    """Rule, stand-in and codec as one text, instead of the two above."""
    plain: bool = False
    """Run the plain loop that reads like the paper, slowly, instead of the engine."""
    baseline: bool = True
    """Whether to run full communication beside it, with the same seeds."""
    out: Path | None = None
    """Folder for the results (default: runs/ and a name with task and time)."""
    json: bool = False
    """Print the summary as one JSON object, and nothing else, on stdout."""
    quiet: bool = False
    """Show no progress, and at the end the folder of the results alone."""
    track: Annotated[
        Literal["tensorboard", "wandb", "mlflow", "trackio"] | None,
        tyro.conf.arg(help_behavior_hint=""),
    ] = None
    """Pass the figures of every round on to a tracker."""

    def arms(self) -> dict[str, Policy]:
        """The policy that was asked for, and what it is compared with."""
        if self.policy is not None:
            if self.rule is not None or self.stand_in is not None:
                raise InputError("`--policy` takes the place of `--rule` and `--stand-in`.")
            policy = parse(self.policy)
        else:
            rule = parse_part("rule", self.rule or "adaptive")
            policy = Policy(rule, parse_part("stand-in", self.stand_in or "ou"))
        texts = ["full"] if self.baseline else []
        if self.baseline and self.policy is self.rule is self.stand_in is None:
            texts.append(RECOMMENDED)
        return {str(policy): policy} | {text: parse(text) for text in texts}

    def go(self) -> None:
        arms = self.arms()
        for module in ("jax", "optax", "rich"):
            require(module, "sim")
        if self.track is not None:
            library(self.track)  # what is missing leaves no folder behind
        from taciturn import runs, sim
        from taciturn.report import picture, series, terminal
        from taciturn.report.following import following
        from taciturn.report.versions import versions
        from taciturn.tasks import load

        sim.prepare()
        task = load(self.task, data=self.data, split=self.split, alpha=self.alpha)
        filled = sim.fill_in(self, task)  # wrong settings leave no folder behind
        folder = runs.create(self.out, task.name)
        paths = {"out": self.out and str(self.out), "data": self.data and str(self.data)}
        runs.write_toml(folder / "config.toml", asdict(filled) | paths)
        settings = {field.name: getattr(filled, field.name) for field in fields(Settings)}
        with following(
            list(arms), filled, folder, quiet=self.quiet, track=self.track, plain=self.plain
        ) as tell:
            histories = sim.compare(task, arms, progress=tell, plain=self.plain, **settings)
        first = next(iter(histories))
        summary = {"task": task.name} | histories[first].summary() | {"run": str(folder)}
        for key, name in (("baseline", "full"), ("recommended", RECOMMENDED)):
            if name in histories and first != name:
                summary[key] = histories[name].summary()
        summary["versions"] = versions()
        rows = [{"arm": name} | row for name, h in histories.items() for row in h.rows()]
        runs.write_csv(folder / "metrics.csv", rows)
        runs.write_arrays(folder / "weights.safetensors", _named_weights(task, histories[first]))
        runs.write_json(folder / "summary.json", summary)
        picture.draw(series.read(folder), folder / "report.png", task.name)
        if self.json:
            sys.stdout.write(runs.to_json(summary, indent=None) + "\n")
        elif self.quiet:
            sys.stdout.write(f"{folder}\n")
        else:
            # What all is compared with stands at the top.
            shown = sorted(histories, key=lambda name: name != "full")
            terminal.print_table({name: histories[name] for name in shown}, folder)


def _named_weights(task: Any, history: History) -> dict[str, Any]:
    """The final weights of every seed as the arrays of the model, by their names in it."""
    import jax
    import numpy as np

    from taciturn.sim.local import flat_model

    model = flat_model(task)
    return {
        f"seed{seed}{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for seed, weights in zip(history.seeds, history.weights, strict=True)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.unravel(weights))
    }


@command
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
                summary = (factory.__doc__ or "").split("\n")[0]
                sys.stdout.write(f"  {name:<18}{summary}\n")


@command
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
    out: Path | None = None
    """The picture of `show` (default: NAME.png)."""

    def go(self) -> None:
        require("jax", "sim")
        from taciturn.data import inventory, places
        from taciturn.report import show
        from taciturn.tasks import load

        if self.action != "list" and self.name is None:
            raise InputError(
                f"`taciturn data {self.action}` needs a name; see `taciturn data list`."
            )
        name = self.name or ""
        if self.action == "list":
            lines = inventory.listing(self.data)
        elif self.action == "fetch":
            lines = [str(path) for path in places.find_or_fetch(name, self.data)]
        elif self.action == "check":
            lines = inventory.check(name, self.data)
        else:
            picture = self.out or Path(f"{name}.png")
            lines = [str(show.show(load(name, data=self.data), picture))]
        sys.stdout.write("\n".join(lines) + "\n")


@command
class Report(Command):
    """Look at runs again: a table here, and a page with curves, tables and settings.

    For folders that `taciturn run` has left and of Flower federations, these also while they run;
    several at a time to compare them. The page is one HTML file that needs no network.
    """

    folders: _Folders
    """Run folders."""
    out: Annotated[_File, tyro.conf.arg(aliases=["-o"])] = None
    """The page, or with the ending .png a picture of the main curves (default: report.html in the
    folder; of several, in the current one)."""
    accuracies: _Accuracies = ()
    """Accuracies, of 100, until which uploads are counted (default: 90, 95 and 99 % of what full
    communication reached, or the best where it did not run)."""

    def go(self) -> None:
        out = self.out or _beside(self.folders, "report.html")
        if out.suffix not in (".html", ".htm", ".png"):
            raise InputError(f"`--out` must end in .html or .png, got {out}.")
        for module in ("rich", *(["matplotlib"] if out.suffix == ".png" else [])):
            require(module, "report")
        from taciturn.report import page, picture, series, terminal

        arms = series.read_all(self.folders)
        terminal.print_series({name: one.summary() for name, one in arms.items()})
        if out.suffix == ".png":
            picture.draw(arms, out, ", ".join(series.labels(self.folders)))
        else:
            page.write(self.folders, arms, out, self.accuracies)
        sys.stdout.write(f"{out}\n")


@command
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

        if not self.folders:
            raise InputError("A run folder is needed, such as one in runs/.")
        source = watch.Source(self.folders, self.accuracies)
        with watch.serve(source, self.host, self.port or 0) as server:
            host, port = server.server_address[:2]
            sys.stdout.write(f"http://{host!s}:{port} shows it; Ctrl-C ends it.\n")
            sys.stdout.flush()
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                sys.stdout.write("\n")


def _beside(folders: tuple[Path, ...], name: str) -> Path:
    """A file in the folder; of several, in the current one."""
    if not folders:
        raise InputError("A run folder is needed, such as one in runs/.")
    return folders[0] / name if len(folders) == 1 else Path(name)


@command
class Paper(Command):
    """Rebuild the paper's tables and figures, over seeds, and say which of its claims hold.

    `list` says what there is; `table NAME` and `figure NAME` make one, `all` makes all and a page
    with a verdict on each claim. Finished runs are kept in the folder: a stopped command goes on
    where it was. The main table takes minutes on a GPU; `table main --quick` does on a CPU.
    """

    action: tyro.conf.Positional[Literal["list", "table", "figure", "all"]]
    """What to do."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Of the table or figure; figures also have the paper's numbers, 1 to 6."""
    seeds: int | None = None
    """How many seeds, from 0 (default: 5, and 1 with `--quick`)."""
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
    page: _File = None
    """The page of `all` (default: results.md in the folder)."""

    def go(self) -> None:
        for module in ("jax", "optax", "rich", "matplotlib", "scipy"):
            require(module, "sim")
        from taciturn.paper import make
        from taciturn.paper.experiments import SEEDS
        from taciturn.sim import prepare
        from taciturn.sim.defaults import PRECISIONS
        from taciturn.studies.pieces import Options

        if self.action in ("table", "figure") and self.name is None:
            raise InputError(
                f"`taciturn paper {self.action}` needs a name; see `taciturn paper list`."
            )
        if any(number is not None and number < 1 for number in (self.seeds, self.rounds)):
            raise InputError("`--seeds` and `--rounds` must be at least 1.")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        if self.action == "all" and self.quick:
            raise InputError("`all` has no quick form; `table main --quick` has.")
        if self.page is not None and self.page.is_dir():
            raise InputError(f"`--page` must be a file, {self.page} is a folder.")
        prepare()
        name, seeds = self.name or "", self.seeds or (1 if self.quick else SEEDS)
        options = Options(self.out, seeds, self.rounds, self.precision, self.data)
        if self.action == "list":
            lines = make.listing(self.out)
        elif self.action == "table":
            made, files = make.table(name, options, _tell, self.quick)
            lines = [made.title, "", made.markdown(), *map(str, files)]
        elif self.action == "figure":
            lines = [*map(str, make.figure(name, options, _tell, self.quick))]
        else:
            lines = [*map(str, make.everything(options, _tell, self.page))]
        sys.stdout.write("\n".join(lines) + "\n")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def read(arguments: list[str] | None = None) -> Command:
    """The command that the command line asks for; wrong options exit with 2."""
    return tyro.extras.subcommand_cli_from_dict(
        {"run": Run, "list": List, "data": Data, "report": Report, "watch": Watch, "paper": Paper},
        args=arguments,
        prog="taciturn",
        description=_ABOUT,
    )


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line and does what it says."""
    read(arguments).go()

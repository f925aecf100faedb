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

from taciturn.checks import path_of
from taciturn.core.policy import CODECS, RULES, STAND_INS, Policy, parse, parse_part, value_of
from taciturn.errors import InputError, UnknownName, require
from taciturn.settings import Settings

if TYPE_CHECKING:
    from taciturn.sim.history import History

_ABOUT = "Federated learning in which a client speaks only when it has something to say."
RECOMMENDED = "adaptive+ignore+eden:0.5"  # full accuracy at little more than 1 % of the upload
_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "DIR"}
_File = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


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
    client: str | None = None
    """The column of a `table` that says whose a row is."""
    label: str | None = None
    """The column of a `table` that is to be learned: classes, or numbers with fractions."""
    leave_out: tuple[str, ...] = ()
    """Columns of a `table` not to learn from."""
    standardise: bool = False
    """Bring what a `table` has to learn from to mean 0 and deviation 1."""
    option: tuple[str, ...] = ()
    """Any other options of the task, as KEY=VALUE: `--option clients=50 hidden=64`."""
    hold_out: str | None = None
    """Which tenth of every client is tested on, where data come without a test set: random (by
    label) or last, where rows are in the order of time (default: random)."""
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

    def arms(self) -> dict[str, Policy]:
        """The policy that was asked for, and what it is compared with."""
        if self.policy is not None:
            if self.rule is not None or self.stand_in is not None:
                raise InputError("`--policy` takes the place of `--rule` and `--stand-in`.")
            policy = parse(self.policy)
        else:
            rule = parse_part("rule", "adaptive" if self.rule is None else self.rule)
            stand_in = parse_part("stand-in", "ou" if self.stand_in is None else self.stand_in)
            policy = Policy(rule, stand_in)
        texts = ["full"] if self.baseline else []
        if self.baseline and self.policy is self.rule is self.stand_in is None:
            texts.append(RECOMMENDED)
        return {str(policy): policy} | {text: parse(text) for text in texts}

    def task_options(self) -> dict[str, Any]:
        """What the task's function is given; what is not said is left out."""
        given = {
            "data": self.data, "split": self.split, "alpha": self.alpha, "hold_out": self.hold_out,
            "client": self.client, "label": self.label, "leave_out": self.leave_out or None,
            "standardise": self.standardise or None,
        }  # fmt: skip
        for pair in self.option:
            key, equals, value = pair.partition("=")
            if not equals or given.get(key) is not None:
                raise InputError(f"`--option` is KEY=VALUE, each once, got `{pair}`.")
            found = value_of(value)
            is_whole = isinstance(found, float) and found.is_integer()
            given[key] = int(found) if is_whole else found
        return given

    def go(self) -> None:
        arms = self.arms()
        for module in ("jax", "optax", "rich"):
            require(module, "sim")
        from taciturn import runs, sim
        from taciturn.report import picture, terminal
        from taciturn.report.versions import versions
        from taciturn.tasks import load
        from taciturn.tasks.task import how_tested

        sim.prepare()
        task = load(self.task, **self.task_options())
        filled = sim.fill_in(self, task, self.plain)  # wrong settings leave no folder behind
        folder = runs.create(self.out, task.name)
        paths = {"out": self.out and str(self.out), "data": self.data and str(self.data)}
        runs.write_toml(folder / "config.toml", asdict(filled) | paths)
        settings = {field.name: getattr(filled, field.name) for field in fields(Settings)}
        with terminal.Live(list(arms), filled) as live:
            histories = sim.compare(task, arms, progress=live, plain=self.plain, **settings)
        first = next(iter(histories))
        summary = {"task": task.name} | histories[first].summary() | {"run": str(folder)}
        for key, name in (("baseline", "full"), ("recommended", RECOMMENDED)):
            if name in histories and first != name:
                summary[key] = histories[name].summary()
        summary |= {"tested_on": how_tested(task), "versions": versions()}
        rows = [{"arm": name} | row for name, h in histories.items() for row in h.rows()]
        runs.write_csv(folder / "metrics.csv", rows)
        runs.write_arrays(folder / "weights.safetensors", _named_weights(task, histories[first]))
        runs.write_json(folder / "summary.json", summary)
        picture.draw(picture.read(folder), folder / "report.png", task.name)
        if self.json:
            sys.stdout.write(runs.to_json(summary, indent=None) + "\n")
        else:
            # What all is compared with stands at the top.
            shown = sorted(histories, key=lambda name: name != "full")
            arms_shown = {name: histories[name] for name in shown}
            terminal.print_table(arms_shown, folder, summary["tested_on"])


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
    client: str | None = None
    """For `show table`: the column that says whose a row is."""
    label: str | None = None
    """For `show table`: the column that is to be learned."""
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
            asked: dict[str, Any] = {"data": self.data, "client": self.client, "label": self.label}
            picture = path_of("out", self.out or Path(f"{name}.png"))
            lines = [str(show.show(load(name, **asked), picture))]
        sys.stdout.write("\n".join(lines) + "\n")


@command
class Report(Command):
    """Look at runs again: a table, and a picture of accuracy, upload and thresholds.

    For folders that `taciturn run` has left and of Flower federations, these also while they run;
    several at a time to compare them.
    """

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR")]
    """Run folders."""
    out: _File = None
    """The picture, a PNG (default: report.png in the folder; of several, in the current one)."""

    def go(self) -> None:
        for module in ("rich", "matplotlib"):
            require(module, "report")
        from taciturn.report import picture, terminal

        if not self.folders:
            raise InputError("`taciturn report` needs a run folder, such as one in runs/.")
        arms = picture.read_all([path_of("folders", folder) for folder in self.folders])
        one = self.folders[0] / "report.png" if len(self.folders) == 1 else Path("report.png")
        path = picture.draw(arms, self.out or one, ", ".join(f.name for f in self.folders))
        terminal.print_series({name: series.summary() for name, series in arms.items()})
        sys.stdout.write(f"{path}\n")


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
        if self.page is not None and path_of("page", self.page).is_dir():
            raise InputError(f"`--page` must be a file, {self.page} is a folder.")
        if path_of("out", self.out).exists() and not self.out.is_dir():
            raise InputError(f"`--out` must be a folder, {self.out} is a file.")
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
        {"run": Run, "list": List, "data": Data, "report": Report, "paper": Paper},
        args=arguments,
        prog="taciturn",
        description=_ABOUT,
    )


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line and does what it says."""
    read(arguments).go()

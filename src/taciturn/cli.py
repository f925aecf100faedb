"""The command line: `taciturn run`.

Each subcommand is a dataclass: its fields are the options, its docstring is the help, and calling
`go` does the work.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Self, dataclass_transform

import tyro

from taciturn.checks import path_of
from taciturn.core.policy import CODECS, RULES, STAND_INS, Policy, parse, parse_part
from taciturn.errors import InputError, UnknownName, require
from taciturn.settings import Plan, read_config, read_values

_ABOUT = "Federated learning in which a client speaks only when it has something to say."
RECOMMENDED = "adaptive+ignore+eden:0.5"  # full accuracy at little more than 1 % of the upload
_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "DIR"}
_Task = Annotated[
    tyro.conf.Positional[str | None], tyro.conf.arg(metavar="TASK", help_behavior_hint="")
]
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


@dataclass(frozen=True, kw_only=True)
class Simulation(Plan, Command):
    """What `run` and `compare` have in common: a plan, where it is from, and where it goes."""

    task: _Task = None  # type: ignore[assignment]
    """What to learn: glyphs (the default), emnist, shakespeare, … (see `taciturn list`)."""
    config: _File = None
    """A file with options, such as the config.toml of a run; those that are given here count more.
    A list in it, but for seeds, is a sweep."""
    sweep: tuple[str, ...] = ()
    """Settings to run with several values each: lr=0.03,0.1,0.3 cohort=5,10."""
    out: Path | None = None
    """Folder for the results (default: runs/ and a name with task and time)."""
    json: bool = False
    """Print the summary as one JSON object, and nothing else, on stdout."""

    def with_config(self, given: Collection[str]) -> Self:
        """The options of the configuration file, but for those that were given."""
        if self.config is None:
            return self
        values = read_config(self.config)
        if {"seed", "seeds"} & set(given):  # one takes the place of the other
            given = {*given, "seed", "seeds"}
        return replace(self, **{name: v for name, v in values.items() if name not in given})

    def policies(self) -> str:
        """The policies to run, separated by semicolons."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """The fields of the plan; lists are sweeps."""
        found = {field.name: getattr(self, field.name) for field in fields(Plan)}
        for text in self.sweep:
            name, equals, several = text.partition("=")
            if not equals or name in ("arms", "seeds", "seed", "plain"):
                raise InputError(f"A sweep is written name=value,value of a setting, got `{text}`.")
            found |= read_values({name.replace("-", "_"): several.split(",")})
        return found | {
            "task": Plan.task if self.task is None else self.task,
            "arms": self.policies(),
        }

    def go(self) -> None:
        values = self.values()
        _need_simulator()
        from taciturn import sim
        from taciturn.studies import comparison

        sim.prepare()
        _show(*comparison.start(values, self.out), self.json)


@command
class Run(Simulation):
    """Train federatedly with clients that stay silent, beside a run in which all speak.

    A policy is a rule, a stand-in and a codec, with arguments: `--policy adaptive+ignore+eden:0.5`,
    `--policy adaptive,k=0+ou,cap=true`. Without one, the paper's policy and the recommended one are
    run beside full communication. Ctrl-C stops and saves; `taciturn resume` goes on.
    Rules: full, fixed:THRESHOLD, adaptive, random:PROBABILITY. Stand-ins: ou, zero, ignore, last.
    Codecs: float32, float16, bfloat16, quantize:BITS, eden:BITS, top_k:SHARE, sparse_ternary:SHARE;
    the last four with feedback, as in `eden:0.1,feedback=true`: clients keep what was left out.
    """

    rule: str | None = None
    """Who speaks (default: adaptive)."""
    stand_in: str | None = None
    """What takes the place of a silent client's update (default: ou)."""
    policy: str | None = None
    """Rule, stand-in and codec as one text, instead of the two above."""
    baseline: bool = True
    """Whether to run full communication beside it, with the same seeds."""

    def policies(self) -> str:
        """The policy that was asked for, and what it is compared with, which stands first."""
        if self.policy is not None:
            if self.rule is not None or self.stand_in is not None:
                raise InputError("`--policy` takes the place of `--rule` and `--stand-in`.")
            policy = parse(self.policy)
        elif self.arms is not None and self.rule is self.stand_in is None:
            return self.arms
        else:
            rule = "adaptive" if self.rule is None else self.rule
            stand_in = "ou" if self.stand_in is None else self.stand_in
            policy = Policy(parse_part("rule", rule), parse_part("stand-in", stand_in))
        texts = ["full"] if self.baseline else []
        texts.append(str(policy))
        if self.baseline and self.policy is self.rule is self.stand_in is None:
            texts.append(RECOMMENDED)
        return "; ".join(dict.fromkeys(texts))


@command
class Compare(Simulation):
    """Run policies side by side, and say how they differ from the first one.

    All have the same seeds, clients and batches, so that differences are taken seed by seed; ± is
    half of the 95 % interval of their mean (Student's t). `taciturn run --help` says how policies
    are written.
    """

    def policies(self) -> str:
        if self.arms is None:
            raise InputError(
                '`taciturn compare` needs policies, such as `--arms "full; adaptive+ou"`.'
            )
        return self.arms


@command
class Resume(Command):
    """Go on with a run that was stopped, killed, or ran out of disk.

    It ends where it would have ended without that, to the last bit.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder of the run."""
    json: bool = False
    """Print the summary as one JSON object, and nothing else, on stdout."""

    def go(self) -> None:
        _need_simulator()
        from taciturn import sim
        from taciturn.studies import comparison

        if comparison.is_complete(self.folder):
            _tell(f"{self.folder} is complete.")
        sim.prepare()
        _show(self.folder, comparison.go_on(self.folder), self.json)


@command
class Runs(Command):
    """List the runs that are on disk: complete, stopped, or running."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Where to look."""

    def go(self) -> None:
        require("rich", "report")
        from taciturn.report import listing

        listing.show(self.folder)


def _need_simulator() -> None:
    for module in ("jax", "optax", "rich", "scipy", "matplotlib"):
        require(module, "sim")


def _show(folder: Path, summary: Mapping[str, Any], as_json: bool) -> None:
    from taciturn import runs
    from taciturn.report import terminal

    if as_json:
        sys.stdout.write(runs.to_json(summary, indent=None) + "\n")
        return
    for title, point in summary.get("points", {"": summary}).items():
        terminal.print_table(point["arms"], title, point.get("tested_on", ""))
    sys.stdout.write(f"Results are in {folder}\n")


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
            raise InputError(f"`taciturn data {self.action}` needs a name; see `data list`.")
        name = self.name or ""
        if self.action == "list":
            lines = inventory.listing(self.data)
        elif self.action == "fetch":
            lines = [str(path) for path in places.find_or_fetch(name, self.data)]
        elif self.action == "check":
            lines = inventory.check(name, self.data)
        else:
            task = load(name, data=self.data, client=self.client, label=self.label)
            lines = [str(show.show(task, path_of("out", self.out or Path(f"{name}.png"))))]
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
        arms = picture.read_all([path_of("folders", one) for one in self.folders])
        one = self.folders[0] / "report.png" if len(self.folders) == 1 else Path("report.png")
        path = picture.draw(arms, self.out or one, ", ".join(f.name for f in self.folders))
        terminal.print_table({name: series.summary() for name, series in arms.items()})
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
        _need_simulator()
        from taciturn.paper import make
        from taciturn.paper.experiments import SEEDS
        from taciturn.sim import prepare
        from taciturn.sim.defaults import PRECISIONS
        from taciturn.studies.pieces import Options

        if self.action in ("table", "figure") and self.name is None:
            raise InputError(f"`taciturn paper {self.action}` needs a name; see `paper list`.")
        if any(count is not None and count < 1 for count in (self.seeds, self.rounds)):
            raise InputError("`--seeds` and `--rounds` must be at least 1.")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownName("precision", self.precision, PRECISIONS)
        if self.action == "all" and self.quick:
            raise InputError("`all` has no quick form; `table main --quick` has.")
        if self.page is not None and path_of("page", self.page).is_dir():
            raise InputError(f"`--page` must be a file, {self.page} is a folder.")
        if path_of("out", self.out).is_file():
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


_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": Run, "compare": Compare, "resume": Resume, "runs": Runs, "report": Report, "list": List,
    "data": Data, "paper": Paper,
}  # fmt: skip


def read(arguments: list[str] | None = None) -> Command:
    """The command that the command line asks for; wrong options exit with 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    found: Command = tyro.extras.subcommand_cli_from_dict(
        _COMMANDS, args=arguments, prog="taciturn", description=_ABOUT
    )
    if not isinstance(found, Simulation):
        return found
    options = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    given = {option.replace("-", "_").removeprefix("no_") for option in options}
    return found.with_config(given | ({"task"} if found.task is not None else set()))


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line and does what it says."""
    read(arguments).go()

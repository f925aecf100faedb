"""`taciturn run`, `compare`, `resume` and `frontier`."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro

from taciturn.cli.command import Command, File
from taciturn.core.policy import Policy, import_files, parse, parse_part
from taciturn.errors import InputError, require
from taciturn.settings import TOGETHER, Plan, Settings, TaskOptions, read_config, read_values
from taciturn.summary import FULL, RECOMMENDED
from taciturn.track import library

_Task = Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="TASK")]
_Sweep = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,VALUE …")]


@dataclass(frozen=True, kw_only=True)
class Output(Command):
    """Options of the commands that run something: how people learn of it."""

    json: bool = False
    """Print the summary as one JSON object, and nothing else, on stdout."""
    quiet: bool = False
    """Show no progress, and at the end the folder of the results alone."""
    track: Literal["tensorboard", "wandb", "mlflow", "trackio"] | None = None
    """Pass the figures of every round on to a tracker."""

    def told(self) -> Any:
        """Who is told of a run, `studies.Told`; raises if a library is missing."""
        for module in ("jax", "optax", "rich", "scipy"):
            require(module, "sim")
        if self.track is not None:
            library(self.track)
        from taciturn import sim, studies

        sim.prepare()
        return studies.Told(self.quiet, self.track)

    def show(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """Prints what came out."""
        from taciturn import runs
        from taciturn.report import terminal

        if self.json:
            sys.stdout.write(runs.to_json(summary, indent=None) + "\n")
        elif self.quiet:
            sys.stdout.write(f"{folder}\n")
        else:
            for title, point in summary.get("points", {"": summary}).items():
                terminal.print_table(point["arms"], title, point)
            sys.stdout.write(f"Results are in {folder}\n")


@dataclass(frozen=True, kw_only=True)
class Simulation(Plan, Output):
    """What `run` and `compare` have in common: a plan, where it is from, and where it goes."""

    rare = frozenset((
        "debug", "track", "choice", "dropout", "stragglers", "clip", "client_optimizer", "prox",
        "lr_decay", "lr_schedule", "server_optimizer", "server_lr", "kept_messages", "seed",
        "evaluate_every", "precision", "devices", "lanes", "split", "alpha", "standardise",
        "hold_out", "plain", "noise_floor", "epochs", "batch", "option",
    ))  # fmt: skip

    task: _Task = None  # type: ignore[assignment]
    """What to learn: glyphs (the default), emnist, table, … (see `taciturn list`)."""
    config: File = None
    """A file with options, such as a run's config.toml; those given here count more."""
    sweep: _Sweep = ()
    """Settings to run with several values: `--sweep lr=0.03,0.1,0.3 cohort=5,10`."""
    out: Path | None = None
    """Folder for the results (default: a new one in runs/)."""

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
        if self.arms is None:
            raise InputError('`taciturn compare` needs arms, such as `--arms "full; adaptive+ou"`.')
        return self.arms

    def values(self) -> dict[str, Any]:
        """The fields of the plan; lists are sweeps."""
        found = {field.name: getattr(self, field.name) for field in fields(Plan)}
        found["task"] = Plan.task if self.task is None else self.task
        for text in self.sweep:
            name, equals, several = text.partition("=")
            if not equals or name.replace("-", "_") in TOGETHER:
                raise InputError(f"A sweep is written name=value,value of a setting, got `{text}`.")
            found |= read_values({name.replace("-", "_"): several.split(",")})
        return found | {"arms": self.policies()}

    def go(self) -> None:
        import_files(self.imports)
        values, told = self.values(), self.told()
        from taciturn import studies

        self.show(*studies.start(values, self.out, told))


@dataclass(frozen=True, kw_only=True)
class Run(Simulation):
    """Train federatedly with clients that stay silent, beside a run in which all speak.

    A policy is a rule, a stand-in and a codec, with arguments: `--policy adaptive,k=0+ignore+eden`.
    Without one, the paper's policy and `budget`, with 4 kB for each client, are run beside full
    communication. Ctrl-C stops and saves; `taciturn resume` goes on. `--help-all` has all options.
    Rules: full, fixed:THRESHOLD, adaptive, random:PROBABILITY, optimal:SHARE, budget:AMOUNT.
    Stand-ins: ou, zero, ignore, last, own.
    Codecs: float32, float16, bfloat16, quantize:BITS, eden:BITS, top_k:SHARE, sparse_ternary:SHARE,
    peaks:LENGTH. With feedback, as in `top_k:0.01,feedback=true`, clients keep what was left out.
    """

    rare = Simulation.rare | {"arms", "rule", "stand_in"}

    rule: str | None = None
    """Who speaks (default: adaptive)."""
    stand_in: str | None = None
    """What takes the place of a silent client's update (default: ou)."""
    policy: str | None = None
    """Rule, stand-in and codec as one text."""
    budget: str | None = None
    """How much to upload, instead of a policy: 1% of what float32 takes, or 200kB, for a round; for
    each client that is asked with `,per=client`, for all with `,per=run`."""
    baseline: bool = True
    """Whether to run full communication beside it."""

    def policies(self) -> str:
        """The policy that was asked for, and what it is compared with, which stands first."""
        no_parts = (self.rule, self.stand_in) == (None, None)
        if self.budget is not None and not (no_parts and self.policy is None):
            raise InputError("`--budget` takes the place of `--policy`, `--rule` and `--stand-in`.")
        if self.policy is not None and not no_parts:
            raise InputError("`--policy` takes the place of `--rule` and `--stand-in`.")
        policy = self.policy if self.budget is None else f"budget:{self.budget}"
        if policy is not None:
            texts = [str(parse(policy))]
        elif no_parts and self.arms is not None:
            return self.arms
        else:
            rule = parse_part("rule", "adaptive" if self.rule is None else self.rule)
            stand_in = parse_part("stand-in", "ou" if self.stand_in is None else self.stand_in)
            texts = [str(Policy(rule, stand_in)), *[RECOMMENDED] * (no_parts and self.baseline)]
        return "; ".join(dict.fromkeys([FULL] * self.baseline + texts))


@dataclass(frozen=True, kw_only=True)
class Compare(Simulation):
    """Run arms side by side, and say how they differ from the first one.

    An arm is a policy in a comparison; `taciturn run --help` says how policies are written. All
    have the same seeds, clients and batches, so that differences are taken seed by seed; ± is half
    of the 95 % interval of their mean (Student's t). `--help-all` has all options.
    """


@dataclass(frozen=True, kw_only=True)
class Resume(Output):
    """Go on with a run that was stopped, killed, or ran out of disk.

    It ends where it would have ended without that, to the last bit.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder of the run."""

    def go(self) -> None:
        told = self.told()
        from taciturn import studies

        if studies.is_complete(self.folder):
            sys.stderr.write(f"{self.folder} is complete.\n")
        self.show(self.folder, studies.go_on(self.folder, told))


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

        from taciturn.frontier import folder, front
        from taciturn.report import figures
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
        made += figures.write(front.draw(found, self.trails), out, "figure")
        sys.stdout.write("\n".join([table.title, "", table.text(), *map(str, made)]) + "\n")

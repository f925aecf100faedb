"""The command line of a study: list, run, table, figure, all."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from matplotlib.figure import Figure

from experiments.common.experiment import Experiment
from experiments.common.pieces import Options
from experiments.common.results import Results
from taciturn import runs
from taciturn.errors import InputError, TaciturnError, UnknownName
from taciturn.report import figures
from taciturn.report.table import Table
from taciturn.sim import prepare

# What a folder has, by name: the `Results` of an experiment, the content of another file.
Found = Mapping[str, Any]
_Made = TypeVar("_Made")
_ABOUT = "Finished runs are kept: a stopped command goes on where it was."


class Study(NamedTuple):
    """Experiments, and what is made of their results.

    Attributes:
      name: of the module, for the help.
      page: README.md, with tables between markers; results lie in `results/` beside it.
      experiments: by their names.
      tables, figures: by their names, of what a folder has; None where nothing of it was run.
      other: what is no experiment, and makes a JSON file by itself.
    """

    name: str
    page: Path
    experiments: Mapping[str, Experiment]
    tables: Mapping[str, Callable[[Found], Table | None]]
    figures: Mapping[str, Callable[[Found], Figure | None]]
    other: Mapping[str, Callable[[Path | None], dict[str, Any]]] = {}

    def found(self, folder: Path) -> dict[str, Any]:
        """What the folder has."""
        there = [name for name in self._all if _file(folder, name).exists()]
        return {
            name: self.experiments[name].read(folder)
            if name in self.experiments
            else runs.read_json(_file(folder, name))
            for name in there
        }

    @property
    def _all(self) -> tuple[str, ...]:
        """The names of everything that can be run."""
        return (*self.experiments, *self.other)

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Does what the command line says; an error is one line, and the exit status 1."""
        asked = self._parser().parse_args(arguments)
        try:
            self._do(asked)
        except TaciturnError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(1)

    def _parser(self) -> argparse.ArgumentParser:
        folder = self.page.parent / "results"
        parser = argparse.ArgumentParser(f"python -m {self.name}", description=_ABOUT)
        parser.add_argument("action", choices=("list", "run", "table", "figure", "all"))
        parser.add_argument("names", nargs="*", help="experiments, tables or figures; see `list`")
        parser.add_argument(
            "--seeds", type=_positive, help="of every arm (default: as `list` says)"
        )
        parser.add_argument("--rounds", type=_positive, help="(default: the experiments')")
        parser.add_argument("--precision", help="of products (default: that of the runs there)")
        parser.add_argument("--side-by-side", type=_positive, help="the most runs of a piece")
        parser.add_argument("--again", nargs="*", default=(), help="arms that are run again")
        parser.add_argument("--data", type=Path, help="where the data lie")
        parser.add_argument("--out", type=Path, default=folder, help="(default: %(default)s)")
        return parser

    def _do(self, asked: argparse.Namespace) -> None:
        known = {"run": self._all, "table": self.tables, "figure": self.figures}
        if asked.action in known:
            for name in asked.names:
                if name not in known[asked.action]:
                    raise UnknownName(asked.action, name, known[asked.action])
        elif asked.names:
            raise InputError(f"`{asked.action}` takes no names.")
        if asked.action == "run" and not asked.names:
            raise InputError("`run` needs names of experiments; `all` runs all of them.")
        if asked.action == "list":
            _print(self.listing(asked.out))
        if asked.action in ("run", "all"):
            prepare()
            for name in asked.names or self._all:
                self.run(name, asked)
        if asked.action in ("table", "all"):
            _print(self.write_tables(asked.out, asked.names))
        if asked.action in ("figure", "all"):
            _print(map(str, self.draw(asked.out, asked.names)))

    def run(self, name: str, asked: argparse.Namespace) -> None:
        """Runs what is missing of an experiment."""
        if name in self.other:
            if not _file(asked.out, name).exists():
                say(f"{name} …")
                asked.out.mkdir(parents=True, exist_ok=True)
                runs.write_json(_file(asked.out, name), self.other[name](asked.data))
            return
        options = Options(asked.out, asked.precision, asked.data, asked.side_by_side, asked.again)
        result = self.experiments[name].run(options, say, asked.seeds, asked.rounds)
        count = sum(len(arm.seeds) for arm in result.arms.values())
        say(f"{name}: {count} runs, {sum(piece['seconds'] for piece in result.pieces):.0f} s")

    def listing(self, folder: Path) -> list[str]:
        """What can be made, and which runs are missing: how many seeds of which arms."""
        lines = [f"tables: {', '.join(self.tables)}", f"figures: {', '.join(self.figures)}"]
        for name, experiment in self.experiments.items():
            missing = experiment.missing(folder)
            lacks = "; ".join(f"{arm}: {count}" for arm, count in missing.items())
            state = f"seeds missing of {lacks}" if lacks else "complete"
            lines.append(f"{name}: {experiment.title}, {len(experiment.arms)} arms, {state}")
        for name in self.other:
            lines.append(f"{name}: {'complete' if _file(folder, name).exists() else 'not run'}")
        return lines

    def write_tables(self, folder: Path, names: Sequence[str] = ()) -> list[str]:
        """Writes tables as CSV; of all of them, also the page, if it lies beside the folder."""
        found = self.found(folder)
        made = {name: self.tables[name](found) for name in names or self.tables}
        there = {name: table for name, table in made.items() if table is not None and table.rows}
        for name, table in there.items():
            table.write(_table(folder, name))
        if names:
            return [f"{table.title}\n\n{table.text()}" for table in there.values()]
        if folder.resolve() == (self.page.parent / "results").resolve():
            text = fill(self.page.read_text("utf-8"), there)
            self.page.write_text(text, "utf-8")
        return [str(_table(folder, name)) for name in there]

    def draw(self, folder: Path, names: Sequence[str] = ()) -> list[Path]:
        """Draws figures of what the folder has."""
        found, paths = self.found(folder), []
        for name in names or self.figures:
            drawn = self.figures[name](found)
            if drawn is not None:
                paths += figures.write(drawn, folder, f"figure-{name}")
        return paths


def fill(text: str, tables: Mapping[str, Table]) -> str:
    """The text with every table that it has a place for: from `<!-- table: NAME -->` to
    `<!-- end -->`."""
    for name, table in tables.items():
        head, mark, rest = text.partition(f"<!-- table: {name} -->\n")
        if mark:
            text = head + mark + markdown(table) + rest[rest.index("<!-- end -->") :]
    return text


def markdown(table: Table) -> str:
    """The table as Markdown."""
    head, *lines = table.lines
    lines = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def some(found: Found, experiments: Sequence[Experiment]) -> dict[str, Results]:
    """Those of the experiments that were run."""
    return {one.name: found[one.name] for one in experiments if one.name in found}


def only(name: str, make: Callable[[Results], _Made]) -> Callable[[Found], _Made | None]:
    """What is made of one experiment, where it was run."""
    return lambda found: make(found[name]) if name in found else None


def say(line: str) -> None:
    """Tells people how far a command is."""
    sys.stderr.write(f"{line}\n")


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _table(folder: Path, name: str) -> Path:
    return folder / f"table-{name}.csv"


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number

"""Runs experiments, and makes tables, figures and the page of what they left."""

from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.paper import figures, page, paths
from experiments.paper.experiments import (
    EMNIST,
    EXPERIMENTS,
    GLYPHS,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    SYNTHETIC,
)
from experiments.paper.tables import TABLES
from taciturn import runs
from taciturn.errors import RunError, UnknownName
from taciturn.studies import figure as drawing
from taciturn.studies import pieces
from taciturn.studies.experiment import Experiment
from taciturn.studies.pieces import Options
from taciturn.studies.results import Recipe, Results, state
from taciturn.studies.table import Table

PATHS = paths.NAME
FIGURES = page.FIGURES
_QUICK = {EMNIST.name: GLYPHS} | dict.fromkeys(
    (SHAKESPEARE.name, SHAKESPEARE_FAST.name, SYNTHETIC.name), SYNTHETIC
)

Say = Callable[[str], None]


def quick(needs: tuple[Experiment, ...]) -> tuple[Experiment, ...]:
    """What `--quick` runs instead of these experiments."""
    if any(experiment.name not in _QUICK for experiment in needs):
        raise RunError(
            f"There is no quick form of this: it needs {', '.join(e.name for e in needs)}."
        )
    return tuple({e.name: e for e in (_QUICK[experiment.name] for experiment in needs)}.values())


def run(names: str, options: Options, say: Say) -> list[str]:
    """Runs experiments, given as names with commas between them; a line for each."""
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name != PATHS and name not in EXPERIMENTS:
            raise UnknownName("experiment", name, (*EXPERIMENTS, PATHS))
    lines = []
    for name in wanted:
        if name == PATHS:
            lines.append(f"{_paths(options, say)}")
        else:
            result = pieces.run(EXPERIMENTS[name], options, say)
            count = sum(len(arm.seeds) for arm in result.arms.values())
            lines.append(f"{name}: {count} runs, {result.seconds:.0f} s")
    return lines


def table(name: str, options: Options, say: Say, fast: bool = False) -> tuple[Table, list[Path]]:
    """A table, as an object and as CSV and Markdown."""
    if name not in TABLES:
        raise UnknownName("table", name, TABLES)
    made = TABLES[name].make(_run(TABLES[name], options, say, fast))
    return made, made.write(options.folder, f"table-{name}")


def figure(name: str, options: Options, say: Say, fast: bool = False) -> list[Path]:
    """A figure, as PNG and SVG; `name` may be its number on the page."""
    name = {str(number): known for known, number in FIGURES.items()}.get(name, name)
    if name not in FIGURES:
        raise UnknownName("figure", name, FIGURES)
    if name == PATHS and fast:
        raise RunError("There is no quick form of `paths`: it takes seconds as it is.")
    if name == PATHS:
        drawn = figures.paths(runs.read_json(_paths(options, say)))
    else:
        recipe = figures.FIGURES[name]
        drawn = recipe.make(_run(recipe, options, say, fast))
    return drawing.write(drawn, options.folder, f"figure-{name}", page.ENDINGS)


def everything(options: Options, say: Say, where: Path | None = None) -> list[Path]:
    """Runs all experiments, and writes all tables, all figures and the page."""
    _paths(options, say)
    for experiment in EXPERIMENTS.values():
        if experiment is not GLYPHS:
            pieces.run(experiment, options, say)
    return page.write(options.folder, where, options.seeds)


def _paths(options: Options, say: Say) -> Path:
    """The file of the illustration, made where it is not there."""
    where = options.folder / f"{PATHS}.json"
    if not where.exists():
        say("Fashion-MNIST: weights of a network under SGD")
        found = paths.run(options.data)
        options.folder.mkdir(parents=True, exist_ok=True)
        runs.write_json(where, found)
    return where


def _run(recipe: Recipe, options: Options, say: Say, fast: bool) -> Mapping[str, Results]:
    needs = quick(recipe.needs) if fast else recipe.needs
    return {experiment.name: pieces.run(experiment, options, say) for experiment in needs}


def listing(folder: Path) -> list[str]:
    """What can be made, of what, and which of it is there."""
    lines = ["tables"]
    for name, recipe in TABLES.items():
        lines.append(_line(name, recipe))
    lines.append("figures")
    for name, number in FIGURES.items():
        if name == PATHS:
            lines.append(f"  {number} {PATHS:<17} {_first(figures.paths)} Needs: fashion.")
        else:
            lines.append(_line(f"{number} {name}", figures.FIGURES[name]))
    lines.append("experiments")
    for name, experiment in EXPERIMENTS.items():
        done = state(experiment, folder)
        lines.append(f"  {name:<32} {experiment.title}: {len(experiment.arms)} arms, {done}")
    return lines


def _line(name: str, recipe: Recipe) -> str:
    needs = ", ".join(experiment.name for experiment in recipe.needs)
    return f"  {name:<19} {_first(recipe.make)} Needs: {needs}."


def _first(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").split("\n")[0]

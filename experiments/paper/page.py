"""The page of results, from the files of the experiments alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.paper import figures, paths, reading, tables, texts, words
from experiments.paper.checks import SAYS, Claim
from experiments.paper.claims import claims
from experiments.paper.experiments import (
    EMNIST,
    EXPERIMENTS,
    MAIN,
    OURS,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    SYNTHETIC,
)
from experiments.paper.summary import summary
from taciturn.studies import figure, page
from taciturn.studies.results import Results

ENDINGS = ("png", "svg")
# With their numbers: the paper's, whose first is a diagram, and ours after them.
FIGURES = {
    "fixed-accuracy": 2,
    "fixed-upload": 3,
    "accuracy": 4,
    "upload": 5,
    paths.NAME: 6,
    "thresholds": 7,
    "bytes": 8,
}


def write(folder: Path, where: Path | None = None, seeds: int | None = None) -> list[Path]:
    """Writes tables and figures of what the folder has, and the page.

    The page is `results.md` in the folder of the experiments unless `where` says else.
    """
    results = reading.there(folder, seeds)
    made = []
    for name, recipe in tables.TABLES.items():
        own = _own(recipe, results)
        if own:
            made += recipe.make(own).write(folder, f"table-{name}")
    for name in FIGURES:
        drawn = _draw(name, results, folder)
        if drawn is not None:
            made += figure.write(drawn, folder, f"figure-{name}", ENDINGS)
    where = where or folder / "results.md"
    return [*made, page.write(lambda link: make(folder, link, seeds), folder, where)]


def _own(recipe: Any, results: Mapping[str, Results]) -> dict[str, Results]:
    """What there is of the results that a table or figure needs."""
    return {e.name: results[e.name] for e in recipe.needs if e.name in results}


def _draw(name: str, results: Mapping[str, Results], folder: Path) -> Any:
    """A figure, or None where nothing of it was run."""
    if name == paths.NAME:
        found = reading.measured_paths(folder)
        return figures.paths(found) if found else None
    recipe = figures.FIGURES[name]
    own = _own(recipe, results)
    return recipe.make(own) if own else None


def make(folder: Path, link: Path, seeds: int | None = None) -> str:
    """The text of the page; `link` is the folder as seen from it."""
    results, described = reading.there(folder, seeds), reading.measured_paths(folder)
    measured = described.get("measured", [])
    found = claims(results, measured)

    def table(name: str) -> str:
        own = _own(tables.TABLES[name], results)
        if not own:
            return f"Table `{name}`: not run.\n"
        made = tables.TABLES[name].make(own)
        return f"{made.title}\n\n{made.markdown()}"

    def picture(name: str) -> str:
        number = FIGURES[name]
        there = described if name == paths.NAME else _own(figures.FIGURES[name], results)
        if not there:
            return f"Figure {number}: not run.\n"
        target = (link / f"figure-{name}.png").as_posix()
        return f"![Figure {number}]({target})\n\n*Figure {number}.* {texts.CAPTIONS[name]}\n"

    sections = [
        texts.HEAD,
        summary(results, found, described),
        words.missing(results, words.SHOWN),
        texts.COMMANDS,
        texts.TERMS,
        words.pulled_down(results),
        "## Main table\n",
        *(_main(results, e.name) for e in (*MAIN, SYNTHETIC)),
        texts.NOTES_MAIN,
        words.apart(results),
        words.plateau(results),
        words.all_silent(results),
        *(picture(name) for name in ("accuracy", "upload", "bytes")),
        table("reached"),
        "## Collapses\n",
        table("collapses"),
        texts.NOTES_COLLAPSES,
        "## Thresholds\n",
        table("thresholds"),
        picture("thresholds"),
        "## Number of clients\n",
        table("clients"),
        table("upload"),
        "## Fixed thresholds\n",
        *(picture(name) for name in ("fixed-accuracy", "fixed-upload")),
        "## Weights as an OU process\n",
        picture(paths.NAME),
        _measured(described),
        "## Claims\n",
        texts.VERDICTS,
        _claims(found),
        "### Details\n",
        *(_details(i, claim) for i, claim in enumerate(found, 1)),
        "## Settings\n",
        table("data"),
        texts.NOTES_DATA,
        table("emnist-settings"),
        words.fits(results, EMNIST.task),
        table("settings"),
        words.fits(results, SHAKESPEARE.task),
        *(
            page.settings(e.title, {**e.options, **e.settings})
            for e in (EMNIST, SHAKESPEARE, SHAKESPEARE_FAST, SYNTHETIC)
        ),
        page.settings("Fashion-MNIST", paths.SETTINGS),
        "## Seconds\n",
        _made_with(results, described),
    ]
    return "\n".join(section for section in sections if section)


def _main(results: Mapping[str, Results], name: str) -> str:
    result = results.get(name)
    if result is None:
        return f"{EXPERIMENTS[name].title}: not run.\n"
    made = tables.main_of(result)
    return f"{made.title}\n\n{made.markdown()}"


def _claims(found: Sequence[Claim]) -> str:
    """The verdicts, those on Taciturn's variant in a table of their own."""
    columns = ("", "claim", "verdict", *SAYS)
    rows: list[tuple[Any, ...]] = [
        (i, c.text, f"**{c.verdict}**", *(c.count(says) for says in SAYS))
        for i, c in enumerate(found, 1)
    ]
    papers = [row for row, claim in zip(rows, found, strict=True) if not claim.ours]
    ours = [row for row, claim in zip(rows, found, strict=True) if claim.ours]
    return (
        f"The paper's claims, and how many of their checks say what:\n\n"
        f"{page.table(columns, papers)}\nThe same of `{OURS}`, Taciturn's variant, which the paper "
        f"does not have:\n\n{page.table(columns, ours)}"
    )


def _details(number: int, claim: Claim) -> str:
    needed = "one check is enough" if claim.any else "all checks must say yes"
    rows = [tuple(check) for check in claim.checks]
    columns = ("where", "comparison", "numbers", "word", "says")
    return (
        f"#### {number}. {claim.text}\n\n**{claim.verdict}**, {claim.yes_of_all}. A check says yes "
        f"where: {claim.rule}. {needed.capitalize()}.\n\n{page.table(columns, rows)}"
    )


def _measured(described: Mapping[str, Any]) -> str:
    if not described:
        return ""
    measured, data = described["measured"], described["data"]
    columns = ("measured", "weights", *paths.CONTROLS.values())
    table = page.table(columns, list(words.paths_table(measured)))
    return (
        f"Means over {len(measured)} seeds. The controls are paths of true OU processes: with the "
        f"medians of what was fitted, and with the fit of every weight whose fitted rate is "
        f"positive. The data: {data['examples']:,} training and {data['tests']:,} test images, "
        f"sha256 `{data['sha256'][:12]}`.\n\n{table}"
    )


def _made_with(results: Mapping[str, Results], described: Mapping[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = []
    for result in results.values():
        for piece in result.pieces:
            seeds = f"{piece.seeds[0]} to {piece.seeds[-1]}"
            made = (piece.device, result.made_with["precision"], f"{piece.seconds:.0f}")
            rows.append((result.experiment.title, len(piece.arms), seeds, *made))
    if described:
        device = described["versions"]["device"]
        seconds = f"{described['seconds']:.0f}"
        last = len(described["measured"]) - 1
        rows.append(("Fashion-MNIST paths", 1, f"0 to {last}", device, "float32", seconds))
    if not rows:
        return ""
    table = page.table(("experiment", "arms", "seeds", "device", "precision", "seconds"), rows)
    made_with = [piece.versions for result in results.values() for piece in result.pieces]
    made_with += [described["versions"]] if described else []
    stacks = dict.fromkeys(
        ", ".join(f"{name} {one[name]}" for name in ("python", "jax", "numpy")) for one in made_with
    )
    return (
        f"A line for every piece, which is what ran side by side; compilation is included. Made "
        f"with {'; '.join(stacks)}. The JSON files have the versions of every piece.\n\n{table}"
    )

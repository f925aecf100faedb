"""The page of results, from the files of the experiments alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taciturn.paper import comparing, figures, paths, reading, tables, words
from taciturn.paper.checks import Claim
from taciturn.paper.claims import claims
from taciturn.paper.experiments import (
    EMNIST,
    EXPERIMENTS,
    MAIN,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    SYNTHETIC,
)
from taciturn.studies import figure, page
from taciturn.studies.difference import MARGIN
from taciturn.studies.results import Results

ENDINGS = ("png", "svg")
# In the order of their numbers, which are the paper's up to 6.
FIGURES = (
    "fixed-accuracy",
    "fixed-upload",
    "accuracy",
    "upload",
    "thresholds",
    paths.NAME,
    "bytes",
)
_CAPTIONS = {
    "fixed-accuracy": "Accuracy by round under fixed thresholds: the median over seeds, and every "
    "seed as a thin line.",
    "fixed-upload": "Clients that upload in a round under fixed thresholds: the median over seeds, "
    "and every seed as a thin line.",
    "accuracy": "Accuracy by round: the median over seeds; a shade goes from the lowest seed to "
    "the highest, and where a run collapsed every seed is a thin line instead. Below, the zone "
    "that decides.",
    "upload": "Upload since the start: the median over seeds, and a shade from the lowest to the "
    "highest.",
    "thresholds": "Thresholds by round, on a logarithmic axis: the median over seeds, and a shade "
    "from the lowest to the highest.",
    paths.NAME: "Weights of a 784-128-10 network on Fashion-MNIST under SGD, and their increments "
    "in the last epoch beside a normal distribution.",
    "bytes": "Above, accuracy against upload: a small mark for every seed, a large one for the "
    "medians; runs that collapsed lie below the axis. In the lower panels, the upload until the "
    "median over seeds has 90 % of the final accuracy of full communication.",
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
        number = FIGURES.index(name) + 1
        there = described if name == paths.NAME else _own(figures.FIGURES[name], results)
        if not there:
            return f"Figure {number}: not run.\n"
        target = (link / f"figure-{name}.png").as_posix()
        return f"![Figure {number}]({target})\n\n*Figure {number}.* {_CAPTIONS[name]}\n"

    sections = [
        _HEAD,
        words.summary(results, found, folder.parent / "frontier", described),
        words.missing(results, words.SHOWN),
        _COMMANDS,
        _TERMS,
        "## Main table\n",
        *(_main(results, e.name) for e in (*MAIN, SYNTHETIC)),
        _NOTES_MAIN,
        words.apart(results),
        words.plateau(results),
        words.all_silent(results),
        *(picture(name) for name in ("accuracy", "upload", "bytes")),
        table("reached"),
        "## Collapses\n",
        table("collapses"),
        _NOTES_COLLAPSES,
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
        _measured(measured),
        "## Claims\n",
        _VERDICTS,
        _claims(found),
        "### Details\n",
        *(_details(i, claim) for i, claim in enumerate(found, 1)),
        "## Settings\n",
        table("data"),
        _NOTES_DATA,
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
    rows = [(i, c.text, f"**{c.verdict}**", c.yes_of_all) for i, c in enumerate(found, 1)]
    return page.table(("", "claim", "verdict", "checks that say yes"), rows)


def _details(number: int, claim: Claim) -> str:
    needed = "one check is enough" if claim.any else "all checks must say yes"
    rows = [tuple(check) for check in claim.checks]
    columns = ("where", "comparison", "numbers", "word", "says")
    return (
        f"#### {number}. {claim.text}\n\n**{claim.verdict}**, {claim.yes_of_all}. A check says yes "
        f"where: {claim.rule}. {needed.capitalize()}.\n\n{page.table(columns, rows)}"
    )


def _measured(measured: Sequence[Mapping[str, Any]]) -> str:
    if not measured:
        return ""
    table = page.table(("measured", "weights", "control"), list(words.paths_table(measured)))
    return f"Means over {len(measured)} seeds; the control is a true OU process.\n\n{table}"


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
    stacks = dict.fromkeys(
        ", ".join(f"{name} {r.made_with[name]}" for name in ("python", "jax", "numpy"))
        for r in results.values()
    )
    return (
        f"A line for every piece, which is what ran side by side; compilation is included. Made "
        f"with {'; '.join(stacks)}. The JSON files have the versions of every piece.\n\n{table}"
    )


_HEAD = """\
# The paper, reproduced

*Communication-Efficient Federated Learning via Optimal Client Sampling* (Ribero, Vikalo, 2020), on
real data and over seeds; the paper has one run for each number. In short:
"""

_COMMANDS = """\
```bash
taciturn paper all --out DIR             # everything; a stopped command goes on where it was
taciturn paper table main --quick        # minutes on a CPU, on data that need no download
taciturn paper page --out DIR            # this page, of what the folder has; runs nothing
```

This page is written by `taciturn paper page` from the JSON files beside its figures; all numbers,
and what is said of them, come from there.
"""

_TERMS = f"""\
## Terms

- A client *speaks* when it uploads its update, and is *silent* when it uploads only its number of
  examples and its update's norm. A *stand-in* takes the place of a silent client's update: `ou` is
  the paper's estimator to the letter, `ou constrained` holds â in [0, 1], which is what an
  Ornstein–Uhlenbeck process allows, and is Taciturn's default; `zero` is no step; `ignore` leaves
  the client out.
- *τ* is the threshold that a norm must exceed for its client to speak. `adaptive` sets it to mean −
  deviation of the last round's norms, weighted by examples as in the author's code, or `unweighted`
  as the paper's text reads. Under `random`, clients speak with the mean rate, over seeds, of the
  adaptive arm with the same stand-in and weighting.
- The *share* is what was uploaded, in % of everyone's update in float32; GiB are uplink only, and
  what the paper prints as "Gb".
- A run has *collapsed* when it ends more than {comparing.COLLAPSE:g} points of accuracy below full
  communication with the same seed.
"""

_VERDICTS = f"""\
Differences are taken seed by seed: both arms have the same clients and batches. In the details
*numbers* is the mean difference, its 95 % interval in brackets (Student's t) and the number of
seeds. *Ahead* and *behind* mean that the interval lies on one side of zero; *level* that it has
zero in it and lies within ±{MARGIN:g} points of accuracy (an equivalence test);
*undecided* is the rest. Where a run of the comparison collapsed, a mean lies where no run is: then
there are the median difference, in how many seeds it is above zero, and the p-value of the
two-sided sign test, and ahead and behind mean p ≤ {comparing.LEVEL:g}. Nothing is corrected for the
number of comparisons.

A claim *holds* when all its checks say yes, or one where the claim says that one is enough, *in
part* when some do, and *does not hold* when none does and one says no; it is *undecided* when no
check says either. What was not run says nothing, and is counted.
"""

_NOTES_MAIN = """\
*Paper* is the printed number, the same beside both of our estimators and both weightings.
*Rejected* is the share of replies that were not finite and were left out, as happens once a model
diverges. The paper's `zero` arms ran without the clipping that its other arms had; here all arms
are clipped alike.
"""

_NOTES_DATA = """\
A row of Shakespeare is a sequence of 80 characters; the paper counts snippets, of which a long one
makes several. The totals that it prints for models are not all the sums of their layers.
"""

_NOTES_COLLAPSES = """\
`author's sums` keeps the five sums of raw weights that the author's code has, in float32, and the
arms of *float32* have matrix products in float32: where they collapse as often, rounding is not the
cause.
"""

"""The page of results, from the files of the experiments alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from taciturn import runs
from taciturn.paper import paths, published, tables
from taciturn.paper.claims import claims
from taciturn.paper.experiments import BY_COHORT, EMNIST, FIXED, SHAKESPEARE, VARIANTS
from taciturn.studies import page
from taciturn.studies.results import Results, read

_EXPERIMENTS = (EMNIST, *BY_COHORT.values(), *VARIANTS, FIXED)
_CAPTIONS = {
    "fixed-accuracy": "Figure 1. Accuracy under fixed thresholds.",
    "fixed-upload": "Figure 2. Clients that upload under fixed thresholds.",
    "accuracy": "Figure 3. Accuracy by round; shades go from the lowest seed to the highest.",
    "upload": "Figure 4. Cumulative upload.",
    "thresholds": "Figure 5. Thresholds by round.",
    "paths": "Figure 6. Weights of a 784-128-10 network on Fashion-MNIST under SGD, and their "
    "increments.",
}


def write(folder: Path, where: Path | None = None, seeds: int | None = None) -> Path:
    """Writes the page, `results.md` in the folder of the experiments unless `where` says else."""
    return page.write(
        lambda link: make(folder, link, seeds), folder, where or folder / "results.md"
    )


def make(folder: Path, link: Path, seeds: int | None = None) -> str:
    """The text of the page; `link` is the folder as seen from it."""
    results = {e.name: read(e, folder, seeds) for e in _EXPERIMENTS}
    described = runs.read_json(folder / "paths.json")
    measured = described["measured"]

    def table(name: str) -> str:
        recipe = tables.TABLES[name]
        made = recipe.make({e.name: results[e.name] for e in recipe.needs})
        return f"{made.title}\n\n{made.markdown()}"

    def picture(name: str) -> str:
        return f"![{_CAPTIONS[name]}]({(link / f'figure-{name}.png').as_posix()})\n"

    sections = [
        _HEAD,
        _made_with(results, described),
        "## Claims\n",
        _VERDICTS,
        page.table(
            ("claim", "verdict", "numbers"),
            [(c.text, f"**{c.verdict}**", f"{c.because}.") for c in claims(results, measured)],
        ),
        "## Main table\n",
        table("main"),
        _NOTES_MAIN,
        _accuracy_apart(results),
        _BLANK_NOTE,
        _all_silent(results),
        *(picture(name) for name in ("accuracy", "upload")),
        "## Thresholds\n",
        table("thresholds"),
        _thresholds_apart(results),
        picture("thresholds"),
        "## Number of clients\n",
        table("clients"),
        table("upload"),
        "## Fixed thresholds\n",
        *(picture(name) for name in ("fixed-accuracy", "fixed-upload")),
        "## Weights as an OU process\n",
        picture("paths"),
        _measured(measured),
        "## Settings\n",
        table("settings"),
        *(page.settings(e.title, {**e.options, **e.settings}) for e in (EMNIST, SHAKESPEARE)),
        page.settings("Fashion-MNIST", paths.SETTINGS),
    ]
    return "\n".join(sections)


def _made_with(results: Mapping[str, Results], described: Mapping[str, Any]) -> str:
    device, seconds = described["versions"]["device"], f"{described['seconds']:.0f}"
    in_all = sum(r.seconds for r in results.values()) + described["seconds"]
    main = sum(results[e.name].seconds for e in (EMNIST, SHAKESPEARE))
    versions = next(iter(results.values())).made_with
    stack = ", ".join(f"{name} {versions[name]}" for name in ("python", "jax", "numpy"))
    paths_row = ("Fashion-MNIST paths", 1, device, "float32", seconds)
    table = page.made_with(results.values(), [paths_row])
    return (
        f"{table}\nCompilation is included. The two experiments of the main table took "
        f"{main:.0f} s, everything {in_all:.0f} s ({stack}).\n"
    )


def _on_both(results: Mapping[str, Results], say: Callable[[Results], str]) -> str:
    """What is said of each data set of the main table."""
    both = (results[e.name] for e in (EMNIST, SHAKESPEARE))
    return " and ".join(f"{say(result)} on {result.experiment.title}" for result in both)


def _accuracy_apart(results: Mapping[str, Results]) -> str:
    def apart(result: Results) -> str:
        was = published.MAIN[result.experiment.name]["full"].accuracy
        return f"{was - result.arms['full'].at(tables.ROUNDS).mean():.1f} points"

    return (
        f"The printed accuracy of `full` is above ours by {_on_both(results, apart)}. The EMNIST "
        f"of the repository's results has an eighth of the writers; how many images and local "
        f"epochs the paper's runs had, it does not say.\n"
    )


def _all_silent(results: Mapping[str, Results]) -> str:
    def counted(result: Results) -> str:
        silent = result.arms["adaptive ignore"].spoke[:, : tables.ROUNDS] == 0
        return ", ".join(map(str, silent.sum(1)))

    return (
        f"Rounds of `adaptive ignore` in which nobody spoke, a number per seed: "
        f"{_on_both(results, counted)}. "
        f"When these arms were run, a round with nobody to average changed nothing, the threshold "
        f"included, so that a threshold above all norms stayed until other clients were drawn. "
        f"Since then rules learn from the norms of every round, as in the paper's algorithm.\n"
    )


def _thresholds_apart(results: Mapping[str, Results]) -> str:
    def ratio(result: Results) -> str:
        was = float(published.THRESHOLD[result.experiment.name]["adaptive zero"].split(" ")[0])
        ours = tables.thresholds_after_first(result, "adaptive zero").mean()
        return f"{was / ours:.1f} times ours"

    return (
        f"The printed thresholds are {_on_both(results, ratio)} (`zero`): the paper's clients "
        f"moved further in a round than with the settings that it and its code name.\n"
    )


def _measured(measured: Mapping[str, Any]) -> str:
    rows = [(name.replace("_", " "), f"{value:.4g}") for name, value in measured.items()]
    return page.table(("measured", "value"), rows)


_HEAD = """\
# The paper, reproduced

*Communication-Efficient Federated Learning via Optimal Client Sampling* (Ribero, Vikalo, 2020):
every table and figure, on real data, as mean ± standard deviation over seeds. The paper has one
run for each number.

```bash
taciturn paper all --out DIR             # everything; a stopped command goes on where it was
taciturn paper table main                # the main table alone
taciturn paper table main --quick        # minutes on a CPU, on data that need no download
```

This page is written by `taciturn paper` from the JSON files beside its figures; its numbers come
from there. The results in the repository are of a subset of EMNIST, 405 writers with 59,725
training images; the same command takes the whole set of 3,400 where it lies in `TACITURN_DATA`.
`ou` is the paper's estimator to the letter, `ou constrained` holds â in [0, 1], which is what an
Ornstein–Uhlenbeck process allows, and is Taciturn's default.
"""

_VERDICTS = """\
Differences are taken seed by seed (same clients, same batches); ± is half of the 95 % interval of
their mean, and nothing is corrected for the number of comparisons. *Ahead* and *behind* mean that
the interval leaves zero out. Unless it says otherwise, a claim holds when each of its comparisons
does, in part when some do, and not at all when none does: *level* is not ahead.
"""

_BLANK_NOTE = """\
A model that always answers with a blank, the most frequent character, reaches 18.56 % on
Shakespeare. Arms that end there have learned nothing more: they lie on a plateau that others leave
after 60 to 90 rounds (figure 3).
"""

_NOTES_MAIN = """\
GiB of uploaded float32 weights, uplink only; the paper prints "Gb". `random` speaks with the mean
rate, over seeds, of the adaptive arm with the same stand-in; where its model diverges, clients
whose update is not finite are rejected, and its share falls below that rate. The paper's `zero`
arms ran without the clipping that its other arms had; here all arms are clipped alike.
"""

"""The page of the frontier, from the files of the experiments alone."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.frontier import make, tables, words
from taciturn.frontier.experiments import ALONE, EXPERIMENTS, MAIN, experiment_of
from taciturn.frontier.front import FULL
from taciturn.frontier.policies import ENTRIES, GRID, RECOMMENDED
from taciturn.frontier.published import EDEN, FLUTE
from taciturn.studies import page
from taciturn.studies.difference import MARGIN
from taciturn.studies.results import Piece, Results, content, read
from taciturn.tasks import TASKS


def write(folder: Path, where: Path | None = None) -> list[Path]:
    """Writes the page, and tables and pictures of every experiment that the folder has.

    The page is `frontier.md` in the folder of the experiments unless `where` says else.
    """
    made = [path for result in _main(_there(folder)).values()
            for path in make.written(result, folder)]  # fmt: skip
    where = where or folder / "frontier.md"
    return [*made, page.write(lambda link: text(folder, link), folder, where)]


def _there(folder: Path) -> dict[str, Results]:
    """The experiments that were run, with every policy of the grid that their files have.

    Left out are those without full communication, with which all others are compared.
    """
    known = [name for name in EXPERIMENTS if (folder / f"{name}.json").exists()]
    own = sorted(path.stem for path in folder.glob("*.json") if path.stem in TASKS)
    found = {}
    for name in [*known, *(name for name in own if name not in known)]:
        file = content(folder / f"{name}.json")
        asked = {key: value for key, value in file["settings"].items() if key != "precision"}
        experiment = experiment_of(name, settings=None if name in EXPERIMENTS else asked)
        ran = {run["arm"]: run["policy"] for run in file["runs"]}
        found[name] = read(replace(experiment, arms={**GRID, **experiment.arms, **ran}), folder)
    return {name: result for name, result in found.items() if FULL in result.arms}


def _main(found: Mapping[str, Results]) -> dict[str, Results]:
    """Those with tables of their own: this project's, and then the user's."""
    alone = {experiment.name for experiment in ALONE}
    first = [experiment.name for experiment in MAIN if experiment.name in found]
    others = [name for name in found if name not in alone and name not in first]
    return {name: found[name] for name in [*first, *others]}


def text(folder: Path, link: Path) -> str:
    """The text of the page; `link` is the folder as seen from it."""
    found = _there(folder)
    main = _main(found)
    sections = [
        _HEAD,
        _recommendation(main),
        _missing(found),
        _READING,
        *(part for result in main.values() for part in _experiment(result, link)),
        _stand_ins(main.values()),
        "## Rivals\n",
        _rivals(),
        _eden(main),
        _seconds(found),
        _flute(found),
        "## Settings\n",
        *(
            page.settings(e.title, {**e.options, **e.settings})
            for e in (result.experiment for result in main.values())
        ),
    ]
    return "\n".join(section for section in sections if section)


def _recommendation(main: Mapping[str, Results]) -> str:
    chosen = _CHOSEN if any(name in EXPERIMENTS for name in main) else ""
    lines = [f"**Recommended: `{RECOMMENDED}`**: {_WHAT}{chosen}"]
    lines += [f"- {words.headline(result)}" for result in main.values()]
    lines += [f"- {half}"] if (half := words.half_of_it(main.values())) else []
    return "\n".join(lines) + "\n"


def _missing(found: Mapping[str, Results]) -> str:
    missing = [name for name in EXPERIMENTS if name not in found]
    if not missing or (found and len(missing) == len(EXPERIMENTS)):  # a folder of one's own
        return ""
    commands = ", ".join(f"`taciturn frontier {name}`" for name in missing)
    return f"Not run yet: {commands}.\n"


def _experiment(result: Results, link: Path) -> list[str]:
    title, name = result.experiment.title, result.experiment.name
    made = tables.frontier(result)
    return [
        f"## {title}\n",
        f"{words.data(result)}\n",
        f"{made.title}\n\n{made.markdown()}",
        f"![{title}: accuracy against bytes]({(link / f'figure-{name}.png').as_posix()})\n",
        "".join(f"- {statement}\n" for statement in words.findings(result)),
        _who_pays(result),
    ]


def _who_pays(result: Results) -> str:
    """The worst tenth, and who is silent; empty where the runs have no figures of clients."""
    made = tables.who_pays(result)
    return f"{made.title}\n\n{made.markdown()}" if made.rows else ""


def _stand_ins(main: Iterable[Results]) -> str:
    made = tables.stand_ins(main)
    return f"## Stand-ins\n\n{_STAND_INS}\n{made.markdown()}" if made.rows else ""


def _rivals() -> str:
    rows = [(e.name, f"`{e}`", e.reference, e.differs) for e in ENTRIES]
    return page.table(("name", "policy", "paper", "notes"), rows)


def _eden(main: Mapping[str, Results]) -> str:
    """EDEN's own figures beside ours."""
    rows: list[tuple[Any, ...]] = []
    for task, losses in EDEN.items():
        result = main.get(f"{task}-long")
        for bits, loss in losses.items():
            arms = {} if result is None else {a.policy: n for n, a in result.arms.items()}
            name = arms.get(f"full+eden:{bits:g}")
            if result is not None and name is not None:
                title = result.experiment.title
                rows.append((title, f"{bits:g}", f"{loss:+.1f}", str(result.gap(name, FULL))))
    columns = ("experiment", "bits", "EDEN's figure", "here")
    return f"{_EDEN}\n{page.table(columns, rows)}" if rows else ""


def _seconds(found: Mapping[str, Results]) -> str:
    """What each piece took; pieces of the same policies, a few seeds each, share a line."""
    alike: dict[tuple[str, ...], list[Piece]] = {}
    for result in found.values():
        for piece in result.pieces:
            key = (result.experiment.title, "; ".join(piece.arms), piece.device)
            alike.setdefault(key, []).append(piece)
    if not alike:
        return ""
    rows = [
        (title, policies, _ranges(pieces), ", ".join(f"{p.seconds:.0f}" for p in pieces), device)
        for (title, policies, device), pieces in alike.items()
    ]
    every: dict[str, list[float]] = {}
    for (_, _, device), pieces in alike.items():
        every.setdefault(device, []).extend(piece.seconds for piece in pieces)
    columns = ("experiment", "policies", "seeds", "seconds", "device")
    told = [f"on {device} the longest took {max(of):.0f} s, and all together {sum(of):,.0f} s"
            for device, of in every.items()]  # fmt: skip
    return (
        f"## Seconds\n\n{page.table(columns, rows)}\nA piece is what ran side by side, with "
        f"compilation: {'; '.join(told)}.\n"
    )


def _ranges(pieces: Iterable[Piece]) -> str:
    """The seeds of pieces: 0 to 4, 5 to 9."""
    ends = [(piece.seeds[0], piece.seeds[-1]) for piece in pieces]
    return ", ".join(f"{first} to {last}" if first != last else f"{first}" for first, last in ends)


def _flute(found: Mapping[str, Results]) -> str:
    rows: list[tuple[Any, ...]] = []
    for experiment in ALONE:
        result, theirs = found.get(experiment.name), FLUTE[experiment.task]
        if result is not None:
            rows.append(
                (
                    experiment.title,
                    f"{theirs.clients:,}",
                    f"{theirs.accuracy:g}",
                    theirs.flute,
                    theirs.fedml,
                    f"{result.data['clients']:,}",
                    f"{result.data['examples']:,}",
                    f"{np.mean(result.arms[FULL].at()):.1f}",
                    _clock(result.seconds),
                    result.pieces[-1].device,
                )
            )
    columns = ("set-up", "clients there", "accuracy there %", "FLUTE", "FedML", "clients here",
               "rows here", "accuracy here %", "here", "device")  # fmt: skip
    return f"{_FLUTE}\n{page.table(columns, rows)}" if rows else ""


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


_HEAD = """\
# The frontier

How little can be uploaded and still give the model of full communication? Accuracy against bytes,
for the recommended policy and its rivals, with the same clients, batches and seeds.

```bash
taciturn frontier emnist --out DIR       # one experiment; a stopped command goes on where it was
taciturn frontier list                   # experiments and policies
taciturn frontier page --out DIR         # this page, of what the folder has
taciturn frontier TASK --policies "adaptive+ou; full+eden:1"
```

This page is written by `taciturn frontier page` from the JSON files beside its pictures; its
numbers and what it says of them come from there.
"""

_WHAT = """\
a share of the float32 upload, counted over the whole run:
little in the first rounds and more in the last, with bits for each client in proportion to what its
update weighs ([policies.md](policies.md#a-budget) says what led to it, and what else was tried).
Small models need a larger share.
"""

_CHOSEN = """\
It was chosen on the seeds that are shown here, so that its figures are a little flattered.
"""

_READING = f"""\
Differences to full communication are taken seed by seed; ± is half of the 95 % interval of their
mean (Student's t), and of an accuracy or a share the standard deviation over seeds. *Ahead* and
*behind* mean that the interval lies on one side of zero; *level* that it has zero in it and lies
within ±{MARGIN:g} points; *undecided* is the rest. Upload is all bytes that clients send, headers
included, in % of what everyone's update in float32 takes. *To 90 %* is what was uploaded until the
mean over seeds had 90 % of the final accuracy of full communication; empty where it never did. ● is
on the Pareto front: nobody else has at least that accuracy for at most these bytes.

*Who pays*: the *worst tenth* is the accuracy of the tenth of clients that fares worst, empty where
numbers are predicted. *Small* and *large* clients are the thirds with the fewest and the most
examples, and *silent* is how often they did not speak when asked. Under a budget those who speak by
chance count 1/p, so that the silence of others does not bias the mean.

Seeds have the same clients and batches under every policy. Rounding still differs between pieces,
and training amplifies it ([performance.md](performance.md#the-noise-floor)): it is part of every ±.
"""

_STAND_INS = """\
What takes the place of silent clients, where silence is all that saves bytes: accuracy less that of
the other, in points. Under `optimal` a stand-in f is the forecast of the difference estimator, f +
Σ w(Δ − f)/p, and `zero` is plain optimal sampling.
"""

_EDEN = """\
EDEN's authors publish points lost against float32 on the same models, rounds, cohorts and batches,
with about one seed, read off their plots. All clients speak in both. Their server has Adam, ours
plain averaging, and EMNIST is a subset here: it is what is published, and no contest.
"""

_FLUTE = """\
The time of one run of full communication by itself, compilation and tests included, beside the
times in FLUTE's README, whose hardware is not stated. Cohort, batch, learning rate, epochs and
rounds are FLUTE's. Data are fewer here: a subset of the writers, and at most 128 sequences of each
role of Shakespeare, which shortens rounds too. Gradients are clipped here, and matrix products are
in bfloat16.
"""

"""The page of the frontier, from the files of the experiments alone."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.frontier import make, tables, words
from taciturn.frontier.experiments import ALONE, EXPERIMENTS, MAIN
from taciturn.frontier.front import FULL
from taciturn.frontier.policies import ENTRIES, RECOMMENDED
from taciturn.frontier.published import EDEN, FLUTE
from taciturn.studies import page
from taciturn.studies.difference import MARGIN
from taciturn.studies.results import Piece, Results, read


def write(folder: Path, where: Path | None = None) -> list[Path]:
    """Writes the page, and tables and pictures of every experiment that the folder has.

    The page is `frontier.md` in the folder of the experiments unless `where` says else.
    """
    there = _there(folder)
    main = [there[experiment.name] for experiment in MAIN if experiment.name in there]
    made = [path for result in main for path in make.written(result, folder)]
    where = where or folder / "frontier.md"
    return [*made, page.write(lambda link: text(folder, link), folder, where)]


def _there(folder: Path) -> dict[str, Results]:
    """The experiments that were run, and have full communication to be compared with."""
    files = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    found = {name: read(EXPERIMENTS[name], folder) for name, path in files.items() if path.exists()}
    return {name: result for name, result in found.items() if FULL in result.arms}


def text(folder: Path, link: Path) -> str:
    """The text of the page; `link` is the folder as seen from it."""
    found = _there(folder)
    main = {e.name: found[e.name] for e in MAIN if e.name in found}
    sections = [
        _HEAD,
        _recommendation(main),
        _missing(found),
        _READING,
        *(part for result in main.values() for part in _experiment(result, link)),
        "## Rivals\n",
        _rivals(),
        _eden(main),
        _seconds(found),
        _flute(found),
        "## Settings\n",
        *(page.settings(e.title, {**e.options, **e.settings}) for e in MAIN),
    ]
    return "\n".join(section for section in sections if section)


def _recommendation(main: Mapping[str, Results]) -> str:
    lines = [f"**Recommended: `{RECOMMENDED}`**.\n"]
    lines += [f"- {words.headline(result)}" for result in main.values()]
    return "\n".join(lines) + "\n"


def _missing(found: Mapping[str, Results]) -> str:
    missing = [name for name in EXPERIMENTS if name not in found]
    if not missing:
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


def _rivals() -> str:
    rows = [(e.name, f"`{e}`", e.reference, e.differs) for e in ENTRIES]
    return page.table(("name", "policy", "paper", "differs from the paper's form"), rows)


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
    every = [piece.seconds for pieces in alike.values() for piece in pieces]
    columns = ("experiment", "policies", "seeds", "seconds", "device")
    return (
        f"## Seconds\n\n{page.table(columns, rows)}\nA piece is what ran side by side; compilation "
        f"is included. The longest took {max(every):.0f} s, all together {sum(every):,.0f} s.\n"
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
                    f"{np.mean(result.arms[FULL].at()):.1f}",
                    _clock(result.seconds),
                    result.pieces[-1].device,
                )
            )
    columns = ("set-up", "clients there", "accuracy there %", "FLUTE", "FedML", "clients here",
               "accuracy here %", "here", "device")  # fmt: skip
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

_READING = f"""\
Differences to full communication are taken seed by seed; ± is half of the 95 % interval of their
mean (Student's t), and of an accuracy or a share the standard deviation over seeds. *Ahead* and
*behind* mean that the interval lies on one side of zero; *level* that it has zero in it and lies
within ±{MARGIN:g} points; *undecided* is the rest. Upload is all bytes that clients send, headers
included, in % of what everyone's update in float32 takes. *To 90 %* is what was uploaded until the
mean over seeds had 90 % of the final accuracy of full communication; empty where it never had. ● is
on the Pareto front: nobody else has at least that accuracy for at most these bytes.
"""

_EDEN = """\
EDEN's authors publish points lost against float32 on the same models, rounds, cohorts and batches,
with Adam on the server and about one seed, read off their plots; all clients speak in both.
"""

_FLUTE = """\
The time of one run of full communication by itself, compilation and tests included, beside FLUTE's
published times for the same set-up (README of FLUTE; its hardware is not stated).
"""

"""The paper's tables: its number, and ours as mean ± standard deviation over seeds."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import runs
from taciturn.paper import printed
from taciturn.paper.experiments import (
    ARMS,
    BY_COHORT,
    EMNIST,
    SHAKESPEARE,
    STAND_INS,
    VARIANTS,
)
from taciturn.paper.pieces import Recipe, Results

ROUNDS = 100  # of the main table


class Over(NamedTuple):
    """A figure over seeds."""

    values: np.ndarray
    digits: int = 2

    def __str__(self) -> str:
        text = f"{np.mean(self.values):.{self.digits}f}"
        if len(self.values) > 1:
            text += f" ± {np.std(self.values, ddof=1):.{self.digits}f}"
        return text


class Table(NamedTuple):
    """A table for people and for programs."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[_text(cell) for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def write(self, folder: Path, name: str) -> list[Path]:
        """CSV with a column for every deviation, and Markdown."""
        paths = [folder / f"{name}.csv", folder / f"{name}.md"]
        folder.mkdir(parents=True, exist_ok=True)
        spread = [
            any(isinstance(row[i], Over) for row in self.rows) for i in range(len(self.columns))
        ]
        with runs.replacing(paths[0]) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_flat(spread, self.columns, [f"{c}, deviation" for c in self.columns]))
            for row in self.rows:
                means = [_mean(cell) for cell in row]
                writer.writerow(_flat(spread, means, [_deviation(cell) for cell in row]))
        with runs.replacing(paths[1]) as file:
            file.write(f"{self.title}\n\n{self.markdown()}")
        return paths


def _flat(spread: Sequence[bool], cells: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    return [
        cell
        for wide, first, second in zip(spread, cells, more, strict=True)
        for cell in ((first, second) if wide else (first,))
    ]


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _mean(cell: Any) -> Any:
    return f"{np.mean(cell.values):.6g}" if isinstance(cell, Over) else _text(cell)


def _deviation(cell: Any) -> str:
    several = isinstance(cell, Over) and len(cell.values) > 1
    return f"{np.std(cell.values, ddof=1):.6g}" if several else ""


def main(results: Mapping[str, Results]) -> Table:
    """Accuracy, upload and its share of full communication."""
    columns = ["method"]
    for result in results.values():
        title = result.experiment.title
        columns += [
            f"{title} accuracy %",
            "paper",
            f"{title} GiB",
            "paper",
            f"{title} share %",
            "paper",
        ]
    rows = []
    for arm in ARMS:
        row: list[Any] = [arm]
        for name, result in results.items():
            was = printed.MAIN.get(name, {}).get(_printed_as(arm))
            row += [Over(result.arms[arm].at(ROUNDS)), was and was.accuracy]
            row += [Over(result.gib(arm, ROUNDS), _gib_digits(result)), was and was.gib]
            row += [Over(result.share(arm, ROUNDS), 1), was and was.share]
        rows.append(tuple(row))
    first = next(iter(results.values()))
    title = f"Accuracy and upload after {min(ROUNDS, first.rounds)} rounds, N = {first.cohort}."
    return Table(title, tuple(columns), rows)


def _gib_digits(result: Results) -> int:
    return 2 if result.gib("full", ROUNDS).mean() > 0.1 else 4


def _printed_as(arm: str) -> str:
    """The paper's arm that an arm is compared with: it has one `ou`, here there are two."""
    return arm.removesuffix(" constrained")


def clients(results: Mapping[str, Results]) -> Table:
    """Shakespeare's accuracy by N."""
    return _by_cohort(
        results,
        "Shakespeare: accuracy in % after {} rounds, by N.",
        list(ARMS),
        lambda result, arm: Over(result.arms[arm].accuracy[:, -1]),
        printed.ACCURACY_BY_COHORT,
    )


def upload(results: Mapping[str, Results]) -> Table:
    """Shakespeare's upload by N."""
    return _by_cohort(
        results,
        "Shakespeare: upload in % of full communication over {} rounds, by N.",
        [arm for arm in ARMS if arm.startswith("adaptive")],
        lambda result, arm: Over(result.share(arm)),
        printed.SHARE_BY_COHORT,
    )


def _by_cohort(
    results: Mapping[str, Results],
    title: str,
    arms: list[str],
    value: Callable[[Results, str], Over],
    was: Mapping[str, Mapping[int, float]],
) -> Table:
    found = list(results.values())
    columns = ("method", *(text for r in found for text in (f"N = {r.cohort}", "paper")))
    rows = [
        (
            arm,
            *(
                cell
                for result in found
                for cell in (value(result, arm), was.get(_printed_as(arm), {}).get(result.cohort))
            ),
        )
        for arm in arms
    ]
    return Table(title.format(found[0].rounds), columns, rows)


def thresholds(results: Mapping[str, Results]) -> Table:
    """Mean threshold over rounds, and its deviation over rounds."""
    columns = ["stand-in"]
    for result in results.values():
        title = result.experiment.title
        columns += [f"{title} mean", f"{title} deviation over rounds", "paper"]
    rows = []
    for name in STAND_INS:
        row: list[Any] = [name]
        for key, result in results.items():
            arm = f"adaptive {name}"
            path = thresholds_after_first(result, arm)
            was = printed.THRESHOLD.get(key, {}).get(_printed_as(arm))
            row += [Over(path.mean(1), 3), Over(path.std(1), 3), was]
        rows.append(tuple(row))
    last = min(ROUNDS, *(result.rounds for result in results.values()))
    return Table(f"Thresholds of rounds 2 to {last}.", tuple(columns), rows)


def thresholds_after_first(result: Results, arm: str) -> np.ndarray:
    """The thresholds that were learned: in the first round everyone speaks. (seeds, rounds − 1)."""
    return result.arms[arm].threshold[:, 1:ROUNDS]


def settings(results: Mapping[str, Results]) -> Table:
    """What fits Shakespeare's printed numbers best."""
    columns = ("setting", "full accuracy %", "adaptive ou accuracy %", "adaptive ou share %")
    rows: list[tuple[Any, ...]] = [("printed", *_fitted(printed.MAIN["shakespeare"]))]
    for name, result in results.items():
        title = (
            "taken: B = 4, weights by tokens, 128 sequences"
            if name == SHAKESPEARE.name
            else result.experiment.title.partition(", ")[2]
        )
        rows.append(
            (
                title,
                Over(result.arms["full"].at(ROUNDS)),
                Over(result.arms["adaptive ou"].at(ROUNDS)),
                Over(result.share("adaptive ou", ROUNDS), 1),
            )
        )
    return Table("Shakespeare: settings that the paper leaves open, 100 rounds.", columns, rows)


def _fitted(rows: Mapping[str, printed.Row]) -> tuple[float, float, float]:
    return rows["full"].accuracy, rows["adaptive ou"].accuracy, rows["adaptive ou"].share


TABLES = {
    "main": Recipe(main, (EMNIST, SHAKESPEARE)),
    "clients": Recipe(clients, tuple(BY_COHORT.values())),
    "upload": Recipe(upload, tuple(BY_COHORT.values())),
    "thresholds": Recipe(thresholds, (EMNIST, SHAKESPEARE)),
    "settings": Recipe(settings, (SHAKESPEARE, *VARIANTS)),
}

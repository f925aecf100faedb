"""A table for people and for programs, with figures over seeds as mean ± standard deviation."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import files
from taciturn.studies.results import Results

NOT_RUN = "not run"


class Spread(NamedTuple):
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

    def text(self) -> str:
        """For a terminal: columns below each other, without Markdown's signs."""
        lines = [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]
        lines = [[cell.replace("**", "") for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [
            [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines
        ]
        return "\n".join("  ".join(line).rstrip() for line in padded) + "\n"

    def write(self, folder: Path, name: str) -> list[Path]:
        """CSV with a column for every deviation, and Markdown."""
        paths = [folder / f"{name}.csv", folder / f"{name}.md"]
        folder.mkdir(parents=True, exist_ok=True)
        spread = [
            any(isinstance(row[i], Spread) for row in self.rows) for i in range(len(self.columns))
        ]
        with files.replacing(paths[0]) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_flat(spread, self.columns, [f"{c}, deviation" for c in self.columns]))
            for row in self.rows:
                means = [_mean(cell) for cell in row]
                writer.writerow(_flat(spread, means, [_deviation(cell) for cell in row]))
        with files.replacing(paths[1]) as file:
            file.write(f"{self.title}\n\n{self.markdown()}")
        return paths


def cell(result: Results | None, arm: str, value: Callable[[Results, str], Any]) -> Any:
    """A figure of an arm, or that it was not run."""
    return NOT_RUN if result is None or arm not in result.arms else value(result, arm)


def _flat(spread: Sequence[bool], cells: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    return [
        cell
        for wide, first, second in zip(spread, cells, more, strict=True)
        for cell in ((first, second) if wide else (first,))
    ]


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _mean(cell: Any) -> Any:
    return f"{np.mean(cell.values):.6g}" if isinstance(cell, Spread) else _text(cell)


def _deviation(cell: Any) -> str:
    several = isinstance(cell, Spread) and len(cell.values) > 1
    return f"{np.std(cell.values, ddof=1):.6g}" if several else ""

"""A table for people and for programs, with figures over seeds as mean ± standard deviation."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import files


class Spread(NamedTuple):
    """A figure over seeds."""

    values: np.ndarray
    digits: int = 2

    def text(self, form: str) -> tuple[str, str]:
        """The mean, and the sample's standard deviation; a single seed has none."""
        mean = f"{np.mean(self.values):{form}}"
        return mean, f"{np.std(self.values, ddof=1):{form}}" if len(self.values) > 1 else ""

    def __str__(self) -> str:
        return " ± ".join(filter(None, self.text(f".{self.digits}f")))


class Table(NamedTuple):
    """A table; cells are texts, numbers, `Spread`s, or None where they are empty."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    @property
    def lines(self) -> list[list[str]]:
        """The cells as texts, those of the head first."""
        return [[_text(cell) for cell in row] for row in (self.columns, *self.rows)]

    def text(self) -> str:
        """For a terminal: aligned columns, without Markdown's signs."""
        lines = [[cell.replace("**", "") for cell in line] for line in self.lines]
        first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [[line[0].ljust(first), *map(str.rjust, line[1:], others)] for line in lines]
        return "\n".join("  ".join(line).rstrip() for line in padded) + "\n"

    def write(self, path: Path) -> Path:
        """Writes it as CSV, with a column of its own for every deviation."""
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = []
        for head, *cells in zip(self.columns, *self.rows, strict=True):
            pairs = [one.text(".6g") if isinstance(one, Spread) else (_text(one), "")
                     for one in cells]  # fmt: skip
            columns.append([head, *(mean for mean, _ in pairs)])
            if any(isinstance(cell, Spread) for cell in cells):
                columns.append([f"{head}, deviation", *(deviation for _, deviation in pairs)])
        with files.atomic_write(path) as file:
            csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))
        return path


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)

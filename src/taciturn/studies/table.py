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

    def __str__(self) -> str:
        text = f"{np.mean(self.values):.{self.digits}f}"
        if len(self.values) > 1:
            text += f" ± {np.std(self.values, ddof=1):.{self.digits}f}"
        return text


class Table(NamedTuple):
    """A table; cells are texts, numbers, `Spread`s, or None where they are empty."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[_text(cell) for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def text(self) -> str:
        """For a terminal: aligned columns, without Markdown's signs."""
        lines = [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]
        lines = [[cell.replace("**", "") for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [
            [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines
        ]
        return "\n".join("  ".join(line).rstrip() for line in padded) + "\n"

    def write(self, folder: Path, name: str) -> list[Path]:
        """Writes it as Markdown, and as CSV with a column of its own for every deviation."""
        wide = [
            any(isinstance(cell, Spread) for cell in own) for own in zip(*self.rows, strict=True)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.csv", folder / f"{name}.md"]
        with files.atomic_write(paths[0]) as file:
            writer = csv.writer(file, lineterminator="\n")
            for row in (self.columns, *self.rows):
                cells: list[str] = []
                for cell, both in zip(row, wide, strict=True):
                    cells += _pair(cell, row is self.columns)[: 1 + both]
                writer.writerow(cells)
        with files.atomic_write(paths[1]) as file:
            file.write(f"{self.title}\n\n{self.markdown()}")
        return paths


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _pair(cell: Any, head: bool) -> tuple[str, str]:
    """A cell of a CSV file, and the one beside it for its deviation."""
    if head:
        return cell, f"{cell}, deviation"
    if not isinstance(cell, Spread):
        return _text(cell), ""
    several = len(cell.values) > 1
    deviation = f"{np.std(cell.values, ddof=1):.6g}" if several else ""
    return f"{np.mean(cell.values):.6g}", deviation

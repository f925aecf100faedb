"""What pages share: tables of settings, of what results were made with, and of text."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from taciturn import files
from taciturn.studies.experiment import Setting
from taciturn.studies.results import Results
from taciturn.studies.table import Table


def write(make: Callable[[Path], str], folder: Path, where: Path) -> Path:
    """Writes the page `make(link)`; `link` is the folder of the results as seen from the page."""
    text = make(Path(os.path.relpath(folder, where.parent)))
    where.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(where) as file:
        file.write(text)
    return where


def table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    return Table("", columns, rows).markdown()


def settings(title: str, settings: Mapping[str, Setting]) -> str:
    """A section with every setting and why it is that one."""
    rows = [(name, *setting) for name, setting in settings.items()]
    return f"### {title}\n\n" + table(("setting", "value", "why"), rows)


def made_with(results: Iterable[Results], others: Iterable[tuple[Any, ...]] = ()) -> str:
    """A table of devices and seconds, a line for each experiment."""
    rows: list[tuple[Any, ...]] = []
    for result in results:
        made, count = result.made_with, sum(len(arm.accuracy) for arm in result.arms.values())
        title, seconds = result.experiment.title, f"{result.seconds:.0f}"
        rows.append((title, count, made["device"], made["precision"], seconds))
    return table(("experiment", "runs", "device", "precision", "seconds"), [*rows, *others])

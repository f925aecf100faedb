"""What pages share: where they are written, and tables of settings and of text."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from taciturn import files
from taciturn.studies.experiment import Setting
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

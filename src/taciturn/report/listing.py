"""`taciturn runs`: what is on disk, and how far it is."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from taciturn import runs
from taciturn.errors import RunError
from taciturn.report import series
from taciturn.report.terminal import folded
from taciturn.report.units import percent, score_text
from taciturn.settings import TOGETHER

_FILES = ("config.toml", "state.json")  # of a simulation, and of a federation
_POLICIES = 16  # what policies have at the least of the width
_DEEP = 3  # folders below each other: those of sweeps lie in theirs

Row = dict[str, str]  # cells by heading


def show(folder: Path) -> None:
    """Prints the runs in a folder and below, the oldest first, with a line for every policy."""
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: `taciturn run` makes runs/.")
    rows = [row for path in sorted(_runs(folder, _DEEP), key=_began) for row in _rows(path)]
    console = Console()
    if not rows:
        console.print(f"There are no runs in {folder}.", highlight=False)
        return
    widths = {heading: 2 + max(len(heading), *(len(row[heading]) for row in rows))
              for heading in rows[0]}  # fmt: skip
    # Policies are the longest, and can be read in several lines; the report has the share.
    others = sum(widths.values()) - widths["policy"]
    if others + _POLICIES > console.width:
        others -= widths.pop("of full")
    room = max(_POLICIES, console.width - others)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in widths:
        is_number = heading in ("accuracy", "of full")
        table.add_column(heading, overflow="fold", no_wrap=is_number or heading == "state",
                         max_width=room if heading == "policy" else None,
                         justify="right" if is_number else "left")  # fmt: skip
    for row in rows:
        row["policy"] = folded(row["policy"], room)
        table.add_row(*(Text(row[heading]) for heading in widths))
    console.print(table, highlight=False)


def _rows(folder: Path) -> list[Row]:
    """A row for every policy of a run; what stands in the row above is left out."""
    config = _read(series.config, folder)
    summary = _read(series.summary, folder)
    state = _read(runs.read_json, folder / "state.json")  # of a federation
    task = summary.get("task") or config.get("task") or ("flower" if state else "")
    arms: Mapping[str, Any] = summary.get("arms", {})
    if not arms:
        policies = config.get("arms") or state.get("policy") or ""
        swept = [name for name, value in config.items()
                 if isinstance(value, list) and name not in TOGETHER]  # fmt: skip
        arms = {f"{policies} over {', '.join(swept)}" if swept else policies: summary}
    first = {"run": str(folder), "task": str(task), "state": _state(folder, summary, state)}
    rows = [dict.fromkeys(first, "") | {
        "policy": policy,
        "accuracy": score_text(figures) if "accuracy_mean" in figures else "",
        "of full": percent(figures.get("upload_share"), ".3g"),
    } for policy, figures in arms.items()]  # fmt: skip
    return [rows[0] | first, *rows[1:]]


def _state(folder: Path, summary: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    if summary:
        return "complete"
    if runs.is_claimed(folder):
        return "running"
    if state:
        return f"after round {state.get('round')}"
    names = (re.fullmatch(r"checkpoint-(\d+)\.safetensors", p.name) for p in folder.iterdir())
    return f"stopped at {max((int(name[1]) for name in names if name), default=0)}"


def _began(folder: Path) -> float:
    """When a run began: its configuration is written once; a report changes the folder."""
    return min(path.stat().st_mtime for name in _FILES if (path := folder / name).exists())


def _runs(folder: Path, deep: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in _FILES):
        yield folder
    if deep:
        for below in folder.iterdir():
            if below.is_dir() and not below.is_symlink():
                yield from _runs(below, deep - 1)


def _read(read: Callable[[Path], Any], path: Path) -> dict[str, Any]:
    """What a file has; nothing where it is missing or damaged."""
    with suppress(RunError):
        found = read(path)
        return found if isinstance(found, dict) else {}
    return {}

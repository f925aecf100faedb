"""`taciturn runs`: what is on disk, and how far it is."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from taciturn import runs
from taciturn.errors import RunError
from taciturn.report.terminal import folded
from taciturn.settings import TOGETHER

_FILES = ("config.toml", "state.json")  # of a simulation, and of a federation
_POLICIES = 16  # what policies have at the least of the width
_DEEP = 3  # folders below each other: those of sweeps lie in theirs


def show(folder: Path) -> None:
    """Prints a line for every run in a folder and below, the oldest first."""
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: `taciturn run` makes runs/.")
    found = sorted(_runs(folder, _DEEP), key=_began)
    console, headings = Console(), ("run", "task", "policies", "state", "accuracy")
    rows = [(str(path), *described(path)) for path in found]
    widths = {column[0]: 2 + max(map(len, column)) for column in zip(headings, *rows, strict=True)}
    # Policies are the longest, and can be read in several lines.
    room = max(_POLICIES, console.width - sum(widths.values()) + widths["policies"])
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("state", "accuracy"),
                         max_width=room if heading == "policies" else None)  # fmt: skip
    for run, task, policies, *others in rows:
        table.add_row(run, task, Text(folded(policies, room)), *others)
    console.print(table if found else f"There are no runs in {folder}.", highlight=False)


def described(folder: Path) -> tuple[str, str, str, str]:
    """Task, policies, state and accuracy of a run; empty is what cannot be known."""
    config = _toml(folder / "config.toml")
    summary = _json(folder / "summary.json")
    state = _json(folder / "state.json")  # of a federation
    task = summary.get("task") or config.get("task") or ("flower" if state else "")
    policies = config.get("arms") or state.get("policy") or ""
    accuracy = summary.get("accuracy_mean")
    swept = [
        name for name, value in config.items() if isinstance(value, list) and name not in TOGETHER
    ]
    if swept:
        policies += f" over {', '.join(swept)}"
    shown = "" if accuracy is None else f"{accuracy:.2f} %"
    return f"{task}", policies, _state(folder, summary, state), shown


def _state(folder: Path, summary: dict[str, Any], state: dict[str, Any]) -> str:
    if summary:
        return "complete"
    if runs.is_claimed(folder):
        return "running"
    if state:
        return f"after round {state.get('round')}"
    numbers = [
        int(match[1])
        for path in folder.iterdir()
        if (match := re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name))
    ]
    return f"stopped at {max(numbers, default=0)}"


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


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = runs.read_json(path)
    except RunError:
        return {}
    return found if isinstance(found, dict) else {}

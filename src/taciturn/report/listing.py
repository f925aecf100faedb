"""`taciturn runs`: what is on disk, and how far it is."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from taciturn import runs
from taciturn.errors import RunError
from taciturn.report.terminal import folded, score_text
from taciturn.report.units import percent
from taciturn.settings import TOGETHER

_FILES = ("config.toml", "state.json")  # of a simulation, and of a federation
_POLICIES = 16  # what policies have at the least of the width
_NUMBERS = ("accuracy", "of full")
_DEEP = 3  # folders below each other: those of sweeps lie in theirs


def show(folder: Path) -> None:
    """Prints the runs in a folder and below, the oldest first, with a line for every policy."""
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: `taciturn run` makes runs/.")
    found = sorted(_runs(folder, _DEEP), key=_began)
    console, headings = Console(), ("run", "task", "state", "policy", "accuracy", "of full")
    rows = [row for path in found for row in described(path)]
    widths = {column[0]: 2 + max(map(len, column)) for column in zip(headings, *rows, strict=True)}
    # Policies are the longest, and can be read in several lines; the report has the share.
    others = sum(widths.values()) - widths.pop("policy")
    if others + _POLICIES > console.width:
        others -= widths.pop("of full")
    room = max(_POLICIES, console.width - others)
    table = Table(box=None, header_style="bold", pad_edge=False)
    shown = [heading for heading in headings if heading in (*widths, "policy")]
    for heading in shown:
        table.add_column(heading, overflow="fold", no_wrap=heading not in ("run", "task", "policy"),
                         max_width=room if heading == "policy" else None,
                         justify="right" if heading in _NUMBERS else "left")  # fmt: skip
    for row in rows:
        cells = dict(zip(headings, row, strict=True))
        cells["policy"] = folded(cells["policy"], room)
        table.add_row(*(Text(cells[heading]) for heading in shown))
    console.print(table if found else f"There are no runs in {folder}.", highlight=False)


def described(folder: Path) -> list[tuple[str, ...]]:
    """Lines of a run: folder, task, state, policy, accuracy and share of full upload.

    Empty is what cannot be known, and what stands in the line before.
    """
    config = _toml(folder / "config.toml")
    summary = _json(folder / "summary.json")
    state = _json(folder / "state.json")  # of a federation
    task = summary.get("task") or config.get("task") or ("flower" if state else "")
    head = (str(folder), f"{task}", _state(folder, summary, state))
    lines = [(name, *_figures(one)) for name, one in summary.get("arms", {}).items()]
    if not lines:
        policies = config.get("arms") or state.get("policy") or ""
        swept = [name for name, value in config.items()
                 if isinstance(value, list) and name not in TOGETHER]  # fmt: skip
        over = f" over {', '.join(swept)}" if swept else ""
        lines = [(f"{policies}{over}", *_figures(summary))]
    return [((*head, *line) if i == 0 else ("", "", "", *line)) for i, line in enumerate(lines)]


def _figures(summary: Mapping[str, Any]) -> tuple[str, str]:
    """How good the models of a policy are, and the share of full upload."""
    if "accuracy_mean" not in summary:
        return "", ""
    return score_text(summary), percent(summary.get("upload_share"), ".3g")


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

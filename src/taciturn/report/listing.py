"""`taciturn runs`: what is on disk, and how far it is."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from taciturn import runs
from taciturn.errors import RunError
from taciturn.files import is_locked
from taciturn.report import series
from taciturn.report.terminal import fitting
from taciturn.report.units import percent, score_text
from taciturn.settings import TOGETHER

_FILES = ("config.toml", "state.json")  # of a simulation, and of a federation
_WIDE = 1000  # characters, which no table needs
_NO_SETTINGS = ("task", "arms", "devices")
_DEEP = 3  # folders below each other: those of sweeps lie in theirs


def show(folder: Path) -> None:
    """Prints the runs in a folder and below, the oldest first, with a line for every arm, and the
    settings in which runs of a task differ."""
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: `taciturn run` makes runs/.")
    paths = sorted(_runs(folder, _DEEP), key=_began)
    configs = {path: _read(series.config, path) for path in paths}
    differ = _differences(list(configs.values()))
    rows = [row for (path, config), told in zip(configs.items(), differ, strict=True)
            for row in _rows(path, config, told)]  # fmt: skip
    console = Console()
    if not rows:
        console.print(f"There are no runs in {folder}.", highlight=False)
        return
    columns = {heading: [row[heading] for row in rows] for heading in rows[0]}
    if not any(differ):
        del columns["settings"]
    folds = [heading for heading in ("settings", "arm") if heading in columns]
    table = fitting(columns, console.width, folds, ["of full"])
    # On a narrow screen lines are broken, and nothing is cut.
    Console(width=max(console.width, _WIDE)).print(table, highlight=False)


def _differences(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each run, the settings that other runs of its task have otherwise."""
    known: dict[Any, set[str]] = defaultdict(set)
    names = {name for config in configs for name in config}
    for config in configs:
        for name in names:
            known[config.get("task"), name].add(str(config.get(name)))
    return [
        ", ".join(f"{name}={value}".replace(", ", " ") for name, value in config.items()
                  if name not in _NO_SETTINGS and len(known[config.get("task"), name]) > 1)
        for config in configs
    ]  # fmt: skip


def _rows(folder: Path, config: Mapping[str, Any], differs: str) -> list[dict[str, str]]:
    """Cells by heading, a row for every arm of a run; what stands in the row above is left out."""
    summary = _read(series.summary, folder)
    state = _read(runs.read_json, folder / "state.json")  # of a federation
    arms: Mapping[str, Any] = summary.get("arms", {})
    if not arms:
        policies = config.get("arms") or state.get("policy") or ""
        swept = [name for name, value in config.items()
                 if isinstance(value, list) and name not in TOGETHER]  # fmt: skip
        arms = {f"{policies} over {', '.join(swept)}" if swept else policies: summary}
    task = summary.get("task") or config.get("task") or state.get("task", "")
    about = {"run": str(folder), "task": str(task)}
    about |= {"state": _state(folder, summary, state), "settings": differs}
    rows = []
    for policy, figures in arms.items():
        score = score_text(figures) if "accuracy_mean" in figures else ""
        share = percent(figures.get("upload_share"), ".3g")
        rows.append(about | {"arm": policy, "accuracy": score, "of full": share})
        about = dict.fromkeys(about, "")
    return rows


def _state(folder: Path, summary: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    if summary:
        return "complete"
    if is_locked(folder / runs.LOCK):
        return "running"
    if state:
        return f"after round {state.get('round')}"
    saved = (path.stem.partition("-")[2] for path in folder.glob("checkpoint-*.safetensors"))
    return f"stopped at {max(map(int, filter(str.isdecimal, saved)), default=0)}"


def _began(folder: Path) -> float:
    """When a run began: its configuration is written once; a report changes the folder."""
    return min(path.stat().st_mtime for name in _FILES if (path := folder / name).exists())


def _runs(folder: Path, deep: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in _FILES):
        yield folder
    for below in folder.iterdir() if deep else ():
        if below.is_dir() and not below.is_symlink():
            yield from _runs(below, deep - 1)


def _read(read: Callable[[Path], Any], path: Path) -> dict[str, Any]:
    """What a file has; nothing where it is missing or damaged."""
    with suppress(RunError):
        if isinstance(found := read(path), dict):
            return found
    return {}

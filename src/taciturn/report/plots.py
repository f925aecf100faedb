"""Pictures in files: the first figures of run folders' page, and what other pictures share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taciturn import files
from taciturn.errors import require
from taciturn.report import figures
from taciturn.report.colours import styles
from taciturn.report.series import Series

_STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def draw(arms: Mapping[str, Series], path: Path, title: str = "") -> Path:
    """Writes a PNG of four figures: accuracy or loss by upload and by round, and who spoke when."""
    figure = require("matplotlib.figure", "report").Figure(figsize=(11, 8), layout="constrained")
    figure.suptitle(title)
    every = list(arms.values())
    looks = styles([s.arm for s in every])
    handles: dict[str, Any] = {}
    shown = figures.planned(every)[:4]
    for axes, (panel, lines) in zip(figure.subplots(2, 2).flat, shown, strict=False):
        for name, s, (colour, dash), own in zip(arms, every, looks, lines, strict=True):
            for line in own:
                (curve,) = axes.plot(
                    line.x, line.y.mean(0), _STYLES[line.dash or dash], color=colour,
                    lw=figures.width(s, line), marker="o" * (len(line.x) == 1),
                )  # fmt: skip
                handles.setdefault(name, curve)
                if len(line.y) > 1 and not line.dash:
                    low, high = line.y.min(0), line.y.max(0)
                    axes.fill_between(line.x, low, high, color=colour, alpha=0.12, lw=0)
        axes.set_title(f"{panel.title}\n{panel.note}", fontsize=10, loc="left")
        axes.set_xlabel(panel.x)
        axes.yaxis.set_major_formatter(f"{{x:g}}{panel.y_axis.get('ticksuffix', '')}")
        if "type" in panel.x_axis:
            log_ticks(axes, panel.x_axis["tickvals"], panel.x_axis["ticktext"])
        else:
            axes.locator_params(axis="x", integer=True)
        if "rangemode" in panel.y_axis:
            axes.set_ylim(0)
        axes.grid(alpha=0.25)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False)
    return save(figure, path, dpi=110)


def log_ticks(axes: Any, ticks: Sequence[float], texts: Sequence[str]) -> None:
    """Makes the x-axis logarithmic, with these ticks alone."""
    axes.set_xscale("log")
    axes.set_xticks(ticks, texts)
    axes.set_xticks([], minor=True)


def write(figure: Any, folder: Path, name: str) -> list[Path]:
    """Writes a figure as PNG and as SVG; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [save(figure, folder / f"{name}.{kind}", dpi=130) for kind in ("png", "svg")]


def save(figure: Any, path: Path, dpi: int) -> Path:
    """Writes a PNG, or what ends in .svg, without the time at which it was made."""
    kind, when = ("svg", "Date") if path.suffix == ".svg" else ("png", "Software")
    settings = require("matplotlib", "report").rc_context({"svg.hashsalt": path.stem})
    with files.atomic_write(path, "wb") as file, settings:
        figure.savefig(file, dpi=dpi, format=kind, metadata={when: None})
    return path

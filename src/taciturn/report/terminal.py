"""Progress while a simulation runs, and the table at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from taciturn.progress import Compiling
from taciturn.progress import Progress as Done
from taciturn.settings import Settings


class Live:
    """Shows how far every arm is: rounds, accuracy, share that spoke, bytes uploaded.

    It writes to stderr, so that stdout stays free for results.
    """

    def __init__(self, arms: list[str], settings: Settings) -> None:
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        seeds = settings.all_seeds
        self._tasks = {
            arm: self._bars.add_task(
                arm, total=settings.rounds * len(seeds), figures="waiting", start=False
            )
            for arm in arms
        }
        self._seeds = {seed: i for i, seed in enumerate(seeds)}
        self._rounds = settings.rounds

    def __enter__(self) -> Live:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, done: Done | Compiling) -> None:
        if isinstance(done, Compiling):
            for bar in self._tasks.values():
                self._bars.update(bar, figures="compiling")
            return
        bar = self._tasks[done.arm]
        self._bars.start_task(bar)
        before = self._seeds[done.seeds[0]] * self._rounds  # of seeds that ran before these
        rounds = before + done.round * len(done.seeds)
        accuracy = "" if math.isnan(done.accuracy) else f"accuracy {100 * done.accuracy:5.1f} %  "
        share = 100 * done.spoke / done.asked
        figures = f"{accuracy}spoke {share:3.0f} %  up {byte_text(done.bytes_up)}"
        self._bars.update(bar, completed=rounds, figures=figures)


def print_table(
    arms: Mapping[str, Mapping[str, Any]], title: str = "", tested_on: str = ""
) -> None:
    """The figures of every arm, a line each, as `summary.json` has them."""
    first, *_ = arms.values()
    compared = any("difference" in figures for figures in arms.values())
    differ = len({figures["rounds"] for figures in arms.values()}) > 1
    table = Table(box=None, header_style="bold", pad_edge=False, title=title or None,
                  title_justify="left")  # fmt: skip
    table.add_column("policy", overflow="fold")
    figures_of: dict[str, Callable[[Mapping[str, Any]], str]] = {
        **({"rounds": lambda f: f"{f['rounds']}"} if differ else {}),
        "accuracy": _accuracy,
        **({"difference": _difference} if compared else {}),
        "spoke": lambda f: _percent(f["spoke_share"], ".1f"),
        "payload": lambda f: byte_text(f["upload_bytes"]),
        # A line has 80 characters.
        **({} if compared else {"overhead": lambda f: byte_text(f["upload_overhead_bytes"])}),
        "of full": lambda f: _percent(f["upload_share"], ".3g"),
    }
    for heading in figures_of:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figures in arms.items():
        table.add_row(name, *(text(figures) for text in figures_of.values()))
    console = Console()
    console.print(table)
    console.print(_notes(first, compared, differ), highlight=False, style="dim", soft_wrap=True)
    if tested_on:
        console.print(f"Tested on {tested_on}.", highlight=False, style="dim", soft_wrap=True)
    for name, figures in arms.items():
        if rejected := figures.get("rejected_share"):
            console.print(
                f"{name}: {rejected:.3g} % of the replies had numbers that are not finite, and did "
                f"not count. A smaller `lr` may help.", highlight=False, soft_wrap=True,
            )  # fmt: skip


def _notes(figures: Mapping[str, Any], compared: bool, differ: bool) -> str:
    """What a reader of the table must know."""
    seeds = len(figures["seeds"])
    notes = [f"{seeds} seed{'s' * (seeds > 1)}"]
    if not differ:
        notes.insert(0, f"{figures['rounds']} round{'s' * (figures['rounds'] > 1)}")
    text = f"{', '.join(notes)}."
    if seeds > 1:
        text += " ± is the standard deviation over seeds"
        text += "; of a difference to the first, half of its 95 % interval." if compared else "."
    if "seconds_per_round" in figures:
        text += f" A round of all takes {1000 * figures['seconds_per_round']:.3g} ms."
    return text


def _accuracy(figures: Mapping[str, Any]) -> str:
    if figures.get("rejected_share") == 100:  # the accuracy is that of the first weights
        return "nothing learned"
    if figures["accuracy_mean"] is None:
        loss = figures.get("loss_mean")  # of numbers that are predicted
        return "not tested" if loss is None else f"loss {loss:.4g}"
    spread = "" if figures["accuracy_std"] is None else f" ± {figures['accuracy_std']:.2f}"
    return f"{figures['accuracy_mean']:.2f}{spread} %"


def _difference(figures: Mapping[str, Any]) -> str:
    difference = figures.get("difference")
    return "" if difference is None else f"{difference['mean']:+.2f} ± {difference['half']:.2f}"


def _percent(share: float | None, form: str) -> str:
    return "" if share is None else f"{share:{form}} %"


def byte_text(count: float) -> str:
    """A number of bytes for people: 4.49 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"

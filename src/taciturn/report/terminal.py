"""Progress while a simulation runs, and the table at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from taciturn.progress import Compiling
from taciturn.progress import Progress as Done
from taciturn.settings import Settings

if TYPE_CHECKING:  # tables of Flower runs are shown where there is no simulator
    from taciturn.sim.history import History


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
        before = 0 if done.seed is None else self._seeds[done.seed] * self._rounds
        rounds = done.round * len(self._seeds) if done.seed is None else before + done.round
        accuracy = "" if math.isnan(done.accuracy) else f"accuracy {100 * done.accuracy:5.1f} %  "
        share = 100 * done.spoke / done.asked
        figures = f"{accuracy}spoke {share:3.0f} %  up {byte_text(done.bytes_up)}"
        self._bars.update(bar, completed=rounds, figures=figures)


def print_table(histories: Mapping[str, History], folder: Path, tested_on: str) -> None:
    """The figures of every arm, side by side, and what they were tested on."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", overflow="fold")
    for heading in ("accuracy", "spoke", "uploaded", "of full", "a round"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, history in histories.items():
        figures = history.summary()
        spread = f" ± {figures['accuracy_std']:.2f}" if len(history.seeds) > 1 else ""
        score = f"{figures['accuracy_mean']:.2f}{spread} %"
        if math.isnan(figures["accuracy_mean"]):  # numbers are predicted, no classes
            score = f"loss {figures['loss_mean']:.4g}"
        table.add_row(
            name,
            _judged(score, figures["rejected_share"]),
            f"{figures['spoke_share']:.1f} %",
            byte_text(figures["upload_bytes"]),
            f"{figures['upload_share']:.3g} %",
            f"{1000 * figures['seconds_per_round']:.1f} ms",
        )
    console = Console()
    console.print(table)
    console.print(f"Tested on {tested_on}.", highlight=False, soft_wrap=True)
    for name, history in histories.items():
        if rejected := history.summary()["rejected_share"]:
            console.print(
                f"{name}: {rejected:.3g} % of the replies had numbers that are not finite, and did "
                f"not count. A smaller `--lr` may help.", highlight=False, soft_wrap=True,
            )  # fmt: skip
    console.print(f"Results are in {folder}", highlight=False, soft_wrap=True)


def _judged(accuracy: str, rejected: float) -> str:
    """An accuracy, unless no reply counted: then it is that of the first weights."""
    return accuracy if rejected < 100 else "nothing learned"


def print_series(arms: Mapping[str, Mapping[str, float]]) -> None:
    """The figures of `picture.Series.summary`, a line per arm."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("arm", overflow="fold")
    for heading in ("rounds", "accuracy", "spoke a round", "uploaded"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figures in arms.items():
        known = not math.isnan(figures["accuracy"])
        spread = "" if math.isnan(figures["deviation"]) else f" ± {figures['deviation']:.2f}"
        table.add_row(
            name,
            f"{figures['rounds']:.0f}",
            f"{figures['accuracy']:.2f}{spread} %" if known else "not tested",
            f"{figures['spoke']:.2f}",
            byte_text(figures["uploaded"]),
        )
    Console().print(table)


def byte_text(count: float) -> str:
    """A number of bytes for people: 4.49 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"

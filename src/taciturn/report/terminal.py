"""Progress while a simulation runs, and the table at its end."""

from __future__ import annotations

import datetime
import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from taciturn.progress import Compiling
from taciturn.progress import Progress as Done
from taciturn.report.units import byte_text
from taciturn.settings import Settings

if TYPE_CHECKING:  # tables of Flower runs are shown where there is no simulator
    from taciturn.sim.history import History

_SHORTEST, _LONGEST = 10.0, 600.0  # seconds between lines in a file
_SPARK = 24  # cells of a spark line, where there is room
_BLOCKS = "▁▂▃▄▅▆▇█"


class Live:
    """Shows how far every arm is, a line for each.

    It writes to stderr, so that stdout stays free for results. Where that is no terminal but a
    file, lines are added to it now and then.

    Args:
      arms: their names.
      settings: those of the simulation.
      console: where to write.
      clock: seconds since any start.
    """

    def __init__(
        self,
        arms: Sequence[str],
        settings: Settings,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arms = {arm: _Arm(settings.rounds, settings.all_seeds) for arm in arms}
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._began = self._written = clock()
        self._screen: Screen | None = None
        if self._console.is_terminal:
            self._screen = Screen(get_renderable=self._table, console=self._console)

    def __enter__(self) -> Live:
        if self._screen is not None:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._screen is not None:
            self._screen.transient = kind is None  # a table with the same figures follows
            self._screen.stop()

    def __call__(self, done: Done | Compiling) -> None:
        now = self._clock()
        if isinstance(done, Compiling):
            for arm in self._arms.values():
                arm.state = "compiling"
            self._write(f"compiling a program of {done.runs} run{'s' * (done.runs > 1)}")
            return
        arm = self._arms[done.arm]
        arm.add(done, now)
        ended = all(one.share == 1 for one in self._arms.values())
        # Often at first, and later after a tenth of the time that has passed.
        pause = min(max(_SHORTEST, (now - self._began) / 10), _LONGEST)
        due = done.arm == next(reversed(self._arms)) and now - self._written >= pause
        if due or ended:
            self._written = now
            for name, one in self._arms.items():
                if one.done is not None:
                    self._write(f"{name}: {one.line(now)}")

    def _write(self, line: str) -> None:
        if self._screen is None:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        now = self._clock()
        rows = {name: arm.figures(now) for name, arm in self._arms.items()}
        headings = ("round", "accuracy", "spoke", "up", "left")
        columns = zip(headings, *rows.values(), strict=True)
        needed = sum(2 + max(map(len, column)) for column in columns)
        names = min(max(map(cell_len, rows)), max(self._console.width - needed - 2, 10))
        room = min(_SPARK, max(0, self._console.width - names - needed - 2))
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("", overflow="ellipsis", no_wrap=True, style="bold", max_width=names)
        table.add_column("", no_wrap=True)
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for (name, figures), arm in zip(rows.items(), self._arms.values(), strict=True):
            drawn = arm.state[:room] if arm.done is None else spark(arm.accuracies, room)
            table.add_row(Text(name), drawn, *figures)
        return table


class _Arm:
    """How far an arm is."""

    def __init__(self, rounds: int, seeds: Sequence[int]) -> None:
        self.state = "waiting"
        self.done: Done | None = None
        self.share = 0.0  # of all its rounds
        self.accuracies: list[tuple[float, float]] = []  # after which share of them
        self._rounds, self._seeds = rounds, seeds
        self._first: tuple[float, float] | None = None  # when a share was heard of first

    def add(self, done: Done, now: float) -> None:
        self.done = done
        self.share = operator.truediv(*self._counts(done))
        self._first = self._first or (now, self.share)
        if not math.isnan(done.accuracy):
            self.accuracies.append((self.share, done.accuracy))

    def figures(self, now: float) -> list[str]:
        """Rounds, accuracy, who spoke, bytes, time left."""
        done = self.done
        if done is None:
            return [""] * 5
        return [
            "{}/{}".format(*self._counts(done)),
            "" if math.isnan(done.accuracy) else f"{100 * done.accuracy:.1f} %",
            f"{100 * done.spoke / done.asked:.0f} %",
            byte_text(done.bytes_up),
            self._left(now),
        ]

    def line(self, now: float) -> str:
        """The same in words."""
        forms = ("round {}", "accuracy {}", "spoke {}", "up {}", "{} left")
        figures = zip(forms, self.figures(now), strict=True)
        return ", ".join(form.format(figure) for form, figure in figures if figure)

    def _counts(self, done: Done) -> tuple[int, int]:
        """Rounds that are done, of how many; of all seeds where some run after others."""
        side_by_side, every = len(done.seeds), len(self._seeds)
        if side_by_side == every:
            return done.round, self._rounds
        before = self._seeds.index(done.seeds[0])
        return before * self._rounds + side_by_side * done.round, every * self._rounds

    def _left(self, now: float) -> str:
        if self._first is None or self.share in (1, self._first[1]):
            return ""
        began, share = self._first
        seconds = round((now - began) / (self.share - share) * (1 - self.share))
        return str(datetime.timedelta(seconds=seconds)).removeprefix("0:")


def spark(values: Sequence[tuple[float, float]], width: int) -> str:
    """A line of blocks: values at shares of the way; what is still to come is empty."""
    if not values or not width:
        return " " * width
    low = min(value for _, value in values)
    high = max(value for _, value in values)
    cells, last = [" "] * width, -1
    for share, value in values:
        cell = min(int(share * width), width - 1)
        block = _BLOCKS[round((value - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))]
        # Cells without a value of their own have the next one.
        cells[last + 1 : cell + 1] = [block] * (cell - last)
        cells[cell], last = block, cell
    return "".join(cells)


def print_table(histories: Mapping[str, History], folder: Path) -> None:
    """The figures of every arm, side by side."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", overflow="fold")
    for heading in ("accuracy", "spoke", "uploaded", "of full", "a round"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, history in histories.items():
        figures = history.summary()
        spread = f" ± {figures['accuracy_std']:.2f}" if len(history.seeds) > 1 else ""
        table.add_row(
            name,
            f"{figures['accuracy_mean']:.2f}{spread} %",
            f"{figures['spoke_share']:.1f} %",
            byte_text(figures["upload_bytes"]),
            f"{figures['upload_share']:.3g} %",
            f"{1000 * figures['seconds_per_round']:.1f} ms",
        )
    console = Console()
    console.print(table)
    console.print(f"Results are in {folder}", highlight=False, soft_wrap=True)


def print_series(arms: Mapping[str, Mapping[str, float]]) -> None:
    """The figures of `series.Series.summary`, a line per arm."""
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

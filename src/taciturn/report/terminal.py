"""Progress while a simulation runs, and the table at its end."""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from taciturn.core.tally import OVERHEAD
from taciturn.progress import Compiling
from taciturn.progress import Progress as Done
from taciturn.report.units import byte_text, difference_text, percent, score_text
from taciturn.settings import Settings
from taciturn.summary import RECOMMENDED

_SHORTEST, _LONGEST = 10.0, 600.0  # seconds between lines in a file
_NAMES = 16  # what policies have at the least of a table's width
_LEVEL = 1.0  # points below full communication from which on an arm's upload is no saving
_BLOCKS = "▁▂▃▄▅▆▇█"
_HEADINGS = ("round", "accuracy", "spoke", "up", "left")

Figures = Mapping[str, Any]  # of an arm, as `summary.json` has them


class Live:
    """Shows how far every arm is, a line for each.

    It writes to stderr, so that stdout stays free for results. Where that is no terminal but a
    file, lines are added to it now and then. `clock` gives seconds since any start.
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
        self._screen = Screen(get_renderable=self._table, console=self._console)

    def __enter__(self) -> Live:
        if self._console.is_terminal:
            self._screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._screen.transient = kind is None  # a table with the same figures follows
        self._screen.stop()

    def __call__(self, done: Done | Compiling) -> None:
        now = self._clock()
        if isinstance(done, Compiling):
            for arm in self._arms.values():
                arm.state = "compiling"
            self._write(f"compiling a program of {done.runs} run{'s' * (done.runs > 1)}")
            return
        self._arms[done.arm].add(done, now)
        ended = all(arm.share == 1 for arm in self._arms.values())
        # Often at first, and later after a tenth of the time that has passed.
        pause = min(max(_SHORTEST, (now - self._began) / 10), _LONGEST)
        is_last = done.arm == next(reversed(self._arms))
        if ended or (is_last and now - self._written >= pause):
            self._written = now
            for name, arm in self._arms.items():
                figures = zip(_HEADINGS, arm.figures(now), strict=True)
                if words := [f"{heading} {figure}" for heading, figure in figures if figure]:
                    self._write(f"{name}: {', '.join(words)}")

    def _write(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        now, width = self._clock(), self._console.width
        room = 24 if width >= 100 else 12 if width >= 80 else 0  # of a spark line
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("", style="bold")  # names give way where there is too little room
        if room:
            table.add_column("", no_wrap=True)
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, arm in self._arms.items():
            drawn = spark(arm.accuracies, room) if arm.done else arm.state
            figures = arm.figures(now)
            if not room and not arm.done:
                figures[0] = arm.state
            cells = [drawn] * bool(room) + figures
            table.add_row(Text(name, no_wrap=True, overflow="ellipsis"), *cells)
        return table


class _Arm:
    """How far an arm is."""

    def __init__(self, rounds: int, seeds: Sequence[int]) -> None:
        self._rounds, self._seeds = rounds, seeds
        self.state = "waiting"
        self.done: Done | None = None
        self.accuracies: list[tuple[float, float]] = []  # each after a share of all rounds
        self.share = 0.0  # of them, that is done
        self._first: tuple[float, float] | None = None  # when a share was heard of first

    def add(self, done: Done, now: float) -> None:
        self.done = done
        ended, of = self._progress(done)
        self.share = ended / of
        self._first = self._first or (now, self.share)
        if not math.isnan(done.accuracy):
            self.accuracies.append((self.share, done.accuracy))

    def _progress(self, done: Done) -> tuple[int, int]:
        """How many rounds are done, of how many: of all seeds, where some run after others."""
        if len(done.seeds) == len(self._seeds):
            return done.round, self._rounds
        before = self._seeds.index(done.seeds[0]) * self._rounds
        return before + len(done.seeds) * done.round, len(self._seeds) * self._rounds

    def figures(self, now: float) -> list[str]:
        """A cell for each of the headings."""
        done = self.done
        if done is None or self._first is None:
            return [""] * len(_HEADINGS)
        left, (began, first) = "", self._first
        if first < self.share < 1:
            seconds = round((now - began) / (self.share - first) * (1 - self.share))
            left = str(datetime.timedelta(seconds=seconds)).removeprefix("0:")
        return [
            "{}/{}".format(*self._progress(done)),
            "" if math.isnan(done.accuracy) else f"{100 * done.accuracy:.1f} %",
            f"{100 * done.spoke / done.asked:.0f} %",
            byte_text(done.bytes_up),
            left,
        ]


def spark(values: Sequence[tuple[float, float]], width: int) -> str:
    """A line of blocks: values at shares of the way; what is still to come is empty."""
    heights = [value for _, value in values]
    low, high = min(heights, default=0), max(heights, default=0)
    line = ""
    for share, value in values[: len(values) if width else 0]:
        cell = min(int(share * width), width - 1)
        block = _BLOCKS[round((value - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))]
        # Cells without a value of their own have the next one; of several, the last is seen.
        line = line[:cell] + block * (cell + 1 - len(line[:cell]))
    return line.ljust(width)


def print_table(
    arms: Mapping[str, Figures],
    title: str = "",
    tested_on: str = "",
    columns: str = "",
    one_run: bool = True,
) -> None:
    """Prints the figures of every arm, a line each, and notes below.

    Arms of several runs are not compared: they may differ in more than their policies.
    """
    console = Console()
    shown = {"arm": list(arms)} | _columns(list(arms.values()))
    floors = [figures["noise_floor"] for figures in arms.values() if figures.get("noise_floor")]
    if floors:
        for heading, cells in shown.items():
            cells.append("noise floor" if heading == "arm" else "")
        shown["accuracy"][-1] = f"{np.mean([floor['mean'] for floor in floors]):.2f} points"
    # What is left out is on the page.
    table = fitting(shown, console.width, ["arm"], ["overhead", "payload"], title)
    if floors:
        table.rows[-1].style = "dim"
    console.print(table)
    notes = [_saved(arms) if one_run else "", _counts(list(arms.values()))]
    if floors:
        most = max(one["most"] for one in floors)
        notes.append("Noise floor: measured; by rounding alone, the accuracy of a seed moves this "
                     f"far on average, and {most:.2f} points at the most.")  # fmt: skip
    notes.append(f"Tested on {tested_on}." if tested_on else "")
    notes.append(f"Columns: {columns}." if columns else "")
    for line in filter(None, notes):
        console.print(line, highlight=False, style="dim", soft_wrap=True)
    for name, figures in arms.items():
        if rejected := figures.get("rejected_share"):
            text = (f"{name}: {rejected:.3g} % of the replies had numbers that are not finite, and "
                    "did not count. A smaller `lr` may help.")  # fmt: skip
            console.print(text, highlight=False, soft_wrap=True)


def fitting(
    columns: Mapping[str, Sequence[str]],
    width: int,
    folds: Sequence[str],
    spare: Sequence[str],
    title: str = "",
) -> Table:
    """A table of at most `width` characters, where that is possible, from cells by heading.

    The cells of columns that fold, as names of policies, can have several lines; columns up to the
    last of these have text. Where there is no room, those to spare are left out in their order.
    """
    gap = 2  # between columns
    widths = {heading: gap + max(map(cell_len, "\n".join([heading, *cells]).split("\n")))
              for heading, cells in columns.items()}  # fmt: skip
    least = {heading: min(widths[heading], gap + _NAMES) for heading in folds}
    for heading in spare:
        if sum((widths | least).values()) > gap + width:
            widths.pop(heading, None)
    rest = sum(wide for heading, wide in widths.items() if heading not in folds)
    room = max(_NAMES, (gap + width - rest) // len(folds) - gap)
    table = Table(box=None, header_style="bold", pad_edge=False, title=title or None,
                  title_justify="left")  # fmt: skip
    high, order = any("\n" in heading for heading in widths), list(widths)
    for i, heading in enumerate(order):
        below = heading if "\n" in heading or not high else f"\n{heading}"
        is_text = i <= order.index(folds[-1])
        table.add_column(below, justify="left" if is_text else "right", overflow="fold",
                         no_wrap=heading not in folds)  # fmt: skip
    for row in zip(*(columns[heading] for heading in order), strict=True):
        table.add_row(*(Text(folded(cell, room) if heading in folds else cell)
                        for heading, cell in zip(order, row, strict=True)))  # fmt: skip
    return table


def _columns(arms: Sequence[Figures]) -> dict[str, list[str]]:
    """Headings, and a cell for every arm; only what some arm has, or differs in."""
    known = [f for f in arms if f["accuracy_mean"] is not None or f.get("loss_mean") is not None]
    numbers = known and all(f["accuracy_mean"] is None for f in known)  # models predict numbers
    lengths, short = {f["rounds"] for f in arms}, {f["download_share"] for f in arms} - {None, 100}
    cells: dict[str, Callable[[Figures], str]] = {
        "rounds": lambda f: f"{f['rounds']}" if len(lengths) > 1 else "",
        "loss" if numbers else "accuracy": lambda f: score_text(f, "" if numbers else "loss "),
        "difference": difference_text,
        "worst\ntenth": lambda f: percent(f.get("worst_tenth"), ".1f"),
        "spoke": lambda f: percent(f["spoke_share"], ".1f"),
        "payload": lambda f: byte_text(f["upload_bytes"]),
        "overhead": lambda f: byte_text(f["upload_overhead_bytes"]),
        "of full": lambda f: percent(f["upload_share"], ".3g"),
        "both\nways": lambda f: percent(f["traffic_share"], ".3g") if short else "",
    }
    columns = {heading: [cell(f) for f in arms] for heading, cell in cells.items()}
    return {heading: column for heading, column in columns.items() if any(column)}


def folded(policies: str, room: int) -> str:
    """Policies in lines of at most so many characters, cut before `+` or after a blank where that
    will do."""
    lines = [""]
    for part in re.split(r"(?=\+)|(?<= )", policies):
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _saved(arms: Mapping[str, Figures]) -> str:
    """What the recommended policy saves beside full communication; where it did not run, that with
    the least upload among those that end level with full communication."""
    (first, full), *others = arms.items()
    if full["upload_share"] != 100 or any(f["accuracy_mean"] is None for f in arms.values()):
        return ""
    level = [(name, f) for name, f in others
             if f["accuracy_mean"] >= full["accuracy_mean"] - _LEVEL]  # fmt: skip
    default = [(name, f) for name, f in others if name == RECOMMENDED and f["upload_share"] < 100]
    chosen = default or level
    if not chosen:
        return ""
    name, least = min(chosen, key=lambda one: one[1]["upload_share"])
    sent, whole = (f["upload_bytes"] + f["upload_overhead_bytes"] for f in (least, full))
    points = least["accuracy_mean"] - full["accuracy_mean"]
    told = f"{abs(points):.2f} points {'below' if points < 0 else 'above'}"
    told = "level with" if abs(points) < 0.005 else told
    text = (
        f"{name} uploaded {byte_text(sent)} instead of {byte_text(whole)}, and ends {told} {first}."
    )
    if len(full["seeds"]) == 1:
        text += " With one seed, differences of a point may be chance: try `--seeds 5`."
    # The default sends as many bytes whatever the size of the model.
    messages = least["upload_overhead_bytes"] / OVERHEAD
    share = 100 * sent / (messages * (4e6 + OVERHEAD)) if messages else 0.0
    if name == RECOMMENDED and share <= least["upload_share"]:
        text += (
            f" A model of a million weights would need as many bytes: {share:.2g} % of its upload."
        )
    return text


def _counts(arms: Sequence[Figures]) -> str:
    """How many rounds and seeds there were, what ± means, and how long a round took."""
    rounds, seeds = {f["rounds"] for f in arms}, [len(f["seeds"]) for f in arms]
    fewest, most = min(seeds), max(seeds)
    text = f"{f'{fewest} to ' * (fewest < most)}{most} seed{'s' * (most > 1)}."
    if len(rounds) == 1:
        text = f"{min(rounds)} round{'s' * (rounds != {1})}, {text}"
    if most > 1:
        text += " ± is the standard deviation over seeds"
        compared = any("difference" in f for f in arms)
        text += "; of a difference to the first, half of its 95 % interval." if compared else "."
    if (seconds := arms[0].get("seconds_per_round")) is not None:
        pace = f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        text += f" A round of all takes {pace}."
    return text

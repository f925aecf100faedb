"""Progress while a simulation runs, and the table at its end."""

import datetime
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
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
        self._rounds, self._seeds = settings.rounds, settings.all_seeds
        # Of each arm: when a share of all rounds was done, and the accuracy then.
        self._told: dict[str, list[tuple[float, float, float]]] = {arm: [] for arm in arms}
        self._cells: dict[str, list[str]] = {}  # below the headings
        self._state = "waiting"  # of arms of which nothing was told yet
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._began = self._written = clock()
        self._screen = Screen(get_renderable=self._table, console=self._console)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._screen.transient = kind is None  # a table with the same figures follows
        self._screen.stop()

    def __call__(self, done: Done | Compiling) -> None:
        if isinstance(done, Compiling):
            self._state = "compiling"
            self._write(f"compiling a program of {done.runs} run{'s' * (done.runs > 1)}")
            return
        now = self._clock()
        self._add(done, now)
        ended = all(told and told[-1][1] == 1 for told in self._told.values())
        # Often at first, and later after a tenth of the time that has passed.
        pause = min(max(_SHORTEST, (now - self._began) / 10), _LONGEST)
        is_last = done.arm == next(reversed(self._told))
        if ended or (is_last and now - self._written >= pause):
            self._written = now
            for arm, cells in self._cells.items():
                both = zip(_HEADINGS, cells, strict=True)
                self._write(f"{arm}: {', '.join(f'{name} {cell}' for name, cell in both if cell)}")

    def _add(self, done: Done, now: float) -> None:
        rounds, of = done.round, self._rounds
        if len(done.seeds) < len(self._seeds):  # seeds run one after another
            rounds = self._seeds.index(done.seeds[0]) * of + len(done.seeds) * rounds
            of *= len(self._seeds)
        told, share, left = self._told[done.arm], rounds / of, ""
        told.append((now, share, done.accuracy))
        began, first, _ = told[0]
        if first < share < 1:
            seconds = round((now - began) / (share - first) * (1 - share))
            left = str(datetime.timedelta(seconds=seconds)).removeprefix("0:")
        self._cells[done.arm] = [
            f"{rounds}/{of}",
            "" if math.isnan(done.accuracy) else f"{100 * done.accuracy:.1f} %",
            f"{100 * done.spoke / done.asked:.0f} %",
            byte_text(done.bytes_up),
            left,
        ]

    def _write(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        width = self._console.width
        room = 24 if width >= 100 else 12 if width >= 80 else 0  # of a spark line
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("", style="bold")  # names give way where there is too little room
        if room:
            table.add_column("", no_wrap=True)
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for arm, told in self._told.items():
            curve = [(share, score) for _, share, score in told if not math.isnan(score)]
            drawn = [spark(curve, room)] if room else []
            cells = drawn + self._cells[arm] if told else [self._state]
            table.add_row(Text(arm, no_wrap=True, overflow="ellipsis"), *cells)
        return table


def spark(values: Sequence[tuple[float, float]], width: int) -> str:
    """A line of blocks: values at shares of the way; what is still to come is empty."""
    heights = [value for _, value in values]
    low, high = min(heights, default=0), max(heights, default=0)
    line = ""
    for share, value in values:
        cell = min(int(share * width), width - 1)
        block = _BLOCKS[round((value - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))]
        # Cells without a value of their own have the next one; of several, the last is seen.
        line = line[:cell] + block * (cell + 1 - len(line[:cell]))
    return line.ljust(width)


def print_table(
    arms: Mapping[str, Figures], title: str = "", run: Figures | None = None, one_run: bool = True
) -> None:
    """Prints the figures of every arm, a line each, and notes below; `run` says of which data.

    Arms of several runs are not compared: they may differ in more than their policies.
    """
    console = Console()
    shown = {"arm": list(arms)} | _columns(list(arms.values()))
    notes = [_saved(arms) if one_run else "", _counts(list(arms.values()))]
    floors = [figures["noise_floor"] for figures in arms.values() if figures.get("noise_floor")]
    if floors:
        mean, most = np.mean([one["mean"] for one in floors]), max(one["most"] for one in floors)
        row = {"arm": "noise floor", "accuracy": f"{mean:.2f} points"}
        shown = {heading: [*cells, row.get(heading, "")] for heading, cells in shown.items()}
        notes.append("Noise floor: measured; by rounding alone, the accuracy of a seed moves this "
                     f"far on average, and {most:.2f} points at the most.")  # fmt: skip
    # What is left out is on the page.
    table = fitting(shown, console.width, ["arm"], ["overhead", "payload"], title)
    if floors:
        table.rows[-1].style = "dim"
    console.print(table)
    for word, name in (("Tested on ", "tested_on"), ("Columns: ", "columns")):
        notes.append(f"{word}{run[name]}." if run and run.get(name) else "")
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
    room = max(1, (gap + width - rest) // len(folds) - gap)
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    order = list(widths)
    for i, heading in enumerate(order):
        side: JustifyMethod = "left" if i <= order.index(folds[-1]) else "right"
        table.add_column(heading, justify=side, overflow="fold", no_wrap=heading not in folds)
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
    chosen = [name for name, f in others if f["accuracy_mean"] >= full["accuracy_mean"] - _LEVEL]
    if arms.get(RECOMMENDED, full)["upload_share"] < 100:
        chosen = [RECOMMENDED]
    if not chosen:
        return ""
    name = min(chosen, key=lambda name: arms[name]["upload_share"])
    least = arms[name]
    sent, whole = (f["upload_bytes"] + f["upload_overhead_bytes"] for f in (least, full))
    points = f"{least['accuracy_mean'] - full['accuracy_mean']:+.2f}"
    side = "below" if points[0] == "-" else "above"
    told = "level with" if float(points) == 0 else f"{points[1:]} points {side}"
    text = f"{name} uploaded {byte_text(sent)} instead of {byte_text(whole)}, "
    text += f"and ends {told} {first}."
    if len(full["seeds"]) == 1:
        text += " With one seed, differences of a point may be chance: try `--seeds 5`."
    # The default sends as many bytes whatever the size of the model.
    messages = least["upload_overhead_bytes"] / OVERHEAD
    share = 100 * sent / (messages * (4e6 + OVERHEAD)) if messages else 0.0
    if name == RECOMMENDED and share <= least["upload_share"]:
        text += " A model of a million weights would need as many bytes: "
        text += f"{share:.2g} % of its upload."
    return text


def _counts(arms: Sequence[Figures]) -> str:
    """How many rounds and seeds there were, what ± means, and how long a round took."""
    rounds, seeds = {f["rounds"] for f in arms}, {len(f["seeds"]) for f in arms}
    most = max(seeds)
    text = f"{f'{min(seeds)} to ' * (len(seeds) > 1)}{most} seed{'s' * (most > 1)}."
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

"""Progress while a simulation runs, and the table at its end."""

from __future__ import annotations

import datetime
import math
import operator
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from taciturn.core.budget import EACH, ROUND
from taciturn.core.messages import OVERHEAD
from taciturn.progress import Compiling
from taciturn.progress import Progress as Done
from taciturn.report.units import byte_text, percent
from taciturn.settings import Settings

_SHORTEST, _LONGEST = 10.0, 600.0  # seconds between lines in a file
_SPARK, _LEAST_SPARK = 24, 12  # cells of a spark line: where there is room, and beside long names
_LARGER = 1_000_000  # weights of a model that people may think of
_NAMES = 16  # what policies have at the least of a table's width
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
        left = self._console.width - needed - 2
        most = left - _LEAST_SPARK if left - _LEAST_SPARK >= _NAMES else max(left, 10)
        names = min(max(map(cell_len, rows)), most)
        room = min(_SPARK, max(0, left - names))
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("", overflow="ellipsis", no_wrap=True, style="bold", max_width=names)
        if room:
            table.add_column("", no_wrap=True)
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for (name, figures), arm in zip(rows.items(), self._arms.values(), strict=True):
            drawn = arm.state[:room] if arm.done is None else spark(arm.accuracies, room)
            table.add_row(Text(name), *([drawn] if room else []), *figures)
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


def print_table(
    arms: Mapping[str, Mapping[str, Any]],
    title: str = "",
    tested_on: str = "",
    one_run: bool = True,
    note: str = "",
) -> None:
    """The figures of every arm, a line each, as `summary.json` has them, and a note below.

    Arms of several runs are not compared: they may differ in more than their policies.
    """
    console = Console()
    compared = any("difference" in figures for figures in arms.values())
    differ = len({figures["rounds"] for figures in arms.values()}) > 1
    floors = [figures["noise_floor"] for figures in arms.values() if figures.get("noise_floor")]
    floor = f"{np.mean([floor['mean'] for floor in floors]):.2f} points" if floors else ""
    columns = {
        heading: [text(figures) for figures in arms.values()]
        for heading, text in _columns(list(arms.values()), differ).items()
    }
    if floor:
        columns["accuracy"].append(floor)
    widths = {heading: 2 + max(map(cell_len, [*heading.split("\n"), *cells]))
              for heading, cells in columns.items()}  # fmt: skip
    names = max(cell_len(name) for name in arms)
    for heading in ("overhead", "payload"):  # the page has them all
        if sum(widths.values()) + min(names, _NAMES) > console.width:
            widths.pop(heading)
    room = max(_NAMES, console.width - sum(widths.values()))
    table = Table(box=None, header_style="bold", pad_edge=False, title=title or None,
                  title_justify="left")  # fmt: skip
    high = "\n" * any("\n" in heading for heading in widths)  # the others stand on the second line
    table.add_column(f"{high}policy", overflow="fold")
    for heading in widths:
        shown = heading if "\n" in heading else high + heading
        table.add_column(shown, justify="right", no_wrap=True)
    for i, name in enumerate(arms):
        table.add_row(Text(folded(name, room)), *(columns[heading][i] for heading in widths))
    if floor:
        cells = (floor if heading == "accuracy" else "" for heading in widths)
        table.add_row("noise floor", *cells, style="dim")
    console.print(table)
    notes = [*(_saved(arms) if one_run else ()), *([note] if note else ())]
    notes.append(_notes(arms, compared, differ))
    if floors:
        most = max(one["most"] for one in floors)
        notes.append("Noise floor: measured; by rounding alone, the accuracy of a seed moves this "
                     f"far on average, and {most:.2f} points at the most.")  # fmt: skip
    if tested_on:
        notes.append(f"Tested on {tested_on}.")
    for note in notes:
        console.print(note, highlight=False, style="dim", soft_wrap=True)
    for name, figures in arms.items():
        if rejected := figures.get("rejected_share"):
            console.print(
                f"{name}: {rejected:.3g} % of the replies had numbers that are not finite, and did "
                f"not count. A smaller `lr` may help.", highlight=False, soft_wrap=True,
            )  # fmt: skip


def _saved(arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the policy with the least upload saves, beside full communication."""
    (first, full), *others = arms.items()
    tested = [name for name, f in arms.items() if f["accuracy_mean"] is not None]
    if full["upload_share"] != 100 or not others or len(tested) < len(arms):
        return []
    name, least = min(others, key=lambda one: one[1]["upload_share"])
    sent = [byte_text(f["upload_bytes"] + f["upload_overhead_bytes"]) for f in (least, full)]
    points = least["accuracy_mean"] - full["accuracy_mean"]
    told = f"{abs(points):.2f} points {'below' if points < 0 else 'above'} {first}"
    if abs(points) < 0.005:
        told = f"level with {first}"
    chance = "" if len(full["seeds"]) > 1 else (
        " With one seed, differences of a point may be chance: try `--seeds 5`."
    )  # fmt: skip
    return [f"{name} uploaded {sent[0]} instead of {sent[1]}, and ends {told}.{chance}"]


def larger(cohort: int) -> str:
    """What `budget` comes to with so many clients in a round and a larger model."""
    share = 100 * max(EACH, ROUND / cohort) / (4 * _LARGER + OVERHEAD)
    return (f"With a model of a million weights, budget would upload {percent(share, '.2g')} of "
            "full: its bytes do not grow with the model.")  # fmt: skip


def _columns(
    arms: Sequence[Mapping[str, Any]], differ: bool
) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """Headings, and what the figures of an arm have there."""
    found: dict[str, Callable[[Mapping[str, Any]], str]] = {}
    if differ:
        found["rounds"] = lambda f: f"{f['rounds']}"
    heading = _score(arms)
    found[heading] = lambda f: score_text(f, heading)
    if any("difference" in figures for figures in arms):
        found["difference"] = _difference
    if any(figures.get("worst_tenth") is not None for figures in arms):
        found["worst\ntenth"] = lambda f: percent(f.get("worst_tenth"), ".1f")
    found |= {
        "spoke": lambda f: percent(f["spoke_share"], ".1f"),
        "payload": lambda f: byte_text(f["upload_bytes"]),
        "overhead": lambda f: byte_text(f["upload_overhead_bytes"]),
        "of full": lambda f: percent(f["upload_share"], ".3g"),
    }
    if any(f.get("download_share") not in (None, 100.0) for f in arms):
        found["both\nways"] = lambda f: percent(f.get("traffic_share"), ".3g")
    return found


def folded(policies: str, room: int) -> str:
    """Policies in lines of at most so many characters, cut before `+` or after a blank where that
    will do."""
    lines = [""]
    for part in re.split(r"(?=\+)|(?<= )", policies):
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _notes(arms: Mapping[str, Mapping[str, Any]], compared: bool, differ: bool) -> str:
    """What a reader of the table must know."""
    figures = next(iter(arms.values()))
    counts = [len(one["seeds"]) for one in arms.values()]
    fewest, seeds = min(counts), max(counts)
    notes = [f"{f'{fewest} to ' * (fewest < seeds)}{seeds} seed{'s' * (seeds > 1)}"]
    if not differ:
        notes.insert(0, f"{figures['rounds']} round{'s' * (figures['rounds'] > 1)}")
    text = f"{', '.join(notes)}."
    if seeds > 1:
        text += " ± is the standard deviation over seeds"
        text += "; of a difference to the first, half of its 95 % interval." if compared else "."
    if "seconds_per_round" in figures:
        seconds = figures["seconds_per_round"]
        pace = f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        text += f" A round of all takes {pace}."
    return text


def _score(arms: Iterable[Mapping[str, Any]]) -> str:
    """What says how good models are: accuracy; or loss, where all of them predict numbers."""
    known = [f for f in arms if f["accuracy_mean"] is not None or f.get("loss_mean") is not None]
    return "loss" if known and all(f["accuracy_mean"] is None for f in known) else "accuracy"


def score_text(figures: Mapping[str, Any], heading: str = "accuracy") -> str:
    """Accuracy with its deviation over seeds; or loss, named where the heading does not say so."""
    if figures.get("rejected_share") == 100:  # the accuracy is that of the first weights
        return "nothing learned"
    if figures["accuracy_mean"] is None:
        loss = figures.get("loss_mean")
        named = "" if heading == "loss" else "loss "
        return "not tested" if loss is None else f"{named}{loss:.4g}"
    spread = "" if figures["accuracy_std"] is None else f" ± {figures['accuracy_std']:.2f}"
    return f"{figures['accuracy_mean']:.2f}{spread} %"


def _difference(figures: Mapping[str, Any]) -> str:
    difference = figures.get("difference")
    return "" if difference is None else f"{difference['mean']:+.2f} ± {difference['half']:.2f}"

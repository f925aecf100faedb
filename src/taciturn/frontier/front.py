"""Accuracy against uploaded bytes: where each policy ends, which are beaten, and the picture."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from taciturn.report.figures import colours, log_ticks
from taciturn.report.page import SHARES
from taciturn.report.table import Spread, Table
from taciturn.report.units import byte_axis, byte_text
from taciturn.summary import FULL, MARGIN, RECOMMENDED, Difference, difference

_MOST_BELOW = 3.0  # points below full communication that are shown, or as many as above
_MOST = 10  # policies that a picture has: with more, names do not find room
_PAPER = {"boxstyle": "square,pad=0", "fc": "white", "ec": "none", "alpha": 0.9}  # below names
# Where a name may stand, in points from its point, and which end of it is there: near ones first.
_PLACES = [((10, 0), "left"), ((0, 13), "center"), ((0, -13), "center"), ((-10, 0), "right")]
_PLACES += [((right, up), end) for height in range(13, 70, 6) for up in (height, -height)
            for right, end in ((0, "center"), (10, "left"), (-10, "right"))]  # fmt: skip


class Scores(NamedTuple):
    """What the runs of a policy came to; arrays are (seeds, tests)."""

    seeds: tuple[int, ...]
    score: np.ndarray  # in %: accuracy, or how much of the variance is explained
    uploaded: np.ndarray  # bytes since the start, headers included
    worst_tenth: np.ndarray | None = None  # in %, (seeds,)


class Frontier(NamedTuple):
    """What the policies of a task came to, by their names."""

    title: str
    measure: str  # what scores are
    cohort: int
    arms: Mapping[str, Scores]

    def gap(self, name: str) -> Difference:
        """The difference to full communication, over the seeds that both have."""
        own, full = self.arms[name], self.arms[FULL]
        _, here, there = np.intersect1d(own.seeds, full.seeds, return_indices=True)
        return difference(own.score[here, -1], full.score[there, -1])

    def share(self, name: str) -> np.ndarray:
        """Upload in % of that of full communication, (seeds,)."""
        return 100 * self.arms[name].uploaded[:, -1] / self.arms[FULL].uploaded[:, -1].mean()


class Point(NamedTuple):
    """Where a policy ends, as means over seeds."""

    name: str
    score: float  # in %
    uploaded: float  # bytes
    on_front: bool  # whether no other has at least its score for at most its bytes


def points(found: Frontier) -> list[Point]:
    """Full communication, and then the other policies, those that upload most first."""
    ends = {name: (arm.uploaded[:, -1].mean(), arm.score[:, -1].mean())
            for name, arm in found.arms.items()}  # fmt: skip
    made = []
    for name, (sent, score) in ends.items():
        no_worse = {end for end in ends.values() if end[0] <= sent and end[1] >= score}
        made.append(Point(name, score, sent, on_front=no_worse == {(sent, score)}))
    return sorted(made, key=lambda point: (point.name != FULL, -point.uploaded))


def table(found: Frontier) -> Table:
    """Where every policy ends, and after how many bytes it reached shares of the full score."""
    arms, goal = found.arms.values(), found.arms[FULL].score[:, -1].mean()
    rows = []
    for name, _, sent, on_front in points(found):
        arm, share = found.arms[name], found.share(name)
        row: dict[str, Any] = {
            "policy": f"**{name}**" if name == RECOMMENDED else name,
            f"{found.measure} %": Spread(arm.score[:, -1]),
            "− full": None if name == FULL else str(found.gap(name)),
            "upload %": Spread(share, 1 if share.mean() >= 10 else 2 if share.mean() >= 1 else 3),
            "bytes": byte_text(sent),
            "front": "●" if on_front else None,
        }
        for part in SHARES if goal > 0 else ():  # 90 % of less than 0 is more
            until = arm.uploaded[:, arm.score.mean(0) >= part * goal]  # (seeds, tests)
            row[f"to {100 * part:g} %"] = byte_text(until[:, 0].mean()) if until.size else None
        if any(one.worst_tenth is not None for one in arms):
            row["worst tenth %"] = None if arm.worst_tenth is None else Spread(arm.worst_tenth)
        rows.append(row)
    seeds = max(len(arm.seeds) for arm in arms)
    title = f"{found.title}, {found.cohort} clients in a round, {seeds} seed{'s' * (seeds > 1)}."
    return Table(title, tuple(rows[0]), [tuple(row.values()) for row in rows])


def draw(frontier: Frontier, trails: bool = False) -> Figure:
    """Where policies end, each with its name; with `trails`, how they got there.

    What ends far below the others is a triangle at the lower edge with its score. Of more policies
    than can be read, those of the front are shown, and then the best ones.
    """
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")  # for a phone as well
    axes = figure.subplots()
    all_of = points(frontier)
    all_of.sort(key=lambda p: (p.name not in (FULL, RECOMMENDED), not p.on_front, -p.score))
    found = all_of[:_MOST]
    tones = colours([point.name for point in found])
    level = float(frontier.arms[FULL].score[:, -1].mean())
    lowest = _zoom(axes, found, level)
    names = []
    for point in found:
        arm, tone, is_low = frontier.arms[point.name], tones[point.name], point.score < lowest
        is_star = point.name == RECOMMENDED and not is_low
        at = point.uploaded, max(point.score, lowest)
        if trails:
            axes.plot(arm.uploaded.mean(0), arm.score.mean(0), color=tone, lw=0.9, alpha=0.35)
        axes.plot(*at, marker="v" if is_low else "*" if is_star else "o", ms=17 if is_star else 7,
                  color=tone, mec="white", mew=0.8, ls="", zorder=4)  # fmt: skip
        names.append(axes.annotate(
            f"{point.name}: {point.score:.1f} %" if is_low else point.name, at, xytext=(0, 0),
            textcoords="offset points", va="center", color=tone, size=9, zorder=5, bbox=_PAPER,
            weight="bold" if is_star else "normal", in_layout=False,
        ))  # fmt: skip
    front = sorted((p.uploaded, p.score) for p in found if p.on_front)
    front.append((axes.get_xlim()[1], front[-1][1]))  # more bytes give no more
    axes.plot(*zip(*front, strict=True), color="0.45", lw=1, ls="--", zorder=2,
              drawstyle="steps-post", label="Pareto front")  # fmt: skip
    axes.axhspan(level - MARGIN, level, color="0.5", alpha=0.13, lw=0,
                 label=f"{MARGIN:g} points below full")  # fmt: skip
    axes.set(xlabel="uploaded by all clients", ylabel=f"{frontier.measure}, %")
    some = f", {len(found)} of {len(all_of)} policies" * (len(found) < len(all_of))
    axes.set_title(f"{frontier.title}{some}")
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    _place(figure, axes, names)
    return figure


def _zoom(axes: Axes, found: list[Point], level: float) -> float:
    """Shows the zone that decides, as far below full communication as above; where it ends."""
    ends, sent = ([getattr(point, what) for point in found] for what in ("score", "uploaded"))
    lowest = max(level - max(_MOST_BELOW, max(ends) - level), min(*ends, level - 2 * MARGIN))
    height = max(ends) - lowest
    axes.set_ylim(lowest - 0.05 * height, max(ends) + 0.15 * height)
    log_ticks(axes, *byte_axis(min(sent) / 4, max(sent) * 4))
    axes.set_xlim(min(sent) / 4, max(sent) * 4)
    return lowest


def _place(figure: Figure, axes: Axes, names: Sequence[Annotation]) -> None:
    """Moves names beside the points that they annotate, so that none covers another or a point."""
    figure.draw_without_rendering()
    points = axes.transData.transform([name.xy for name in names])
    taken = [Bbox([point, point]).padded(5 * figure.dpi / 72) for point in points]
    for name in names:
        for offset, end in _PLACES:
            name.set(position=offset, horizontalalignment=end)
            box = name.get_window_extent()
            inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
            if inside and not box.count_overlaps(taken):
                break
        taken.append(box)

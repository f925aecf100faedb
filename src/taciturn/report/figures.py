"""Figures of runs: what is drawn of every arm, for a page (Plotly's JSON) and in a picture.

An arm's colour follows from its policy alone, in every figure. Only where two arms of a figure
would share one does the later arm take the next that is free, and where a policy is drawn twice, of
two folders, the second line is dashed. Tones can be read on white and on black.
"""

import base64
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn import files
from taciturn.errors import require
from taciturn.report.series import Series
from taciturn.report.units import byte_axis, unit
from taciturn.summary import FULL

GREY = "#808080"
# Okabe and Ito's colours, which people who see colours differently can tell apart, and five more.
_PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#8C6BB1", "#A6761D", "#E7505A", "#17A2B8", "#7A9A01",
)  # fmt: skip
_PAPERS = [f"adaptive+{stand_in}" for stand_in in ("ou", "zero", "ignore", "last")]
_KNOWN = [*_PAPERS, "budget", "adaptive+ou,mode=paper"]
_POINTS = 500  # of a curve: about as many as a screen has
_STRETCHES = 50  # of rounds, where means are drawn
_PERCENT = {"ticksuffix": " %"}
_FROM_ZERO = {"rangemode": "tozero"}
_STYLES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def colours(policies: Sequence[str]) -> dict[str, str]:
    """A colour for each policy; `full`, which all are compared with, is grey."""
    found: dict[str, str] = {}
    # Known ones first: they keep theirs whatever stands beside them.
    for policy in sorted(policies, key=lambda name: name not in _KNOWN):
        wanted = _KNOWN.index(policy) if policy in _KNOWN else zlib.crc32(policy.encode())
        tones = [_PALETTE[(wanted + i) % len(_PALETTE)] for i in range(len(_PALETTE))]
        free = [tone for tone in tones if tone not in found.values()]
        found.setdefault(policy, GREY if policy == FULL else (free or tones)[0])
    return found


def styles(policies: Sequence[str]) -> list[tuple[str, str]]:
    """A colour and a dash for each line; the same policy again is dashed."""
    colour, dashes = colours(policies), list(_STYLES)
    before = [policies[:i].count(policy) for i, policy in enumerate(policies)]
    return [(colour[p], dashes[n % len(dashes)]) for p, n in zip(policies, before, strict=True)]


class Line(NamedTuple):
    """What is drawn of an arm: `y` is (seeds, points), and is drawn as mean and shade."""

    x: np.ndarray
    y: np.ndarray
    what: str = ""  # named when one points at it, where an arm has two lines
    dash: str | None = None  # of an arm's second line, which has no shade
    arm: int = 0  # its place among the arms
    name: str = ""  # of the arm
    look: Mapping[str, Any] = {}  # colour, dash and width, as Plotly calls them


class Panel(NamedTuple):
    """A figure that is to be drawn; `draw` gives the lines of an arm, none if it has none."""

    key: str
    title: str
    note: str
    draw: Callable[[Series], Iterable[Line]]
    y_axis: dict[str, Any]
    x: str = "round"
    x_axis: Mapping[str, Any] = {}

    def shown(self, line: Line) -> Line:
        """A line without what has no place on a logarithmic axis."""
        some = (line.x > 0) | ("type" not in self.x_axis)
        some &= (line.y > 0).all(0) | ("type" not in self.y_axis)
        return line._replace(x=line.x[some], y=line.y[:, some])


def planned(arms: Mapping[str, Series]) -> list[tuple[Panel, list[Line]]]:
    """A figure for each thing that was measured, with its lines; the main ones first."""
    every = list(arms.values())
    looks, found = styles([s.arm for s in every]), []
    for panel in _panels(every):
        lines = []
        for i, ((name, s), (colour, dash)) in enumerate(zip(arms.items(), looks, strict=True)):
            for line in map(panel.shown, panel.draw(s)):
                # Full communication's is wide, so that no line upon it hides it.
                width = 3.5 if s.arm == FULL and line.dash is None else 1.5
                look = {"color": colour, "dash": line.dash or dash, "width": width}
                if len(line.x):
                    lines.append(line._replace(arm=i, name=name, look=look))
        if lines:
            found.append((panel, lines))
    return found


def panels(arms: Mapping[str, Series]) -> list[dict[str, Any]]:
    """The figures as Plotly reads them."""
    found = []
    for panel, lines in planned(arms):
        x_axis = {"title": {"text": panel.x}, "exponentformat": "none", **panel.x_axis}
        layout = {"xaxis": x_axis, "yaxis": panel.y_axis | {"exponentformat": "none"}}
        traces = [trace for line in lines for trace in _traces(line, panel)]
        told = {"key": panel.key, "title": panel.title, "note": panel.note}
        found.append(told | {"data": traces, "layout": layout})
    return found


def _bytes(arms: Sequence[Series]) -> tuple[float, dict[str, Any]]:
    """The unit of bytes that were uploaded, and a logarithmic axis of them."""
    sent = np.concatenate([s.uploaded.mean(0) for s in arms])
    size, name = unit(sent.max())
    ticks, texts = byte_axis(sent[sent > 0].min(initial=sent.max()), sent.max())
    return size, {
        "type": "log", "ticksuffix": f" {name}", "hoverformat": ".4~g",
        "tickvals": [tick / size for tick in ticks], "ticktext": texts,
    }  # fmt: skip


def _panels(arms: Sequence[Series]) -> Iterator[Panel]:
    """What was learned, who spoke, who gained, in how many bytes, and the task's own metrics."""
    size, uploads = _bytes(arms)
    accurate = any(np.isfinite(s["accuracy"]).any() for s in arms)
    score, axis = ("accuracy", _PERCENT) if accurate else ("loss", {})

    def scores(s: Series) -> np.ndarray:
        return 100 * s["accuracy"] if accurate else s["loss"]

    yield Panel(f"{score}-upload", f"{score.title()} by upload", "on the test set",
                lambda s: _measured(scores(s), x=s.uploaded.mean(0) / size), axis,
                "payload and overhead uploaded", uploads)  # fmt: skip
    yield Panel(score, f"{score.title()} by round", "on the test set",
                lambda s: _measured(scores(s)), axis)  # fmt: skip

    # What differs from round to round would fill a panel with colour: means of stretches are drawn.
    wide = -(-max(s.rounds for s in arms) // _STRETCHES)
    means = f", means of {wide} rounds" if wide > 1 else ""
    shares = all((s["asked"] > 0).all() for s in arms)

    def spoken(s: Series) -> Iterator[Line]:
        return _measured(100 * s["spoke"] / s["asked"] if shares else s["spoke"], wide=wide)

    def norms(s: Series) -> Iterator[Line]:
        yield from _measured(s["threshold"], "threshold", wide=wide)
        yield from _measured(s["norm_mean"], "mean norm", "dot", wide)

    def both_ways(s: Series) -> Iterator[Line]:
        yield from _measured(s.uploaded / size, "up")
        down = (s["bytes_down"] + s["overhead_down"]).cumsum(1) / size
        yield from _measured(down, "down", "dot")

    def bits(s: Series) -> Iterator[Line]:
        with np.errstate(invalid="ignore", divide="ignore"):
            per_weight = 32 * s["bytes_up"] / (s["bytes_up_full"] - s["overhead_up"])
        return _measured(per_weight, wide=wide)  # 32 is everything

    yield Panel("spoke", "Who spoke", f"{'share of the clients asked' if shares else 'clients'}"
                f"{means}", spoken, _FROM_ZERO | (_PERCENT if shares else {}))  # fmt: skip
    yield Panel("norms", "Thresholds and norms", f"mean norms of updates are dotted{means}", norms,
                _FROM_ZERO)  # fmt: skip
    yield Panel("worst-tenth", "The worst tenth of clients", "their accuracy",
                lambda s: _measured(100 * s["worst_tenth"]), _PERCENT)  # fmt: skip
    yield Panel("bytes", "Bytes up and down", "since the start, up and (dotted) down", both_ways,
                uploads)  # fmt: skip
    yield Panel("bits", "Bits per weight", f"of payload, over all clients asked{means}", bits,
                {"type": "log", "dtick": "D2", "minorloglabels": "complete"})  # fmt: skip
    yield Panel("rejected", "Rejected replies", "since the start",
                lambda s: _measured(s["rejected"].cumsum(1)) if s["rejected"].any() else (),
                _FROM_ZERO)  # fmt: skip
    for i, metric in enumerate(dict.fromkeys(name for s in arms for name in s.metrics)):
        draw = functools.partial(lambda name, s: _measured(s[name]), metric)
        yield Panel(f"metric-{i}", metric, "on the test set", draw, {})


def _measured(
    values: np.ndarray,
    what: str = "",
    dash: str | None = None,
    wide: int = 1,
    x: np.ndarray | None = None,
) -> Iterator[Line]:
    """A line over the rounds that were measured in every seed, or over means of `wide` of them."""
    shown = np.isfinite(values).all(0)
    x, y = (np.arange(1, len(shown) + 1) if x is None else x)[shown], values[:, shown]
    if wide > 1 and len(x) > wide:
        starts = np.arange(0, len(x), wide)
        counts = np.diff(starts, append=len(x))
        x, y = x[starts + counts - 1], np.add.reduceat(y, starts, axis=1) / counts
    if len(x):
        yield Line(x, y, what, dash)


def _traces(line: Line, panel: Panel) -> list[dict[str, Any]]:
    """The mean over seeds, and a shade from the lowest seed to the highest."""
    chosen = np.unique(np.linspace(0, len(line.x) - 1, _POINTS, dtype=int))
    x, y = line.x[chosen], line.y[:, chosen]
    hover = f"<b>%{{fullData.name}}</b>{', ' + line.what if line.what else ''}<br>{panel.x}: %{{x}}"
    hover += f"<br>%{{y:.4~g}}{panel.y_axis.get('ticksuffix', '')}<extra></extra>"
    about = {"meta": line.arm, "name": escape(line.name), "mode": "lines"}
    look = {"line": line.look, "hovertemplate": hover}
    drawn = about | {"x": _array(x), "y": _array(y.mean(0))} | look
    if len(x) == 1:  # a line with one point would not be seen
        drawn |= {"mode": "markers", "marker": {"color": line.look["color"]}}
    if len(y) == 1 or line.dash:
        return [drawn]
    low, high = y.min(0), y.max(0)
    shade = about | {
        "x": _array(np.concatenate([x, x[::-1]])), "y": _array(np.concatenate([high, low[::-1]])),
        "fill": "toself", "fillcolor": f"{line.look['color']}26", "line": {"width": 0},
        "hoverinfo": "skip",
    }  # fmt: skip
    return [shade, drawn]


def _array(values: np.ndarray) -> dict[str, str]:
    """An array as Plotly reads it from JSON without a digit of text."""
    dtype = "i4" if values.dtype.kind == "i" else "f4"
    data = values.astype(f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(data).decode()}


def draw(arms: Mapping[str, Series], path: Path, title: str = "") -> Path:
    """Writes a PNG of four figures: accuracy or loss by upload and by round, and who spoke when."""
    figure = require("matplotlib.figure", "report").Figure(figsize=(11, 8), layout="constrained")
    figure.suptitle(title)
    handles: dict[str, Any] = {}
    for axes, (panel, lines) in zip(figure.subplots(2, 2).flat, planned(arms)[:4], strict=False):
        for line in lines:
            colour, dash, width = line.look.values()
            (curve,) = axes.plot(line.x, line.y.mean(0), _STYLES[dash], color=colour, lw=width,
                                 marker="o" * (len(line.x) == 1))  # fmt: skip
            handles.setdefault(line.name, curve)
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

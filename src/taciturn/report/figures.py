"""Figures of a page: Plotly's JSON, with curves thinned to what a screen can show."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np

from taciturn.report.colours import styles
from taciturn.report.series import Series
from taciturn.report.units import unit

_CURVES_BYTES = 700_000  # of all curves of a page
_POINT_BYTES = 8  # a round and a float32 in base64
_MOST, _LEAST = 1000, 60  # points of a curve
_STRETCHES = 200  # of rounds, where means are drawn

Panel = dict[str, Any]


class Line(NamedTuple):
    """What is drawn of an arm: `y` is (seeds, points), and is drawn as mean and shade."""

    x: np.ndarray
    y: np.ndarray
    what: str = ""  # named when one points at it, where an arm has two lines
    dash: str | None = None


def panels(arms: Mapping[str, Series]) -> list[Panel]:
    """A figure for each thing that was measured; none for what was not."""
    total = max((s.uploaded[:, -1].mean() for s in arms.values()), default=0.0)
    size, unit_name = unit(total)
    shares = all(np.isfinite(s.asked).all() and (s.asked > 0).all() for s in arms.values())
    percent, from_zero = {"ticksuffix": " %"}, {"rangemode": "tozero"}
    # What differs from round to round would fill a panel with colour: means of stretches are drawn.
    wide = -(-max((s.rounds for s in arms.values()), default=1) // _STRETCHES)
    means = f", means of {wide} rounds" if wide > 1 else ""

    # Where numbers are predicted there is no accuracy.
    score = "accuracy" if any(np.isfinite(s.accuracy).any() for s in arms.values()) else "loss"
    score_axis = percent if score == "accuracy" else {}

    def scores(s: Series) -> np.ndarray:
        return 100 * s.accuracy if score == "accuracy" else s.loss

    def by_upload(s: Series) -> Iterable[Line]:
        sent, tested = s.uploaded.mean(0) / size, _tested(scores(s))
        tested &= sent > 0  # a log axis has no place for nothing
        if tested.any():
            yield Line(sent[tested], scores(s)[:, tested])

    def sums(s: Series) -> Iterable[Line]:
        yield from _measured(s, s.uploaded / size, "up")
        down = (s.bytes_down + s.overhead_down).cumsum(1) / size
        yield from _measured(s, down, "down", "dot")

    def norms(s: Series) -> Iterable[Line]:
        yield from _measured(s, s.threshold, "threshold", wide=wide)
        yield from _measured(s, s.norm_mean, "mean norm", "dot", wide)

    def spoke(s: Series) -> Iterable[Line]:
        return _measured(s, 100 * s.spoke / s.asked if shares else s.spoke, wide=wide)

    made = [
        _panel(score, f"{score.title()} by round", "round", "on the test set", score_axis),
        _panel(f"{score}-upload", f"{score.title()} by upload",
               f"payload and overhead uploaded, {unit_name}", "on the test set", score_axis,
               {"type": "log"}),
        _panel("worst-tenth", "The worst tenth of clients", "round", "their accuracy",
               percent),
        _panel("spoke", "Who spoke", "round",
               ("share of the clients asked" if shares else "clients") + means,
               percent | from_zero if shares else from_zero),
        _panel("norms", "Thresholds and norms", "round",
               f"the rule's threshold, and (dotted) the mean norm of updates{means}", from_zero),
        _panel("bytes", "Bytes up and down", "round",
               f"{unit_name} since the start, up and (dotted) down", {"type": "log"}),
        _panel("bits", "Bits per weight", "round", f"of payload, over all clients asked{means}",
               {"type": "log", "dtick": "D2"}),
        _panel("rejected", "Rejected replies", "round", "since the start", from_zero),
    ]  # fmt: skip
    draw: dict[str, Callable[[Series], Iterable[Line]]] = {
        score: lambda s: _measured(s, scores(s)),
        f"{score}-upload": by_upload,
        "worst-tenth": lambda s: _measured(s, 100 * s.worst_tenth),
        "spoke": spoke,
        "norms": norms,
        "bytes": sums,
        "bits": lambda s: _measured(s, bits(s), wide=wide),
        "rejected": lambda s: _measured(s, s.rejected.cumsum(1)) if s.rejected.any() else (),
    }
    for i, metric in enumerate(dict.fromkeys(name for s in arms.values() for name in s.metrics)):
        made.append(_panel(f"metric-{i}", metric, "round", "on the test set", {}))
        draw[f"metric-{i}"] = functools.partial(_metric, name=metric)
    lines = {panel["key"]: {name: list(draw[panel["key"]](s)) for name, s in arms.items()}
             for panel in made}  # fmt: skip
    curves = sum(1 if len(line.y) == 1 else 4
                 for panel in lines.values() for own in panel.values() for line in own)  # fmt: skip
    points = int(np.clip(_CURVES_BYTES / _POINT_BYTES / max(curves, 1), _LEAST, _MOST))
    looks = dict(zip(arms, styles([s.arm for s in arms.values()]), strict=True))
    for panel in made:
        for i, (name, own) in enumerate(lines[panel["key"]].items()):
            for line in own:
                panel["data"] += _traces(i, name, line, looks[name], points, panel["layout"])
    return [panel for panel in made if panel["data"]]


def _metric(s: Series, name: str) -> Iterable[Line]:
    """A metric of the task's own."""
    return _measured(s, s.metrics[name]) if name in s.metrics else ()


def bits(s: Series) -> np.ndarray:
    """Bits of payload for each weight, over all clients that were asked; 32 is everything."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = 32 * s.bytes_up / (s.bytes_up_full - s.overhead_up)
    return np.where(np.isfinite(found), found, np.nan)


def thin(curve: np.ndarray, most: int) -> np.ndarray:
    """Which points of a curve to draw: as seen on a screen, it stays the same.

    Of every stretch the lowest and the highest point, and the two ends of the curve.
    """
    count = len(curve)
    if count <= most:
        return np.arange(count)
    wide = -(-count // (most // 2 - 1))
    padded = np.full(-(-count // wide) * wide, np.nan)
    padded[:count] = curve
    stretches = padded.reshape(-1, wide)
    lowest = np.where(np.isnan(stretches), np.inf, stretches).argmin(1)
    highest = np.where(np.isnan(stretches), -np.inf, stretches).argmax(1)
    starts = np.arange(len(stretches)) * wide
    return np.unique(np.concatenate([[0, count - 1], starts + lowest, starts + highest]))


def _tested(values: np.ndarray) -> np.ndarray:
    """Which rounds were measured in every seed."""
    return np.isfinite(values).all(0)


def _measured(
    s: Series, values: np.ndarray, what: str = "", dash: str | None = None, wide: int = 1
) -> Iterable[Line]:
    """A line over rounds, counted from 1, or over means of `wide` rounds; none where nothing was
    measured."""
    shown = _tested(values)
    x, y = np.arange(1, s.rounds + 1)[shown], values[:, shown]
    if wide > 1 and len(x) > wide:
        starts = np.arange(0, len(x), wide)
        counts = np.diff(starts, append=len(x))
        x, y = x[starts + counts - 1], np.add.reduceat(y, starts, axis=1) / counts
    if len(x):
        yield Line(x, y, what, dash)


def _panel(
    key: str, title: str, x: str, note: str, y_axis: dict[str, Any], x_axis: Any = None
) -> Panel:
    layout = {"xaxis": {"title": {"text": x}} | (x_axis or {}), "yaxis": dict(y_axis)}
    for axis in layout.values():
        axis["exponentformat"] = "none"
    return {"key": key, "title": title, "note": note, "data": [], "layout": layout}


def _traces(
    arm: int, name: str, line: Line, look: tuple[str, str], points: int, layout: dict[str, Any]
) -> list[dict[str, Any]]:
    """The mean over seeds, and a shade from the lowest seed to the highest."""
    colour, dash = look
    if layout["yaxis"].get("type") == "log":  # which has no place for nothing
        shown = (line.y > 0).all(0)
        line = line._replace(x=line.x[shown], y=line.y[:, shown])
    if not len(line.x):
        return []
    mean = line.y.mean(0)
    chosen = thin(mean, points)
    x, mean = line.x[chosen], mean[chosen]
    after = layout["yaxis"].get("ticksuffix", "")
    at = layout["xaxis"]["title"]["text"]
    about = {"meta": arm, "name": escape(name), "mode": "lines"}
    hover = f"<b>%{{fullData.name}}</b>{', ' + line.what if line.what else ''}"
    drawn = about | {
        "x": _array(x), "y": _array(mean),
        "line": {"color": colour, "dash": line.dash or dash, "width": 1.5},
        "hovertemplate": f"{hover}<br>{at}: %{{x}}<br>%{{y:.4~g}}{after}<extra></extra>",
    }  # fmt: skip
    if len(x) == 1:  # a line with one point would not be seen
        drawn |= {"mode": "markers", "marker": {"color": colour}}
    if len(line.y) == 1:
        return [drawn]
    low, high = line.y.min(0)[chosen], line.y.max(0)[chosen]
    shade = about | {
        "x": _array(np.concatenate([x, x[::-1]])), "y": _array(np.concatenate([high, low[::-1]])),
        "fill": "toself", "fillcolor": f"{colour}26", "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip
    return [shade, drawn]


def _array(values: np.ndarray) -> dict[str, str]:
    """An array as Plotly reads it from JSON without a digit of text."""
    dtype = "f4"
    if values.dtype.kind == "i":
        dtype = "i2" if len(values) == 0 or values.max() < 2**15 else "i4"
    data = np.asarray(values, f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(data).decode()}

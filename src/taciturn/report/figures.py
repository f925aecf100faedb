"""Figures of a page: Plotly's JSON, with curves thinned to what a screen can show."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np

from taciturn.report.colours import styles
from taciturn.report.series import Series
from taciturn.report.units import unit

_CURVES_BYTES = 700_000  # of all curves of a page
_POINT_BYTES = 11  # two numbers of four bytes in base64
_MOST, _LEAST = 1000, 60  # points of a curve
_STRETCHES = 200  # of rounds, where means are drawn
_LOG = {"type": "log"}
_PERCENT = {"ticksuffix": " %"}
_FROM_ZERO = {"rangemode": "tozero"}

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
    shares = all(np.isfinite(s["asked"]).all() and (s["asked"] > 0).all() for s in arms.values())
    # What differs from round to round would fill a panel with colour: means of stretches are drawn.
    wide = -(-max((s.rounds for s in arms.values()), default=1) // _STRETCHES)
    means = f", means of {wide} rounds" if wide > 1 else ""
    # Where numbers are predicted there is no accuracy.
    accurate = any(np.isfinite(s["accuracy"]).any() for s in arms.values())
    score, score_axis = ("accuracy", _PERCENT) if accurate else ("loss", {})
    spoke = f"share of the clients asked{means}" if shares else f"clients{means}"
    found: list[Panel] = []
    lines: list[dict[str, list[Line]]] = []

    def add(
        key: str,
        title: str,
        note: str,
        draw: Callable[[Series], Iterable[Line]],
        y_axis: Mapping[str, Any],
        x: str = "round",
        x_axis: Mapping[str, Any] | None = None,
    ) -> None:
        layout = {"xaxis": {"title": {"text": x}, **(x_axis or {})}, "yaxis": dict(y_axis)}
        for axis in layout.values():
            axis["exponentformat"] = "none"
        found.append({"key": key, "title": title, "note": note, "data": [], "layout": layout})
        lines.append({name: list(draw(s)) for name, s in arms.items()})

    def scores(s: Series) -> np.ndarray:
        return 100 * s["accuracy"] if accurate else s["loss"]

    def by_upload(s: Series) -> Iterable[Line]:
        sent, tested = s.uploaded.mean(0) / size, _tested(scores(s))
        tested &= sent > 0  # a log axis has no place for nothing
        if tested.any():
            yield Line(sent[tested], scores(s)[:, tested])

    def both_ways(s: Series) -> Iterable[Line]:
        yield from _measured(s, s.uploaded / size, "up")
        down = (s["bytes_down"] + s["overhead_down"]).cumsum(1) / size
        yield from _measured(s, down, "down", "dot")

    def norms(s: Series) -> Iterable[Line]:
        yield from _measured(s, s["threshold"], "threshold", wide=wide)
        yield from _measured(s, s["norm_mean"], "mean norm", "dot", wide)

    def spoken(s: Series) -> Iterable[Line]:
        return _measured(s, 100 * s["spoke"] / s["asked"] if shares else s["spoke"], wide=wide)

    def own_metric(name: str) -> Callable[[Series], Iterable[Line]]:
        return lambda s: _measured(s, s.metrics[name]) if name in s.metrics else ()

    add(score, f"{score.title()} by round", "on the test set",
        lambda s: _measured(s, scores(s)), score_axis)  # fmt: skip
    add(f"{score}-upload", f"{score.title()} by upload", "on the test set", by_upload, score_axis,
        f"payload and overhead uploaded, {unit_name}", _LOG)  # fmt: skip
    add("worst-tenth", "The worst tenth of clients", "their accuracy",
        lambda s: _measured(s, 100 * s["worst_tenth"]), _PERCENT)  # fmt: skip
    add("spoke", "Who spoke", spoke, spoken, _FROM_ZERO | (_PERCENT if shares else {}))
    add("norms", "Thresholds and norms",
        f"the rule's threshold, and (dotted) the mean norm of updates{means}",
        norms, _FROM_ZERO)  # fmt: skip
    add("bytes", "Bytes up and down", f"{unit_name} since the start, up and (dotted) down",
        both_ways, _LOG)  # fmt: skip
    add("bits", "Bits per weight", f"of payload, over all clients asked{means}",
        lambda s: _measured(s, bits(s), wide=wide), _LOG | {"dtick": "D2"})  # fmt: skip
    add("rejected", "Rejected replies", "since the start",
        lambda s: _measured(s, s["rejected"].cumsum(1)) if s["rejected"].any() else (),
        _FROM_ZERO)  # fmt: skip
    for i, metric in enumerate(dict.fromkeys(name for s in arms.values() for name in s.metrics)):
        add(f"metric-{i}", metric, "on the test set", own_metric(metric), {})

    curves = sum(1 if len(line.y) == 1 else 4
                 for panel in lines for own in panel.values() for line in own)  # fmt: skip
    points = int(np.clip(_CURVES_BYTES / _POINT_BYTES / max(curves, 1), _LEAST, _MOST))
    looks = styles([s.arm for s in arms.values()])
    for panel, drawn in zip(found, lines, strict=True):
        for i, (name, own) in enumerate(drawn.items()):
            for line in own:
                panel["data"] += _traces(i, name, line, looks[i], points, panel["layout"])
    return [panel for panel in found if panel["data"]]


def bits(s: Series) -> np.ndarray:
    """Bits of payload for each weight, over all clients that were asked; 32 is everything."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = 32 * s["bytes_up"] / (s["bytes_up_full"] - s["overhead_up"])
    return np.where(np.isfinite(found), found, np.nan)


def thin(curve: np.ndarray, most: int) -> np.ndarray:
    """Which points of a curve to draw, so that it looks the same on a screen.

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
    """A line over the rounds that were measured, or over means of `wide` of them."""
    shown = _tested(values)
    x, y = np.arange(1, s.rounds + 1)[shown], values[:, shown]
    if wide > 1 and len(x) > wide:
        starts = np.arange(0, len(x), wide)
        counts = np.diff(starts, append=len(x))
        x, y = x[starts + counts - 1], np.add.reduceat(y, starts, axis=1) / counts
    if len(x):
        yield Line(x, y, what, dash)


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
    after, at = layout["yaxis"].get("ticksuffix", ""), layout["xaxis"]["title"]["text"]
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
    dtype = "i4" if values.dtype.kind == "i" else "f4"
    data = np.asarray(values, f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(data).decode()}

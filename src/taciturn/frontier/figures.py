"""The picture of the frontier: accuracy against uploaded bytes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from taciturn.core.policy import parse
from taciturn.frontier.front import FULL, Point, pareto, points, recommended
from taciturn.report.colours import GREY
from taciturn.report.units import byte_axis
from taciturn.studies.difference import MARGIN
from taciturn.studies.figure import Label, place_labels
from taciturn.studies.results import Results

# Kinds of policies and their colours.
_KINDS = {
    "full communication": GREY,
    "budgets": "#D7263D",
    "silence": "#009E73",
    "sampling": "#A6761D",
    "eden": "#0072B2",
    "quantize": "#E69F00",
    "sparse_ternary, top_k": "#8C6BB1",
    "peaks": "#CC79A7",
    "others": "#333333",
}
_CODECS = {"eden": "eden", "quantize": "quantize", "sparse_ternary": "sparse_ternary, top_k",
           "top_k": "sparse_ternary, top_k", "peaks": "peaks"}  # fmt: skip
_RULES = {"budget": "budgets", "adaptive": "silence", "fixed": "silence", "optimal": "sampling",
          "random": "sampling"}  # fmt: skip
_LEAST = 3.0  # points below full communication that are shown at the least
_MOST = 14  # policies that a picture has: with more, names do not find room


def frontier(result: Results) -> Figure:
    """Where policies end, each with its name, and the way there.

    What ends far below the others is an arrow at the lower edge with its accuracy. Of more policies
    than can be read, the title says how many there are.
    """
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots()
    everyone = points(result)
    found = _shown(everyone, result)
    kinds = {point.name: _kind(point, result) for point in found}
    best = recommended(found)
    level = float(result.arms[FULL].at().mean())
    lowest = _look_closer(axes, found, level)
    labels = []
    for point in found:
        arm, tone, end = result.arms[point.name], _KINDS[kinds[point.name]], point.accuracy.mean()
        sent, chosen, below = arm.uploaded.mean(0), point is best, end < lowest
        axes.plot(sent, arm.accuracy.mean(0), color=tone, lw=0.9, alpha=0.35, zorder=1)
        axes.plot(
            point.uploaded, lowest if below else end, marker=_marker(chosen, below),
            ms=17 if chosen else 7, color=tone, mec="white", mew=0.8, ls="", zorder=4,
            clip_on=False,
        )  # fmt: skip
        name = f"{point.name}: {end:.1f} %" if below else point.name
        labels.append(Label(name, point.uploaded, max(end, lowest), tone, chosen))
    front = sorted((p.uploaded, p.accuracy.mean()) for p in found if p.on_front)
    front.append((axes.get_xlim()[1], front[-1][1]))  # more bytes give no more
    axes.plot(*zip(*front, strict=True), color="0.45", lw=1, ls="--", zorder=2,
              drawstyle="steps-post")  # fmt: skip
    axes.axhspan(level - MARGIN, level, color="0.5", alpha=0.13, lw=0, zorder=0)
    axes.set(xlabel="uploaded by all clients", ylabel=f"{result.measure}, %")
    left_out = f", {len(found)} of {len(everyone)} policies" * (len(found) < len(everyone))
    axes.set_title(f"{result.experiment.title}{left_out}")
    axes.grid(alpha=0.25)
    _legend(figure, [kind for kind in _KINDS if kind in kinds.values()], best is not None)
    place_labels(axes, labels)
    return figure


def _shown(found: list[Point], result: Results) -> list[Point]:
    """All policies, or of more than can be read: first full communication, the recommended one and
    the front, then the most accurate of those with the same rule and codec, then those that no
    other of these beats."""
    if len(found) <= _MOST:
        return found
    alike: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for point in found:
        policy = parse(point.policy)
        own = (point.name,) if point.name in result.experiment.own else ()
        ends = alike.setdefault((policy.rule.name, policy.codec.name, *own), {})
        ends[point.name] = point.uploaded, float(point.accuracy.mean())
    first = [p.name for p in found if p.on_front or p.name == FULL or p is recommended(found)]
    second = [max(ends, key=lambda name: ends[name][1]) for ends in alike.values()]
    third = [name for ends in alike.values() for name in ends if name in pareto(ends)]
    names = list(dict.fromkeys([*first, *second, *third]))[:_MOST]
    return [point for point in found if point.name in names]


def _kind(point: Point, result: Results) -> str:
    """Which of `_KINDS` a policy is."""
    if point.name == FULL:
        return "full communication"
    policy = parse(point.policy)
    if point.name in result.experiment.own:  # it chooses its cohorts
        return "sampling"
    return _RULES.get(policy.rule.name) or _CODECS.get(policy.codec.name, "others")


def _marker(chosen: bool, below: bool) -> str:
    return "v" if below else "*" if chosen else "o"


def _legend(figure: Figure, kinds: list[str], best: bool) -> None:
    """What colours and signs mean, below the picture."""
    signs: list[Line2D | Patch] = [
        Line2D([], [], color=_KINDS[kind], marker="o", ls="", mec="white", label=kind)
        for kind in kinds
    ]
    if best:
        tone = _KINDS["budgets"]
        signs.append(Line2D([], [], color=tone, marker="*", ms=13, ls="", mec="white",
                            label="recommended"))  # fmt: skip
    signs.append(Line2D([], [], color="0.45", lw=1, ls="--", label="Pareto front"))
    signs.append(Patch(fc="0.5", alpha=0.2, label=f"{MARGIN:g} points below full"))
    figure.legend(handles=signs, loc="outside lower center", ncols=6, fontsize=9, frameon=False)


def _look_closer(axes: Axes, found: list[Point], level: float) -> float:
    """Shows the zone that decides: as far below full communication as above; its lower edge."""
    ends = [float(point.accuracy.mean()) for point in found]
    sent = [point.uploaded for point in found]
    room = max(_LEAST, max(ends) - level)
    lowest = max(level - room, min(ends) - 0.15 * room)
    axes.set_ylim(lowest, max(ends) + 0.2 * (max(ends) - lowest))
    axes.set_xscale("log")
    least, most = min(sent) / 4, max(sent) * 4
    ticks = byte_axis(least, most)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    axes.set_xlim(least, most)
    return lowest

"""The tables of the frontier."""

from collections.abc import Iterable
from typing import Any

from taciturn.core.policy import parse
from taciturn.frontier.front import FULL, Point, points, recommended
from taciturn.report.page import SHARES
from taciturn.report.units import byte_text
from taciturn.studies.difference import Difference
from taciturn.studies.results import WHO_PAYS, Results
from taciturn.studies.table import Spread, Table


def frontier(result: Results) -> Table:
    """Accuracy and upload of every policy, those that upload least at the end."""
    found = points(result)
    best = recommended(found)
    seeds = max(len(point.accuracy) for point in found)
    title = (
        f"{result.experiment.title}, {result.cohort} clients in a round, "
        f"{seeds} seed{'s' * (seeds > 1)}."
    )
    columns = (
        "policy", f"{result.measure} %", "− full", "upload %", "bytes", "front",
        *(f"to {100 * share:g} %" for share in SHARES),
    )  # fmt: skip
    return Table(title, columns, [_row(point, point is best) for point in _ordered(found)])


def who_pays(result: Results) -> Table:
    """The tenth of clients that fares worst, and how often small and large clients are silent."""
    everyone = points(result)
    best = recommended(everyone)
    found = [point for point in _ordered(everyone) if result.arms[point.name].who_pays]
    rows = [
        (
            _name(point, point is best),
            *(
                Spread(own[key]) if key in own else None
                for own in (result.arms[point.name].who_pays,)
                for key in WHO_PAYS
            ),
        )
        for point in found
    ]
    title = f"{result.experiment.title}: who pays."
    columns = ("policy", "worst tenth %", "small clients silent %", "large clients silent %")
    return Table(title, columns, rows)


# Stand-ins that are compared: the rule, which, and with which other.
_COMPARED = [
    *(("adaptive", own, other) for own in ("own",) for other in ("ignore", "ou")),
    ("adaptive", "ou", "ignore"),
    *(("optimal", own, "zero") for own in ("ou", "last")),
]


def stand_ins(results: Iterable[Results]) -> Table:
    """What stand-ins gain over others where silence is all that saves bytes, and where they win."""
    found = {result.experiment.title: (result, _silent(result)) for result in results}
    gaps = {
        (pair, title): result.gap(arms[pair[0], pair[1]], arms[pair[0], pair[2]])
        for title, (result, arms) in found.items()
        for pair in _COMPARED
        if {(pair[0], pair[1]), (pair[0], pair[2])} <= arms.keys()
    }
    titles = [title for title in found if any(title == where for _, where in gaps)]
    rows = []
    for pair in _COMPARED:
        own = {title: gaps[pair, title] for title in titles if (pair, title) in gaps}
        cells = [_signed(own[title]) if title in own else None for title in titles]
        wins = [title for title, gap in own.items() if gap.ahead]
        rule, first, second = pair
        if own:
            names = (f"`{first}`", f"`{second}`", f"`{rule}`")
            rows.append((*names, *cells, "; ".join(wins) or "nowhere"))
    return Table("", ("stand-in", "compared with", "under", *titles, "ahead on"), rows)


def _silent(result: Results) -> dict[tuple[str, str], str]:
    """The arms that save by silence alone, by rule and stand-in."""
    policies = {name: parse(arm.policy) for name, arm in result.arms.items()}
    return {
        (policy.rule.name, policy.stand_in.name): name
        for name, policy in policies.items()
        if policy.codec.name == "float32" and policy.rule.name in ("adaptive", "optimal")
    }


def _ordered(found: Iterable[Point]) -> list[Point]:
    """Full communication, and then those that upload most."""
    return sorted(found, key=lambda point: (point.name != FULL, -point.uploaded))


def _name(point: Point, best: bool) -> str:
    return f"**{point.name}**" if best else point.name


def _row(point: Point, best: bool) -> tuple[Any, ...]:
    gap = point.gap
    return (
        _name(point, best),
        Spread(point.accuracy),
        None if gap is None else _signed(gap),
        Spread(point.share, _digits(float(point.share.mean()))),
        byte_text(point.uploaded),
        "●" if point.on_front else None,
        *(None if sent is None else byte_text(sent) for sent in point.reached.values()),
    )


def _signed(gap: Difference) -> str:
    return f"{gap.mean:+.2f}" if gap.half == float("inf") else f"{gap.mean:+.2f} ± {gap.half:.2f}"


def _digits(share: float) -> int:
    """Three of them, for shares that go from a thousandth to all."""
    return 1 if share >= 10 else 2 if share >= 1 else 3

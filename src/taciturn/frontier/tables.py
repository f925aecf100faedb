"""The table of the frontier."""

from collections.abc import Iterable
from typing import Any

from taciturn.frontier.front import FULL, Point, points, recommended
from taciturn.report.page import SHARES
from taciturn.report.units import byte_text
from taciturn.studies.difference import Difference
from taciturn.studies.results import WHO_PAYS, Results
from taciturn.studies.table import Spread, Table


def frontier(result: Results) -> Table:
    """Accuracy and upload of every policy, those that upload least at the end.

    The accuracy of the worst tenth of clients is a column where the runs have it.
    """
    found = _ordered(points(result))
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
    rows = [_row(point, point is best) for point in found]
    worst = [result.arms[point.name].who_pays.get(WHO_PAYS[0]) for point in found]
    if any(tenth is not None for tenth in worst):
        columns = (*columns, "worst tenth %")
        rows = [(*row, None if tenth is None else Spread(tenth))
                for row, tenth in zip(rows, worst, strict=True)]  # fmt: skip
    return Table(title, columns, rows)


def _ordered(found: Iterable[Point]) -> list[Point]:
    """Full communication, and then those that upload most."""
    return sorted(found, key=lambda point: (point.name != FULL, -point.uploaded))


def _row(point: Point, best: bool) -> tuple[Any, ...]:
    gap = point.gap
    return (
        f"**{point.name}**" if best else point.name,
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

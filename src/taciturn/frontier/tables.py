"""The tables of the frontier."""

from typing import Any

from taciturn.frontier.front import FULL, Point, points, recommended
from taciturn.report.page import SHARES
from taciturn.report.units import byte_text
from taciturn.studies.results import WHO_PAYS, Results
from taciturn.studies.table import Spread, Table


def frontier(result: Results) -> Table:
    """Accuracy and upload of every policy, those that upload least at the end."""
    found = points(result)
    best = recommended(found)
    seeds = max(len(point.accuracy) for point in found)
    title = (
        f"{result.experiment.title}: after {result.rounds} rounds, N = {result.cohort}, "
        f"{seeds} seed{'s' * (seeds > 1)}."
    )
    columns = (
        "policy", f"{result.measure} %", "− full", "upload %", "bytes", "front",
        *(f"to {100 * share:g} %" for share in SHARES),
    )  # fmt: skip
    ordered = sorted(found, key=lambda point: (point.name != FULL, -point.uploaded))
    return Table(title, columns, [_row(point, point is best) for point in ordered])


def who_pays(result: Results) -> Table:
    """The tenth of clients that fares worst, and how often small and large clients are silent."""
    found = [point for point in points(result) if result.arms[point.name].who_pays]
    rows = [
        (
            point.name,
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


def _row(point: Point, best: bool) -> tuple[Any, ...]:
    gap = point.gap
    return (
        f"**{point.name}**" if best else point.name,
        Spread(point.accuracy),
        None if gap is None else _signed(gap.mean, gap.half),
        Spread(point.share, _digits(float(point.share.mean()))),
        byte_text(point.uploaded),
        "●" if point.on_front else None,
        *(None if sent is None else byte_text(sent) for sent in point.reached.values()),
    )


def _signed(mean: float, half: float) -> str:
    return f"{mean:+.2f}" if half == float("inf") else f"{mean:+.2f} ± {half:.2f}"


def _digits(share: float) -> int:
    """Three of them, for shares that go from a thousandth to all."""
    return 1 if share >= 10 else 2 if share >= 1 else 3

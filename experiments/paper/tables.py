"""The paper's tables: its number, and ours as mean ± standard deviation over seeds."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from experiments.paper import measures, published, setting_tables
from experiments.paper.comparing import collapsed, of_all
from experiments.paper.experiments import (
    ARMS,
    BY_COHORT,
    EMNIST,
    MAIN,
    NUMERICS,
    SHAKESPEARE,
    SYNTHETIC,
    UNWEIGHTED,
)
from experiments.paper.measures import ROUNDS, TARGET, first_at
from experiments.paper.setting_tables import TRIED
from taciturn.studies.results import Arm, Recipe, Results
from taciturn.studies.table import NOT_RUN, Spread, Table, cell

_BY_N = SHAKESPEARE.numbers()["rounds"]  # rounds of the tables by N


def main(results: Mapping[str, Results]) -> Table:
    """Accuracy, upload and its share of full communication."""
    columns = ("data set", "method", "seeds", "accuracy %", "paper", "median %", "collapsed",
               "GiB", "paper", "share %", "paper", "rejected")  # fmt: skip
    rows = [row for result in results.values() for row in _main_rows(result)]
    after = sorted({min(ROUNDS, result.rounds) for result in results.values()} or {ROUNDS})
    told = " and ".join(map(str, after))
    return Table(f"Accuracy and upload after {told} rounds.", columns, rows)


def main_of(result: Results) -> Table:
    """The main table of one data set."""
    table = main({result.experiment.name: result})
    printed = " (the paper's table 2)" if result.experiment in MAIN else ""
    title = (
        f"{result.experiment.title}{printed}: accuracy and upload after "
        f"{min(ROUNDS, result.rounds)} rounds, N = {result.cohort}; ± is the standard deviation "
        f"over seeds."
    )
    return Table(title, table.columns[1:], [row[1:] for row in table.rows])


def _main_rows(result: Results) -> Iterable[tuple[Any, ...]]:
    title, digits = result.experiment.title, 2 if result.size > 100_000 else 5
    for name in result.experiment.arms:
        was = published.MAIN.get(result.experiment.task, {}).get(published_as(name))
        arm = result.arms.get(name)
        printed = (None, None, None) if was is None else was
        if arm is None:
            yield (title, name, 0, NOT_RUN, printed[0], NOT_RUN, NOT_RUN,
                   NOT_RUN, printed[1], NOT_RUN, printed[2], NOT_RUN)  # fmt: skip
            continue
        fallen = None if name == "full" else collapsed(result, name, ROUNDS)
        yield (
            title,
            name,
            len(arm.seeds),
            Spread(arm.at(ROUNDS)),
            printed[0],
            f"{np.median(arm.at(ROUNDS)):.2f}",
            None if fallen is None else of_all(fallen),
            Spread(result.gib(name, ROUNDS), digits),
            printed[1],
            Spread(result.share(name, ROUNDS), 1),
            printed[2],
            None if arm.rejected is None else f"{_rejected(result, arm):.1f} %",
        )


def _rejected(result: Results, arm: Arm) -> float:
    """Replies that were not finite, in % of all."""
    assert arm.rejected is not None
    return float(100 * arm.rejected.mean() / (result.rounds * result.cohort))


def published_as(arm: str) -> str:
    """The paper's arm that an arm is compared with: it has one `ou` and one threshold."""
    return arm.removesuffix(" constrained").replace(UNWEIGHTED, "")


def collapses(results: Mapping[str, Results]) -> Table:
    """How often the paper's estimator collapses."""
    columns = ("data set", "method", "collapsed", "95 % interval of the rate", "precision")
    rows: list[tuple[Any, ...]] = []
    for experiment in (*MAIN, *NUMERICS):
        result = results.get(experiment.name)
        for name, text in experiment.arms.items():
            if not text.endswith(("mode=paper", "author_sums")):
                continue
            if result is None or name not in result.arms:
                rows.append((experiment.title, name, NOT_RUN, None, None))
                continue
            fallen = collapsed(result, name, ROUNDS)
            low, high = _rate_interval(int(fallen.sum()), len(fallen))
            interval = f"{100 * low:.0f} to {100 * high:.0f} %"
            precision = result.made_with["precision"]
            rows.append((experiment.title, name, of_all(fallen), interval, precision))
    return Table("Runs of the paper's estimator that collapse.", columns, rows)


def _rate_interval(count: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a rate."""
    found = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return float(found.low), float(found.high)


def clients(results: Mapping[str, Results]) -> Table:
    """Shakespeare's accuracy by N."""
    return _by_cohort(
        results,
        f"Shakespeare (the paper's table 6): accuracy in % after {_BY_N} rounds, by N; ± is the "
        f"standard deviation over seeds.",
        list(ARMS),
        lambda result, arm: Spread(result.arms[arm].at()),
        published.ACCURACY_BY_COHORT,
    )


def upload(results: Mapping[str, Results]) -> Table:
    """Shakespeare's upload by N."""
    return _by_cohort(
        results,
        f"Shakespeare (the paper's table 7): upload in % of full communication over {_BY_N} "
        f"rounds, by N; ± is the standard deviation over seeds.",
        [arm for arm in ARMS if arm.startswith("adaptive")],
        lambda result, arm: Spread(result.share(arm)),
        published.SHARE_BY_COHORT,
    )


def _by_cohort(
    results: Mapping[str, Results],
    title: str,
    arms: list[str],
    value: Callable[[Results, str], Spread],
    was: Mapping[str, Mapping[int, float]],
) -> Table:
    columns = ("method", *(text for cohort in BY_COHORT for text in (f"N = {cohort}", "paper")))
    rows = [
        (
            arm,
            *(
                value_or_printed
                for cohort, experiment in BY_COHORT.items()
                for value_or_printed in (
                    cell(results.get(experiment.name), arm, value),
                    was.get(published_as(arm), {}).get(cohort),
                )
            ),
        )
        for arm in arms
    ]
    return Table(title, columns, rows)


def thresholds(results: Mapping[str, Results]) -> Table:
    """Mean threshold over rounds, and its deviation over rounds."""
    columns = ["method"]
    for result in results.values():
        title = result.experiment.title
        columns += [f"{title} mean", "paper", f"{title} deviation over rounds", "paper"]
    rows = []
    arms = [a for r in results.values() for a in r.experiment.arms if a.startswith("adaptive")]
    for arm in dict.fromkeys(arms):
        row: list[Any] = [arm]
        for result in results.values():
            printed = published.THRESHOLD.get(result.experiment.task, {}).get(published_as(arm))
            was = printed or published.Threshold(None, None)
            mean = cell(result, arm, lambda r, a: Spread(measures.mean_threshold(r, a), 3))
            deviation = cell(result, arm, lambda r, a: Spread(measures.spread(r, a), 3))
            row += [mean, was.mean, deviation, was.deviation]
        rows.append(tuple(row))
    return Table(
        f"Thresholds of rounds 2 to {ROUNDS} (the paper's table 8); ± is the standard deviation "
        f"over seeds.",
        tuple(columns),
        rows,
    )


def reached(results: Mapping[str, Results]) -> Table:
    """Bytes and rounds to a share of the final accuracy of full communication."""
    columns = ["method"]
    for result in results.values():
        columns += [f"{result.experiment.title} GiB", "rounds"]
    names = dict.fromkeys(arm for result in results.values() for arm in result.experiment.arms)
    rows = []
    for name in names:
        row: list[Any] = [name]
        for result in results.values():
            row += list(_reached(result, name))
        rows.append(tuple(row))
    return Table(
        f"GiB uploaded and rounds until the median over seeds has {100 * TARGET:.0f} % of the "
        f"final accuracy of full communication.",
        tuple(columns),
        rows,
    )


def _reached(result: Results, name: str) -> tuple[str, str]:
    if name not in result.arms or "full" not in result.arms:
        return NOT_RUN, NOT_RUN
    goal = TARGET * float(np.median(result.arms["full"].at(ROUNDS)))
    place = first_at(result.arms[name], goal)
    if place is None:
        return "never", "never"
    arm = result.arms[name]
    return f"{np.median(arm.uploaded[:, place]) / 2**30:.2f}", f"{arm.tested[place]}"


TABLES = {
    "main": Recipe(main, MAIN),
    "synthetic": Recipe(main, (SYNTHETIC,)),
    "collapses": Recipe(collapses, (*MAIN, *NUMERICS)),
    "clients": Recipe(clients, tuple(BY_COHORT.values())),
    "upload": Recipe(upload, tuple(BY_COHORT.values())),
    "thresholds": Recipe(thresholds, MAIN),
    "reached": Recipe(reached, MAIN),
    "emnist-settings": Recipe(setting_tables.emnist_settings, TRIED[EMNIST.task]),
    "settings": Recipe(setting_tables.shakespeare_settings, TRIED[SHAKESPEARE.task]),
    "data": Recipe(setting_tables.data_sets, (EMNIST, SHAKESPEARE, SYNTHETIC)),
}

"""The paper's tables: its number, and ours as mean ± standard deviation over seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from taciturn.paper import published
from taciturn.paper.comparing import collapsed, of_all
from taciturn.paper.experiments import (
    ARMS,
    BY_COHORT,
    EMNIST,
    EMNIST_SETTINGS,
    MAIN,
    NUMERICS,
    SEARCH,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    SYNTHETIC,
    UNWEIGHTED,
    VARIANTS,
)
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Arm, Recipe, Results
from taciturn.studies.table import Spread, Table

ROUNDS = 100  # of the main table
NOT_RUN = "not run"
TARGET = 0.9  # of the final accuracy of full communication, to which bytes and rounds are counted


def main(results: Mapping[str, Results]) -> Table:
    """Accuracy, upload and its share of full communication."""
    columns = ("data set", "method", "seeds", "accuracy %", "paper", "median %", "collapsed",
               "GiB", "paper", "share %", "paper", "rejected")  # fmt: skip
    rows = [row for result in results.values() for row in _main_rows(result)]
    return Table(f"Accuracy and upload after {ROUNDS} rounds.", columns, rows)


def main_of(result: Results) -> Table:
    """The main table of one data set."""
    table = main({result.experiment.name: result})
    title = (
        f"{result.experiment.title}: accuracy and upload after {min(ROUNDS, result.rounds)} "
        f"rounds, N = {result.cohort}; ± is the standard deviation over seeds."
    )
    return Table(title, table.columns[1:], [row[1:] for row in table.rows])


def _main_rows(result: Results) -> Iterable[tuple[Any, ...]]:
    title, digits = result.experiment.title, 2 if result.size > 10_000 else 5
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
        "Shakespeare: accuracy in % after 120 rounds, by N; ± is the standard deviation over "
        "seeds.",
        list(ARMS),
        lambda result, arm: Spread(result.arms[arm].at()),
        published.ACCURACY_BY_COHORT,
    )


def upload(results: Mapping[str, Results]) -> Table:
    """Shakespeare's upload by N."""
    return _by_cohort(
        results,
        "Shakespeare: upload in % of full communication over 120 rounds, by N; ± is the standard "
        "deviation over seeds.",
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
                cell
                for cohort, experiment in BY_COHORT.items()
                for cell in (
                    _cell(results.get(experiment.name), arm, value),
                    was.get(published_as(arm), {}).get(cohort),
                )
            ),
        )
        for arm in arms
    ]
    return Table(title, columns, rows)


def _cell(result: Results | None, arm: str, value: Callable[[Results, str], Any]) -> Any:
    return NOT_RUN if result is None or arm not in result.arms else value(result, arm)


def thresholds(results: Mapping[str, Results]) -> Table:
    """Mean threshold over rounds, and its deviation over rounds."""
    columns = ["stand-in"]
    for result in results.values():
        title = result.experiment.title
        columns += [f"{title} mean", f"{title} deviation over rounds", "paper"]
    rows = []
    arms = [a for r in results.values() for a in r.experiment.arms if a.startswith("adaptive")]
    for arm in dict.fromkeys(arms):
        row: list[Any] = [arm]
        for result in results.values():
            was = published.THRESHOLD.get(result.experiment.task, {}).get(published_as(arm))
            row += [_cell(result, arm, _mean_threshold), _cell(result, arm, _deviation), was]
        rows.append(tuple(row))
    return Table(
        f"Thresholds of rounds 2 to {ROUNDS}; ± is the standard deviation over seeds, except in "
        f"the paper's columns, where it is over rounds.",
        tuple(columns),
        rows,
    )


def _mean_threshold(result: Results, arm: str) -> Spread:
    return Spread(thresholds_after_first(result, arm).mean(1), 3)


def _deviation(result: Results, arm: str) -> Spread:
    return Spread(thresholds_after_first(result, arm).std(1), 3)


def thresholds_after_first(result: Results, arm: str) -> np.ndarray:
    """The thresholds that were learned: in the first round everyone speaks. (seeds, rounds − 1)."""
    return result.arms[arm].threshold[:, 1:ROUNDS]


def emnist_settings(results: Mapping[str, Results]) -> Table:
    """Which local work gives EMNIST's printed numbers."""
    return _settings("EMNIST", EMNIST, EMNIST_SETTINGS, results, "**taken: E = 2, B = 10**")


def settings(results: Mapping[str, Results]) -> Table:
    """What fits Shakespeare's printed numbers best."""
    others = (SHAKESPEARE_FAST, *VARIANTS, *SEARCH)
    return _settings("Shakespeare", SHAKESPEARE, others, results, "**taken: B = 4, lr 0.1, E = 1**")


def _settings(
    title: str,
    taken: Experiment,
    others: Sequence[Experiment],
    results: Mapping[str, Results],
    name: str,
) -> Table:
    """Printed figures, and those of every setting that was tried."""
    columns = ("setting", "seeds", "full accuracy %", "adaptive ou accuracy %",
               "adaptive zero accuracy %", "adaptive zero threshold",
               "adaptive zero share %")  # fmt: skip
    main, printed = published.MAIN[taken.task], published.THRESHOLD[taken.task]
    rows: list[tuple[Any, ...]] = [
        (
            "printed",
            1,
            main["full"].accuracy,
            main["adaptive ou"].accuracy,
            main["adaptive zero"].accuracy,
            printed["adaptive zero"],
            main["adaptive zero"].share,
        )
    ]
    for experiment in (taken, *others):
        result = results.get(experiment.name)
        own = name if experiment is taken else experiment.title.partition(", ")[2]
        rows.append(
            (
                own,
                None if result is None else max(len(arm.seeds) for arm in result.arms.values()),
                *(
                    _cell(result, arm, lambda r, a: Spread(r.arms[a].at(ROUNDS)))
                    for arm in ("full", "adaptive ou", "adaptive zero")
                ),
                _cell(result, "adaptive zero", _mean_threshold),
                _cell(result, "adaptive zero", lambda r, a: Spread(r.share(a, ROUNDS), 1)),
            )
        )
    return Table(
        f"{title}: settings that the paper leaves open, {ROUNDS} rounds; ± is the standard "
        f"deviation over seeds.",
        columns,
        rows,
    )


def reached(results: Mapping[str, Results]) -> Table:
    """Bytes and rounds to 90 % of the final accuracy of full communication."""
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
    place = _first_at(result.arms[name], goal)
    if place is None:
        return "never", "never"
    arm = result.arms[name]
    return f"{np.median(arm.uploaded[:, place]) / 2**30:.2f}", f"{arm.tested[place]}"


def _first_at(arm: Arm, goal: float) -> int | None:
    """The first test at which the median over seeds has an accuracy; None where it never has."""
    found = np.flatnonzero((np.median(arm.accuracy, axis=0) >= goal) & (arm.tested <= ROUNDS))
    return int(found[0]) if len(found) else None


def bytes_to(result: Results, name: str, goal: float) -> float | None:
    """Bytes that an arm uploads until then, the median over seeds."""
    place = _first_at(result.arms[name], goal) if name in result.arms else None
    return None if place is None else float(np.median(result.arms[name].uploaded[:, place]))


def data_sets(results: Mapping[str, Results]) -> Table:
    """Data sets and models beside the paper's."""
    columns = ("data set", "clients", "paper", "training rows", "paper", "test rows", "weights",
               "paper's layers", "paper's total", "sha256")  # fmt: skip
    rows = []
    for result in results.values():
        was, data = published.DATA_SETS[result.experiment.task], result.data
        if not data:
            data = dict.fromkeys(("clients", "examples", "tests", "sha256"), "not recorded")
        rows.append(
            (
                result.experiment.title,
                _number(data["clients"]),
                was.users,
                _number(data["examples"]),
                was.samples,
                _number(data["tests"]),
                _number(result.size),
                _number(sum(was.layers)) if was.layers else None,
                was.total,
                f"`{str(data['sha256'])[:12]}`",
            )
        )
    return Table("Data sets and models.", columns, rows)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


TABLES = {
    "main": Recipe(main, MAIN),
    "synthetic": Recipe(main, (SYNTHETIC,)),
    "collapses": Recipe(collapses, (*MAIN, *NUMERICS)),
    "clients": Recipe(clients, tuple(BY_COHORT.values())),
    "upload": Recipe(upload, tuple(BY_COHORT.values())),
    "thresholds": Recipe(thresholds, MAIN),
    "reached": Recipe(reached, MAIN),
    "emnist-settings": Recipe(emnist_settings, (EMNIST, *EMNIST_SETTINGS)),
    "settings": Recipe(settings, (SHAKESPEARE, SHAKESPEARE_FAST, *VARIANTS, *SEARCH)),
    "data": Recipe(data_sets, (EMNIST, SHAKESPEARE, SYNTHETIC)),
}

"""The paper's tables: its number, and ours as mean ± standard deviation over seeds."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from taciturn.paper import published
from taciturn.paper.experiments import ARMS, BY_COHORT, EMNIST, SHAKESPEARE, STAND_INS, VARIANTS
from taciturn.studies.results import Recipe, Results
from taciturn.studies.table import Spread, Table

ROUNDS = 100  # of the main table


def main(results: Mapping[str, Results]) -> Table:
    """Accuracy, upload and its share of full communication."""
    columns = ["method"]
    for result in results.values():
        title = result.experiment.title
        columns += [
            f"{title} accuracy %",
            "paper",
            f"{title} GiB",
            "paper",
            f"{title} share %",
            "paper",
        ]
    rows = []
    for arm in ARMS:
        row: list[Any] = [arm]
        for name, result in results.items():
            was = published.MAIN.get(name, {}).get(_published_as(arm))
            row += [Spread(result.arms[arm].at(ROUNDS)), was and was.accuracy]
            row += [Spread(result.gib(arm, ROUNDS), _gib_digits(result)), was and was.gib]
            row += [Spread(result.share(arm, ROUNDS), 1), was and was.share]
        rows.append(tuple(row))
    first = next(iter(results.values()))
    title = f"Accuracy and upload after {min(ROUNDS, first.rounds)} rounds, N = {first.cohort}."
    return Table(title, tuple(columns), rows)


def _gib_digits(result: Results) -> int:
    return 2 if result.gib("full", ROUNDS).mean() > 0.1 else 4


def _published_as(arm: str) -> str:
    """The paper's arm that an arm is compared with: it has one `ou`, here there are two."""
    return arm.removesuffix(" constrained")


def clients(results: Mapping[str, Results]) -> Table:
    """Shakespeare's accuracy by N."""
    return _by_cohort(
        results,
        "Shakespeare: accuracy in % after {} rounds, by N.",
        list(ARMS),
        lambda result, arm: Spread(result.arms[arm].accuracy[:, -1]),
        published.ACCURACY_BY_COHORT,
    )


def upload(results: Mapping[str, Results]) -> Table:
    """Shakespeare's upload by N."""
    return _by_cohort(
        results,
        "Shakespeare: upload in % of full communication over {} rounds, by N.",
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
    found = list(results.values())
    columns = ("method", *(text for r in found for text in (f"N = {r.cohort}", "paper")))
    rows = [
        (
            arm,
            *(
                cell
                for result in found
                for cell in (value(result, arm), was.get(_published_as(arm), {}).get(result.cohort))
            ),
        )
        for arm in arms
    ]
    return Table(title.format(found[0].rounds), columns, rows)


def thresholds(results: Mapping[str, Results]) -> Table:
    """Mean threshold over rounds, and its deviation over rounds."""
    columns = ["stand-in"]
    for result in results.values():
        title = result.experiment.title
        columns += [f"{title} mean", f"{title} deviation over rounds", "paper"]
    rows = []
    for name in STAND_INS:
        row: list[Any] = [name]
        for key, result in results.items():
            arm = f"adaptive {name}"
            path = thresholds_after_first(result, arm)
            was = published.THRESHOLD.get(key, {}).get(_published_as(arm))
            row += [Spread(path.mean(1), 3), Spread(path.std(1), 3), was]
        rows.append(tuple(row))
    last = min(ROUNDS, *(result.rounds for result in results.values()))
    return Table(f"Thresholds of rounds 2 to {last}.", tuple(columns), rows)


def thresholds_after_first(result: Results, arm: str) -> np.ndarray:
    """The thresholds that were learned: in the first round everyone speaks. (seeds, rounds − 1)."""
    return result.arms[arm].threshold[:, 1:ROUNDS]


def settings(results: Mapping[str, Results]) -> Table:
    """What fits Shakespeare's printed numbers best."""
    columns = ("setting", "full accuracy %", "adaptive ou accuracy %", "adaptive ou share %")
    rows: list[tuple[Any, ...]] = [("printed", *_fitted(published.MAIN["shakespeare"]))]
    for name, result in results.items():
        title = (
            "taken: B = 4, weights by tokens, 128 sequences"
            if name == SHAKESPEARE.name
            else result.experiment.title.partition(", ")[2]
        )
        rows.append(
            (
                title,
                Spread(result.arms["full"].at(ROUNDS)),
                Spread(result.arms["adaptive ou"].at(ROUNDS)),
                Spread(result.share("adaptive ou", ROUNDS), 1),
            )
        )
    return Table("Shakespeare: settings that the paper leaves open, 100 rounds.", columns, rows)


def _fitted(rows: Mapping[str, published.Row]) -> tuple[float, float, float]:
    return rows["full"].accuracy, rows["adaptive ou"].accuracy, rows["adaptive ou"].share


TABLES = {
    "main": Recipe(main, (EMNIST, SHAKESPEARE)),
    "clients": Recipe(clients, tuple(BY_COHORT.values())),
    "upload": Recipe(upload, tuple(BY_COHORT.values())),
    "thresholds": Recipe(thresholds, (EMNIST, SHAKESPEARE)),
    "settings": Recipe(settings, (SHAKESPEARE, *VARIANTS)),
}

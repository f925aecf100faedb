"""The paper's tables: its number, and ours as mean ± standard deviation over seeds.

A table has a row for what was run. Arms of the authors' estimator that the main runs lack are taken
from those with float32 products, and marked with †.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from experiments.common.command import Found, some
from experiments.common.experiment import Experiment
from experiments.common.results import Results
from experiments.paper import paths, published, rounding
from experiments.paper.experiments import (
    ALL_ARMS,
    ARMS,
    AUTHORS,
    BY_COHORT,
    CONSTRAINED,
    EMNIST,
    EMNIST_SETTINGS,
    EXPERIMENTS,
    FIXED,
    MAIN,
    NUMERICS,
    PRINTED,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    STAND_INS,
    SYNTHETIC,
    THRESHOLDS,
    UNWEIGHTED,
    VARIANTS,
)
from experiments.paper.measures import (
    COLLAPSE,
    ROUNDS,
    collapsed,
    compared,
    late_spread,
    mean_threshold,
    reached,
    rejected,
    swing,
    threshold_spread,
)
from experiments.paper.measures import thresholds as measured
from taciturn.report.table import Spread, Table

Made = Callable[[Found], Table | None]
_LABELS = {AUTHORS: "ou, authors'", PRINTED: "ou, exact", CONSTRAINED: "ou, constrained"}
_ROUNDING = {"ou authors": "raw, float32: authors'", "ou": "exact fit",
             "float64, all": "raw, float64"}  # fmt: skip
_FLOAT32 = dict(zip((EMNIST.name, SHAKESPEARE.name), NUMERICS, strict=True))
_MARK = " †"
_ADAPTIVE = [arm for arm in ARMS if arm.startswith("adaptive")]
_OF_CLIENTS = [arm for arm in ARMS if arm != f"random {AUTHORS}"]
_UNWEIGHTED = [arm for arm in ALL_ARMS if arm.startswith(f"adaptive{UNWEIGHTED}")]
# Differences that the paper's claims are about.
_PAIRS = (
    *((f"adaptive {name}", "full") for name in STAND_INS),
    *((f"adaptive {ou}", f"adaptive {other}")
      for ou in (AUTHORS, CONSTRAINED) for other in ("zero", "ignore")),
    ("adaptive zero", "adaptive ignore"),
)  # fmt: skip
_RANDOM_PAIRS = (
    *((f"adaptive {name}", f"random {name}") for name in STAND_INS),
    *((f"random {name}", f"random {ou}")
      for name in ("zero", "ignore") for ou in (AUTHORS, PRINTED, CONSTRAINED)),
)  # fmt: skip


def label(arm: str) -> str:
    """An arm's name for people."""
    for name, text in _LABELS.items():
        if arm.endswith(f" {name}"):
            return arm.removesuffix(name) + text
    return arm


def _printed_as(arm: str) -> str:
    """The paper's arm that an arm is compared with: it has one `ou` and one threshold."""
    arm = arm.removesuffix(" constrained").removesuffix(" authors")
    return arm.replace(UNWEIGHTED, "")


def _of(found: Found, experiment: Experiment, *arms: str) -> tuple[Results, str] | None:
    """The results that have all of some arms, and a mark where they are those of float32."""
    own = found.get(experiment.name)
    exact = found.get(_FLOAT32[experiment.name].name) if experiment.name in _FLOAT32 else None
    for result, mark in ((own, ""), (exact, _MARK)):
        if result is not None and all(arm in result.arms for arm in ("full", *arms)):
            return result, mark
    both = joined(found, (experiment,)).get(experiment.name)
    there = both is not None and all(arm in both.arms for arm in ("full", *arms))
    return (both, _MARK) if both is not None and there else None


def joined(found: Found, experiments: Sequence[Experiment]) -> dict[str, Results]:
    """Those that were run, each with the arms that only its runs with float32 products have."""
    return {
        name: result._replace(arms=found[exact.name].arms | result.arms)
        if (exact := _FLOAT32.get(name)) and exact.name in found
        else result
        for name, result in some(found, experiments).items()
    }


def main(found: Found, arms: Iterable[str] = ARMS, *experiments: Experiment) -> Table:
    """Accuracy, collapses and upload of EMNIST and Shakespeare side by side."""
    experiments = experiments or (EMNIST, SHAKESPEARE)
    columns = ["method"]
    for experiment in experiments:
        columns += [f"{experiment.title} %", "paper", "collapsed", "upload %", "paper"]
    rows = []
    for arm in arms:
        cells: list[Any] = []
        for experiment in experiments:
            was = published.MAIN.get(experiment.task, {}).get(_printed_as(arm))
            printed = (None, None) if was is None else (was.accuracy, was.share)
            there = _of(found, experiment, arm)
            if there is None:
                cells += [None, printed[0], None, None, printed[1]]
                continue
            result, mark = there
            cells += [f"{Spread(result.arms[arm].at(ROUNDS))}{mark}", printed[0],
                      _of_all(collapsed(result, arm)), Spread(result.share(arm, ROUNDS), 1),
                      printed[1]]  # fmt: skip
        if any(cells[::5]):
            rows.append((label(arm), *cells))
    return Table(f"Accuracy and upload after {ROUNDS} rounds.", tuple(columns), rows)


def details(found: Found) -> Table:
    """Every arm of the main experiments, with medians, GiB and rejected replies."""
    columns = ("data set", "method", "seeds", "accuracy %", "paper", "median %", "collapsed",
               "GiB", "paper", "share %", "paper", "rejected")  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for result in some(found, (*MAIN, SYNTHETIC)).values():
        digits = 2 if result.size > 100_000 else 5
        for name, arm in result.arms.items():
            was = published.MAIN.get(result.experiment.task, {}).get(_printed_as(name))
            accuracy, gib, share = (None, None, None) if was is None else was
            lost = rejected(result, name)
            rows.append((
                result.experiment.title, label(name), len(arm.seeds), Spread(arm.at(ROUNDS)),
                accuracy, f"{np.median(arm.at(ROUNDS)):.2f}", _of_all(collapsed(result, name)),
                Spread(arm.bytes_at(ROUNDS) / 2**30, digits), gib,
                Spread(result.share(name, ROUNDS), 1), share,
                None if lost is None else f"{lost:.1f} %",
            ))  # fmt: skip
    return Table(f"Accuracy and upload after {ROUNDS} rounds.", columns, rows)


def _of_all(which: np.ndarray) -> str:
    return f"{int(which.sum())} of {len(which)}"


def estimators(found: Found) -> Table:
    """The estimator in two forms beside full communication, seed by seed, in float32."""
    arms = ("full", f"adaptive {AUTHORS}", f"adaptive {PRINTED}")
    exact = some(found, NUMERICS)
    count = max((len(r.arms[arm].seeds) for r in exact.values() for arm in arms), default=0)
    rows = [
        (
            result.experiment.title.partition(",")[0],
            label(arm),
            *(f"{end:.1f}" for end in result.arms[arm].at(ROUNDS)),
        )
        for result in exact.values()
        for arm in arms
    ]
    columns = ("data set", "method", *(f"seed {seed}" for seed in range(count)))
    return Table("Accuracy in % by seed, with float32 products.", columns, rows)


def rounding_forms(found: Found) -> Table | None:
    """What float32 makes of the authors' forecasts, taken apart."""
    if rounding.NAME not in found:
        return None
    ends = {name: np.array(arm["accuracy"]) for name, arm in found[rounding.NAME]["arms"].items()}
    rows = [
        (
            _ROUNDING.get(name, name),
            f"{np.median(own):.1f}",
            f"{own.min():.1f}",
            _of_all(own < ends["full"] - COLLAPSE),
        )
        for name, own in ends.items()
    ]
    columns = ("sums", "median", "worst", "collapsed")
    return Table("EMNIST: accuracy in %, sums in float32 and float64.", columns, rows)


def differences(
    found: Found,
    tried: Sequence[Experiment] = (EMNIST, SHAKESPEARE),
    pairs: Iterable[tuple[str, str]] = _PAIRS,
) -> Table:
    """Differences in points of accuracy, seed by seed, that the claims are about."""
    experiments = [experiment for experiment in tried if experiment.name in found]
    rows = []
    for first, second in pairs:
        cells = []
        for experiment in experiments:
            there = _of(found, experiment, first, second)
            cells.append(there and compared(there[0], first, second) + there[1])
        if any(cells):
            rows.append((f"{label(first)} − {label(second)}", *cells))
    return Table(
        f"Points of accuracy after {ROUNDS} rounds.",
        ("difference", *(experiment.title for experiment in experiments)), rows,
    )  # fmt: skip


def collapses(found: Found) -> Table:
    """How often the estimator collapses, with the 95 % interval of the rate."""
    rows = []
    for result in some(found, (*MAIN, SYNTHETIC, *NUMERICS)).values():
        for name, text in result.experiment.arms.items():
            if name in result.arms and text.endswith(("mode=paper", "author_sums")):
                fallen = collapsed(result, name)
                rate = stats.binomtest(int(fallen.sum()), len(fallen)).proportion_ci(0.95)
                rows.append((
                    result.experiment.title, label(name), _of_all(fallen),
                    f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %",
                    result.settings["precision"],
                ))  # fmt: skip
    columns = ("data set", "method", "collapsed", "95 % interval of the rate", "precision")
    return Table("Runs of the estimator that collapse.", columns, rows)


def clients(found: Found) -> Table:
    """Shakespeare's accuracy by N."""
    return _by_cohort(
        found, "accuracy in %", _OF_CLIENTS, lambda result, arm: f"{Spread(result.arms[arm].at())}",
        published.ACCURACY_BY_COHORT,
    )  # fmt: skip


def upload(found: Found) -> Table:
    """Shakespeare's upload by N."""
    return _by_cohort(
        found, "upload in % of full communication", _ADAPTIVE,
        lambda result, arm: f"{Spread(result.share(arm), 1)}", published.SHARE_BY_COHORT,
    )  # fmt: skip


def _by_cohort(
    found: Found,
    what: str,
    arms: Iterable[str],
    value: Callable[[Results, str], str],
    was: Mapping[str, Mapping[int, float]],
) -> Table:
    there = joined(found, tuple(BY_COHORT.values()))
    columns = ("method", *(text for cohort in BY_COHORT for text in (f"N = {cohort}", "paper")))
    rows = []
    for arm in arms:
        cells: list[Any] = []
        for cohort, experiment in BY_COHORT.items():
            result = there.get(experiment.name)
            run = result is not None and arm in result.arms
            mark = "" if run and arm in found[experiment.name].arms else _MARK
            cells += [value(result, arm) + mark if result is not None and run else None,
                      was.get(_printed_as(arm), {}).get(cohort)]  # fmt: skip
        if any(cell is not None for cell in cells[::2]):
            rows.append((label(arm), *cells))
    rounds = SHAKESPEARE.values["rounds"]
    return Table(f"Shakespeare: {what} after {rounds} rounds, by N.", columns, rows)


def thresholds(found: Found, arms: Iterable[str] = _ADAPTIVE) -> Table:
    """Mean threshold over rounds, and its deviation over rounds."""
    experiments = [experiment for experiment in MAIN if experiment.name in found]
    columns = ["method"]
    for experiment in experiments:
        columns += [f"{experiment.title} mean", "paper", "deviation over rounds", "paper"]
    rows = []
    for arm in arms:
        row: list[Any] = [label(arm)]
        for experiment in experiments:
            printed = published.THRESHOLD.get(experiment.task, {}).get(_printed_as(arm))
            was = printed or published.Threshold(None, None)
            there = _of(found, experiment, arm)
            if there is None:
                row += [None, was.mean, None, was.deviation]
                continue
            result, mark = there
            mean, spread = (
                f"{Spread(value(result, arm), 3)}{mark}"
                for value in (mean_threshold, threshold_spread)
            )
            row += [mean, was.mean, spread, was.deviation]
        rows.append(tuple(row))
    return Table(f"Thresholds of rounds 2 to {ROUNDS}.", tuple(columns), rows)


def steadiness(found: Found) -> Table:
    """How much accuracy and thresholds swing, and how often a threshold is 0 or below."""
    columns = ("data set", "method", "swing of accuracy", "late deviation of τ", "rounds of τ ≤ 0")
    rows = [
        (
            result.experiment.title,
            label(arm),
            Spread(swing(result, arm), 3),
            Spread(late_spread(result, arm), 4),
            _of_all((measured(result.arms[arm])[:, 1:ROUNDS] <= 0).ravel()),
        )
        for result in joined(found, MAIN).values()
        for arm in _ADAPTIVE
        if arm in result.arms
    ]
    return Table(f"Steadiness in rounds {ROUNDS // 2} to {ROUNDS}.", columns, rows)


def to_target(found: Found) -> Table:
    """GiB and rounds until the median over seeds has 90 % of what full communication ends with."""
    results = joined(found, MAIN)
    columns = ["method"]
    for result in results.values():
        columns += [f"{result.experiment.title} GiB", "rounds"]
    rows = []
    for arm in ALL_ARMS:
        row: list[Any] = [label(arm)]
        for result in results.values():
            at = reached(result, arm) if arm in result.arms else None
            never = "never" if arm in result.arms else None
            row += [never, never] if at is None else [f"{at[0] / 2**30:.2f}", at[1]]
        if any(row[1:]):
            rows.append(tuple(row))
    return Table("Upload and rounds to 90 % of the accuracy of full.", tuple(columns), rows)


def fixed(found: Found) -> Table:
    """Accuracy and upload under fixed thresholds."""
    names = [name for name in STAND_INS if name != PRINTED]
    rows = []
    for result in some(found, (FIXED,)).values():
        for threshold in THRESHOLDS:
            cells = [_with_share(result, f"{threshold} {name}") for name in names]
            if any(cells):
                rows.append((threshold, *cells))
    columns = ("τ", *(_LABELS.get(name, name) for name in names))
    return Table("EMNIST, fixed thresholds: accuracy % (upload %).", columns, rows)


def _with_share(result: Results, arm: str) -> str | None:
    if arm not in result.arms:
        return None
    share = result.share(arm, ROUNDS).mean()
    return f"{Spread(result.arms[arm].at(ROUNDS))} ({share:.0f} %)"


def emnist_settings(found: Found) -> Table:
    """Which local work gives EMNIST's printed numbers."""
    return _settings(found, (EMNIST, *EMNIST_SETTINGS))


def shakespeare_settings(found: Found) -> Table:
    """What fits Shakespeare's printed numbers best."""
    return _settings(found, (SHAKESPEARE, SHAKESPEARE_FAST, *VARIANTS))


def _settings(found: Found, tried: Sequence[Experiment]) -> Table:
    """Printed figures, and those of every setting that was tried, the one that was taken first."""
    columns = ("setting", "seeds", "full %", "ou, exact %", "zero %",
               "threshold of zero", "upload of zero %")  # fmt: skip
    taken = tried[0]
    main = published.MAIN[taken.task]
    rows: list[tuple[Any, ...]] = [(
        "printed", 1, *(main[arm].accuracy for arm in ("full", "adaptive ou", "adaptive zero")),
        published.THRESHOLD[taken.task]["adaptive zero"].mean, main["adaptive zero"].share,
    )]  # fmt: skip
    for result in some(found, tried).values():
        title = result.experiment.title.partition(", ")[2]
        if result.experiment.name != taken.name:
            rows.append(_tried(title, result))
            continue
        number = result.settings
        what = f"B = {number['batch']}, lr {number['lr']:g}, E = {number['epochs']}"
        rows.append(_tried(f"**taken: {what}**", result))
        rows.append(_tried("the same, unweighted norms", result, UNWEIGHTED))
    return Table(f"{taken.title}: settings that the paper leaves open.", columns, rows)


def _tried(title: str, result: Results, weighting: str = "") -> tuple[Any, ...]:
    arms = ("full", f"adaptive{weighting} ou", f"adaptive{weighting} zero")
    ends = [Spread(result.arms[arm].at(ROUNDS)) if arm in result.arms else None for arm in arms]
    seeds = max(len(result.arms[arm].seeds) for arm in arms if arm in result.arms)
    if (zero := arms[-1]) not in result.arms:
        return (title, seeds, *ends, None, None)
    return (title, seeds, *ends, Spread(mean_threshold(result, zero), 3),
            Spread(result.share(zero, ROUNDS), 1))  # fmt: skip


def data_sets(found: Found) -> Table:
    """Data sets and models beside the paper's."""
    columns = ("data set", "clients", "paper", "training rows", "paper", "test rows", "weights",
               "paper's layers", "paper's total", "sha256")  # fmt: skip
    rows = []
    for result in some(found, (EMNIST, SHAKESPEARE, SYNTHETIC)).values():
        was, data = published.DATA_SETS[result.experiment.task], result.data
        rows.append((
            result.experiment.title, f"{data['clients']:,}", was.users, f"{data['examples']:,}",
            was.samples, f"{data['tests']:,}", f"{result.size:,}",
            f"{sum(was.layers):,}" if was.layers else None, was.total, f"`{data['sha256'][:12]}`",
        ))  # fmt: skip
    return Table("Data sets and models.", columns, rows)


def weights(found: Found) -> Table | None:
    """Whether weights under SGD move like an OU process."""
    return paths.table(found[paths.NAME]["measured"]) if paths.NAME in found else None


def reasons(found: Found) -> Table:
    """Every setting, and why it is that one."""
    rows = [
        (experiment.title, name, *setting)
        for experiment in EXPERIMENTS.values()
        for name, setting in {**experiment.options, **experiment.settings}.items()
    ]
    rows += [("Fashion-MNIST", name, *setting) for name, setting in paths.SETTINGS.items()]
    return Table("Settings.", ("experiment", "setting", "value", "why"), rows)


TABLES: dict[str, Made] = {
    "main": main,
    "estimators": estimators,
    "rounding": rounding_forms,
    "differences": differences,
    "differences-random": lambda found: differences(found, pairs=_RANDOM_PAIRS),
    "differences-lr-1": lambda found: differences(found, (SHAKESPEARE_FAST,)),
    "differences-synthetic": lambda found: differences(found, (SYNTHETIC,)),
    "lr-1": lambda found: main(found, ARMS, SHAKESPEARE_FAST),
    "synthetic": lambda found: main(found, ARMS, SYNTHETIC),
    "unweighted": lambda found: main(found, [arm for arm in ALL_ARMS if UNWEIGHTED in arm]),
    "details": details,
    "collapses": collapses,
    "clients": clients,
    "upload": upload,
    "thresholds": thresholds,
    "thresholds-unweighted": lambda found: thresholds(found, _UNWEIGHTED),
    "steadiness": steadiness,
    "to-target": to_target,
    "fixed": fixed,
    "emnist-settings": emnist_settings,
    "settings": shakespeare_settings,
    "data": data_sets,
    "weights": weights,
    "reasons": reasons,
}

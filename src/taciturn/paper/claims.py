"""The paper's claims, each with its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taciturn.paper import comparing
from taciturn.paper.checks import (
    NO,
    YES,
    Check,
    Claim,
    check,
    figures_of,
    not_run,
    or_empty,
    pairs_of,
    places,
)
from taciturn.paper.comparing import common, compare
from taciturn.paper.experiments import (
    ARMS,
    BY_COHORT,
    EMNIST,
    FIXED,
    MAIN,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    STAND_INS,
    SYNTHETIC,
    THRESHOLDS,
)
from taciturn.paper.tables import ROUNDS, TARGET, thresholds_after_first
from taciturn.studies.difference import AHEAD, BEHIND, MARGIN, UNDECIDED
from taciturn.studies.results import Results

SAVES = 10.0  # % of upload that count as a saving
HALF = 45.0  # % that count as "up to 50 %"
SLOWER = 10.0  # rounds to the target within which two arms converge alike
LIKE = 10.0  # points of a share of weights within which they do as a true OU process does


def claims(results: Mapping[str, Results], measured: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim; `results` by the names of experiments, `measured` of the weights' paths."""
    main = [or_empty(results, e) for e in MAIN]
    by_cohort = [or_empty(results, e) for e in BY_COHORT.values()]
    lines = [or_empty(results, e) for e in (SHAKESPEARE, SHAKESPEARE_FAST)]
    fixed = _fixed_beside_adaptive(results)
    estimators = ("ou", "ou constrained")
    return [
        *(_beats_others(main, ou) for ou in estimators),
        *(_best_on_synthetic(results, ou) for ou in estimators),
        *(_best_by_cohort(by_cohort, ou) for ou in estimators),
        *(_above_full(lines, ou) for ou in estimators),
        *(_converges_alike(main, ou) for ou in estimators),
        *(_saves_half(main, ou) for ou in estimators),
        _zero_is_worst(main),
        _ignore_saves_most(main),
        *(_is_stable(main, ou) for ou in estimators),
        _higher_thresholds(main),
        _less_steady_thresholds(main),
        _adaptive_beats_random(main),
        _random_ou_is_worst(main),
        *(_best_when_fixed(fixed, ou) for ou in estimators),
        _fixed_fails(fixed),
        _more_clients_help(by_cohort),
        _paths_look_like_ou(measured),
    ]


_POINTS = f"points of accuracy after {ROUNDS} rounds"


def _beats_others(main: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"`{ou}` beats `zero` and `ignore` (adaptive)",
        f"ahead in {_POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} {ou}", f"adaptive{w} {o}")
                                for o in ("zero", "ignore")]),
    )  # fmt: skip


def _best_on_synthetic(results: Mapping[str, Results], ou: str) -> Claim:
    there = [or_empty(results, SYNTHETIC)]
    others = ("adaptive zero", "adaptive ignore", f"random {ou}", "random zero", "random ignore")
    return Claim(
        f"adaptive `{ou}` outperforms all others on the synthetic task",
        f"ahead in {_POINTS}",
        pairs_of(there, lambda w: [(f"adaptive {ou}", other) for other in others]),
    )


def _best_by_cohort(by_cohort: Sequence[Results], ou: str) -> Claim:
    others = ("adaptive zero", "adaptive ignore", "random ou", "random zero", "random ignore")
    checks = [
        one._replace(where=f"Shakespeare, N = {result.cohort}")
        for result in by_cohort
        for one in pairs_of([result], lambda w: [(f"adaptive {ou}", o) for o in others if not w],
                            rounds=None)
    ]  # fmt: skip
    return Claim(
        f"adaptive `{ou}` outperforms all strategies that save, at N = 10, 20 and 50",
        "ahead in points of accuracy after 120 rounds",
        checks,
    )


def _above_full(lines: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"adaptive `{ou}` is above full communication on Shakespeare",
        f"ahead in {_POINTS}",
        pairs_of(lines, lambda w: [(f"adaptive{w} {ou}", "full")]),
    )


def _converges_alike(main: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"adaptive `{ou}` converges at the rate of full communication",
        f"rounds to {100 * TARGET:.0f} % of the final accuracy of `full` with the same seed: the "
        f"interval lies below +{SLOWER:g}",
        [_as_fast(result, f"adaptive{w} {ou}", where) for result, w, where in places(main)],
    )


def _as_fast(result: Results, arm: str, where: str) -> Check:
    what = f"`{arm}` − `full`, rounds"
    if arm not in result.arms:
        return not_run(where, what)
    own, full = common(result, arm, "full")
    needed = _rounds_to_target(result, arm)[own]
    never = np.isinf(needed)
    if never.any():
        return Check(where, what, f"never there in {comparing.of_all(never)} seeds", "later", NO)
    found = compare(needed, _rounds_to_target(result, "full")[full], SLOWER, digits=1)
    word = {AHEAD: "later", BEHIND: "sooner"}.get(found.word, found.word)
    says = YES if found.high < SLOWER else NO if found.low > SLOWER else UNDECIDED
    return Check(where, what, found.shown, word, says)


def _rounds_to_target(result: Results, name: str) -> np.ndarray:
    """The first test at which a run has the target, infinite where it never has; (seeds,)."""
    own, full = common(result, name, "full")
    arm, goal = result.arms[name], TARGET * result.arms["full"].at(ROUNDS)
    found = np.full(len(arm.seeds), np.inf)
    for i, j in zip(own, full, strict=True):
        there = arm.tested[(arm.accuracy[i] >= goal[j]) & (arm.tested <= ROUNDS)]
        found[i] = there[0] if len(there) else np.inf
    return found


def _saves_half(main: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"adaptive `{ou}` saves up to 50 % at the accuracy of full communication",
        f"saves {HALF:g} % or more, and the interval of accuracy − full lies above "
        f"−{MARGIN:g} points; one data set is enough",
        [_saves(result, f"adaptive{w} {ou}", where) for result, w, where in places(main)],
        any=True,
    )


def _saves(result: Results, arm: str, where: str) -> Check:
    if arm not in result.arms:
        return not_run(where, f"`{arm}`")
    found = comparing.accuracies(result, arm, "full", ROUNDS)
    saving = 100 - float(np.median(result.share(arm, ROUNDS)))
    if saving < HALF or (found.word == BEHIND and found.low <= -MARGIN):
        says = NO
    else:
        says = YES if found.low > -MARGIN else UNDECIDED
    shown = f"saves {saving:.1f} % (median); accuracy − full {found.shown}"
    return Check(where, f"`{arm}`", shown, found.word, says)


def _zero_is_worst(main: Sequence[Results]) -> Claim:
    return Claim(
        "`zero` is the worst stand-in (adaptive)",
        f"behind in {_POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} zero", f"adaptive{w} {o}")
                                for o in ("ou", "ignore")], (BEHIND,)),
    )  # fmt: skip


def _ignore_saves_most(main: Sequence[Results]) -> Claim:
    return Claim(
        "`ignore` saves the most (adaptive)",
        "behind in share of full upload",
        figures_of(main, ("ou", "zero"), "ignore", lambda r, a: r.share(a, ROUNDS), BEHIND,
                 "% of full upload", 2),
    )  # fmt: skip


def _is_stable(main: Sequence[Results], ou: str) -> Claim:
    swings = figures_of(main, ("ignore",), ou, _swings, BEHIND, "swing of accuracy", 2)
    spreads = figures_of(main, ("ignore",), ou, _spread, BEHIND, "threshold's deviation", 3)
    return Claim(
        f"`{ou}` is stable where `ignore` is not (adaptive)",
        "behind in the swing of accuracy (deviation of its change from test to test in the second "
        "half, points) and in the threshold's deviation over rounds",
        [*swings, *spreads],
    )


def _spread(result: Results, arm: str) -> np.ndarray:
    return thresholds_after_first(result, arm).std(1)


def _swings(result: Results, arm: str) -> np.ndarray:
    """The deviation of accuracy's change from test to test, in the second half; (seeds,)."""
    last = min(ROUNDS, result.rounds)
    shown = (result.arms[arm].tested > last // 2) & (result.arms[arm].tested <= last)
    return np.diff(result.arms[arm].accuracy[:, shown], axis=1).std(1)


def _higher_thresholds(main: Sequence[Results]) -> Claim:
    return Claim(
        "`ignore` has higher thresholds than `ou` and `zero` (adaptive)",
        "ahead in the mean threshold over rounds",
        figures_of(main, ("ou", "zero"), "ignore", _mean_threshold, AHEAD, "mean threshold", 3),
    )


def _mean_threshold(result: Results, arm: str) -> np.ndarray:
    return thresholds_after_first(result, arm).mean(1)


def _less_steady_thresholds(main: Sequence[Results]) -> Claim:
    return Claim(
        "`ignore` has less steady thresholds than `ou` and `zero` (adaptive)",
        "ahead in the threshold's deviation over rounds",
        figures_of(main, ("ou", "zero"), "ignore", _spread, AHEAD, "threshold's deviation", 3),
    )


def _adaptive_beats_random(main: Sequence[Results]) -> Claim:
    return Claim(
        "adaptive beats random at the same rate",
        f"ahead in {_POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} {name}", f"random{w} {name}")
                                for name in STAND_INS]),
    )  # fmt: skip


def _random_ou_is_worst(main: Sequence[Results]) -> Claim:
    return Claim(
        "random `ignore` and random `zero` beat random `ou`",
        f"ahead in {_POINTS}",
        pairs_of(main, lambda w: [(f"random{w} {name}", f"random{w} ou")
                                for name in ("ignore", "zero")]),
    )  # fmt: skip


def _best_when_fixed(fixed: Results, ou: str) -> Claim:
    checks = []
    for threshold in THRESHOLDS:
        for other in ("zero", "ignore"):
            where, what = f"EMNIST, τ = {threshold:g}", f"`{ou}` − `{other}`"
            arms = f"{threshold} {ou}", f"{threshold} {other}"
            if all(arm in fixed.arms for arm in (*arms, "full")):
                found = comparing.accuracies(fixed, *arms, ROUNDS)
                checks.append(check(where, what, found, (AHEAD,)))
            else:
                checks.append(not_run(where, what))
    return Claim(f"`{ou}` is best under fixed thresholds", f"ahead in {_POINTS}", checks)


def _fixed_beside_adaptive(results: Mapping[str, Results]) -> Results:
    """The fixed arms, beside full communication and the adaptive arms of the same data."""
    fixed, emnist = or_empty(results, FIXED), or_empty(results, EMNIST)
    others = {n: arm for n, arm in emnist.arms.items() if n == "full" or n.startswith("adaptive")}
    return fixed._replace(arms=others | fixed.arms)


def _fixed_fails(fixed: Results) -> Claim:
    adaptive = [name for name in fixed.arms if name.startswith("adaptive")]
    best = max(adaptive, key=lambda n: float(np.median(fixed.arms[n].at(ROUNDS))), default="")
    return Claim(
        "fixed thresholds save nothing or cost accuracy",
        f"saves less than {SAVES:g} %, or is behind the best adaptive arm in {_POINTS}",
        [_saves_nothing(fixed, f"{t} {name}", best) for t in THRESHOLDS for name in STAND_INS],
    )


def _saves_nothing(fixed: Results, name: str, best: str) -> Check:
    threshold, _, stand_in = name.partition(" ")
    where, what = f"EMNIST, τ = {threshold}", f"`{stand_in}`"
    if name not in fixed.arms or not best:
        return not_run(where, what)
    found = comparing.accuracies(fixed, name, best, ROUNDS)
    share, accuracy = fixed.share(name, ROUNDS), fixed.arms[name].at(ROUNDS)
    if np.median(share) > 100 - SAVES or found.word == BEHIND:
        says = YES
    else:
        says = UNDECIDED if found.word == UNDECIDED else NO
    shown = (
        f"{np.median(accuracy):.1f} % at {np.median(share):.0f} % upload (medians); − `{best}` "
        f"{found.shown}"
    )
    return Check(where, what, shown, found.word, says)


def _more_clients_help(by_cohort: Sequence[Results]) -> Claim:
    return Claim(
        "more clients help every arm",
        "ahead in points of accuracy after 120 rounds",
        [_more_clients(by_cohort, arm) for arm in ARMS],
    )


def _more_clients(by_cohort: Sequence[Results], arm: str) -> Check:
    few, *_, many = by_cohort
    where = f"Shakespeare, N = {' / '.join(str(result.cohort) for result in by_cohort)}"
    what = f"`{arm}`, N = {many.cohort} − {few.cohort}"
    if any(arm not in result.arms for result in by_cohort):
        return not_run(where, what)
    ends = [result.arms[arm].at() for result in by_cohort]
    count = min(map(len, ends))
    signs = any(comparing.collapsed(r, arm, r.rounds, count).any() for r in (few, many))
    found = compare(ends[-1][:count], ends[0][:count], MARGIN, signs)
    medians = " / ".join(f"{np.median(end):.1f}" for end in ends)
    return check(where, what, found._replace(shown=f"medians {medians}; {found.shown}"), (AHEAD,))


_TESTS = {
    "increments pass for normal (Jarque–Bera, 5 %, last epoch)": "increments_normal_share",
    "increments of ten steps pass for normal": "increments_of_ten_steps_normal_share",
    "a pull to a mean is significant (Dickey–Fuller, 5 %), all steps": "unit_root_rejected_share",
    "the same in the last epoch": "unit_root_rejected_in_last_epoch_share",
}


def _paths_look_like_ou(measured: Sequence[Mapping[str, Any]]) -> Claim:
    return Claim(
        "weights under SGD move like an OU process",
        f"the share of weights that pass is at most {LIKE:g} points below that of paths of a true "
        f"OU process with the fitted medians",
        [_passes(measured, what, key) for what, key in _TESTS.items()],
    )


def _passes(measured: Sequence[Mapping[str, Any]], what: str, key: str) -> Check:
    where = "Fashion-MNIST"
    if not measured:
        return not_run(where, what)
    own = np.array([one[key] for one in measured])
    control = np.array([one["control"][key] for one in measured])
    found = compare(own, control, LIKE, digits=1)
    says = YES if found.low > -LIKE else NO if found.word == BEHIND else UNDECIDED
    shown = f"{own.mean():.0f} % of the weights, control {control.mean():.0f} %; {found.shown}"
    return Check(where, what, shown, found.word, says)

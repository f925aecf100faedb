"""The paper's claims, each with its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taciturn.paper import comparing
from taciturn.paper.checks import NO, YES, Check, Claim, check, figures_of, pairs_of, places
from taciturn.paper.comparing import AHEAD, BEHIND, SAME, UNDECIDED, Comparison, common, compare
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
from taciturn.studies.results import Results

SAVES = 10.0  # % of upload that count as a saving
HALF = 45.0  # % that count as "up to 50 %"
SLOWER = 10.0  # rounds to the target within which two arms converge alike
LIKE = 10.0  # points of a share of weights within which they do as a true OU process does


def claims(results: Mapping[str, Results], measured: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim; `results` by the names of experiments, `measured` of the weights' paths."""
    main = [results[e.name] for e in MAIN if e.name in results]
    by_cohort = [results[e.name] for e in BY_COHORT.values() if e.name in results]
    lines = [results[e.name] for e in (SHAKESPEARE, SHAKESPEARE_FAST) if e.name in results]
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
        *(_best_when_fixed(results, ou) for ou in estimators),
        _fixed_fails(results),
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
    there = [results[SYNTHETIC.name]] if SYNTHETIC.name in results else []
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
    checks = []
    for result, weighting, where in places(main):
        arm = f"adaptive{weighting} {ou}"
        if arm in result.arms:
            own, full = common(result, arm, "full")
            rounds = [_rounds_to_target(result, name) for name in (arm, "full")]
            never = np.isinf(rounds[0][own])
            if never.any():
                found = Comparison(BEHIND, f"never reached in {comparing.of_all(never)} seeds")
            else:
                found = compare(rounds[0][own], rounds[1][full], SLOWER, digits=1)
            checks.append(check(where, f"`{arm}` − `full`, rounds", found, (SAME,),
                                 _alike(found)))  # fmt: skip
    return Claim(
        f"adaptive `{ou}` converges at the rate of full communication",
        f"rounds to {100 * TARGET:.0f} % of the final accuracy of `full` with the same seed: the "
        f"interval lies below +{SLOWER:g}",
        checks,
    )


def _alike(found: Comparison) -> str:
    if found.word == BEHIND and not np.isfinite(found.low):  # never
        return NO
    return YES if found.high < SLOWER else NO if found.low > SLOWER else UNDECIDED


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
    checks = []
    for result, weighting, where in places(main):
        arm = f"adaptive{weighting} {ou}"
        if arm in result.arms:
            found = comparing.accuracies(result, arm, "full", ROUNDS)
            saving = 100 - float(np.median(result.share(arm, ROUNDS)))
            equal = found.low > -comparing.MARGIN
            lost = found.word == BEHIND
            says = YES if equal and saving >= HALF else NO if lost or saving < HALF else UNDECIDED
            shown = f"saves {saving:.1f} % (median); accuracy − full {found.shown}"
            checks.append(Check(where, f"`{arm}`", shown, found.word, says))
    return Claim(
        f"adaptive `{ou}` saves up to 50 % at the accuracy of full communication",
        f"saves {HALF:g} % or more, and the interval of accuracy − full lies above "
        f"−{comparing.MARGIN:g} points; one data set is enough",
        checks,
        any=True,
    )


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


def _best_when_fixed(results: Mapping[str, Results], ou: str) -> Claim:
    checks = []
    fixed, emnist = results.get(FIXED.name), results.get(EMNIST.name)
    if fixed is not None and emnist is not None:
        together = _with_full(fixed, emnist)
        for threshold in THRESHOLDS:
            for other in ("zero", "ignore"):
                arms = f"{threshold} {ou}", f"{threshold} {other}"
                if all(arm in fixed.arms for arm in arms):
                    found = comparing.accuracies(together, *arms, ROUNDS)
                    what = f"`{ou}` − `{other}`"
                    checks.append(check(f"EMNIST, τ = {threshold:g}", what, found, (AHEAD,)))
    return Claim(f"`{ou}` is best under fixed thresholds", f"ahead in {_POINTS}", checks)


def _with_full(fixed: Results, emnist: Results) -> Results:
    """The fixed arms beside full communication, which ran with the adaptive ones."""
    return fixed._replace(arms=fixed.arms | {"full": emnist.arms["full"]})


def _fixed_fails(results: Mapping[str, Results]) -> Claim:
    checks = []
    fixed, emnist = results.get(FIXED.name), results.get(EMNIST.name)
    if fixed is not None and emnist is not None:
        adaptive = [arm for arm in emnist.arms if arm.startswith("adaptive")]
        best = max(adaptive, key=lambda arm: float(np.median(emnist.arms[arm].at(ROUNDS))))
        for name, arm in fixed.arms.items():
            beside = _with_full(fixed, emnist)
            beside = beside._replace(arms=beside.arms | {best: emnist.arms[best]})
            found = comparing.accuracies(beside, name, best, ROUNDS)
            share = float(np.median(fixed.share(name, ROUNDS)))
            little = share > 100 - SAVES
            says = YES if little or found.word == BEHIND else UNDECIDED
            says = NO if says != YES and found.word in (AHEAD, SAME) else says
            threshold, _, stand_in = name.partition(" ")
            shown = (
                f"{np.median(arm.at(ROUNDS)):.1f} % at {share:.0f} % upload (medians); − `{best}` "
                f"{found.shown}"
            )
            checks.append(Check(f"EMNIST, τ = {threshold}", f"`{stand_in}`", shown, found.word,
                                says))  # fmt: skip
    return Claim(
        "fixed thresholds save nothing or cost accuracy",
        f"saves less than {SAVES:g} %, or is behind the best adaptive arm in {_POINTS}",
        checks,
    )


def _more_clients_help(by_cohort: Sequence[Results]) -> Claim:
    checks = []
    if len(by_cohort) > 1:
        few, *_, many = by_cohort
        for arm in ARMS:
            if all(arm in result.arms for result in by_cohort):
                count = min(len(few.arms[arm].seeds), len(many.arms[arm].seeds))
                signs = any(comparing.collapsed(r, arm, r.rounds).any() for r in (few, many))
                found = compare(many.arms[arm].at()[:count], few.arms[arm].at()[:count], 0.5, signs)
                medians = " / ".join(f"{np.median(r.arms[arm].at()):.1f}" for r in by_cohort)
                shown = f"medians {medians}; {found.shown}"
                sizes = " / ".join(str(r.cohort) for r in by_cohort)
                checks.append(
                    check(
                        f"Shakespeare, N = {sizes}",
                        f"`{arm}`, N = {many.cohort} − {few.cohort}",
                        found._replace(shown=shown),
                        (AHEAD,),
                    )
                )
    return Claim(
        "more clients help every arm", "ahead in points of accuracy after 120 rounds", checks
    )


_TESTS = {
    "increments pass for normal (Jarque–Bera, 5 %, last epoch)": "increments_normal_share",
    "increments of ten steps pass for normal": "increments_of_ten_steps_normal_share",
    "a pull to a mean is significant (Dickey–Fuller, 5 %), all steps": "unit_root_rejected_share",
    "the same in the last epoch": "unit_root_rejected_in_last_epoch_share",
}


def _paths_look_like_ou(measured: Sequence[Mapping[str, Any]]) -> Claim:
    checks = []
    for what, key in _TESTS.items() if measured else ():
        own = np.array([one[key] for one in measured])
        control = np.array([one["control"][key] for one in measured])
        found = compare(own, control, LIKE, digits=1)
        says = YES if found.low > -LIKE else NO if found.word == BEHIND else UNDECIDED
        shown = f"{own.mean():.0f} % of the weights, control {control.mean():.0f} %; {found.shown}"
        checks.append(Check("Fashion-MNIST", what, shown, found.word, says))
    return Claim(
        "weights under SGD move like an OU process",
        f"the share of weights that pass is at most {LIKE:g} points below that of paths of a true "
        f"OU process with the fitted medians",
        checks,
    )

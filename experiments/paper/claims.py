"""The paper's claims, each with its checks; here are those on accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.paper import comparing, fixed_claims, path_claims, speed_claims, upload_claims
from experiments.paper import threshold_claims as steady
from experiments.paper.checks import POINTS, Check, Claim, check, not_run, or_empty, pairs_of
from experiments.paper.experiments import (
    BY_COHORT,
    MAIN,
    OURS,
    PAPERS,
    SHAKESPEARE,
    SHAKESPEARE_FAST,
    SYNTHETIC,
)
from taciturn.studies.difference import BEHIND, MARGIN
from taciturn.studies.results import Results

_MORE_ROUNDS = f"points of accuracy after {SHAKESPEARE.numbers()['rounds']} rounds"


def claims(results: Mapping[str, Results], measured: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim of the paper, and then the same of Taciturn's variant of the estimator.

    Args:
      results: by the names of experiments.
      measured: of the weights' paths.
    """
    main = [or_empty(results, e) for e in MAIN]
    by_cohort = [or_empty(results, e) for e in BY_COHORT.values()]
    papers = [
        *_of_estimator(results, main, by_cohort, "ou"),
        _zero_is_worst(main),
        speed_claims.zero_is_slow(main),
        upload_claims.zero_saves_as_much(main),
        upload_claims.ignore_saves_most(main),
        steady.zero_is_smooth(main),
        steady.higher_thresholds(main),
        steady.less_steady_thresholds(main),
        steady.falls_to_zero(main),
        _adaptive_beats_random(main, PAPERS),
        _random_ou_is_worst(main),
        fixed_claims.save_nothing(results, PAPERS),
        _more_clients_help(by_cohort, ("full", *_both_rules(PAPERS))),
        path_claims.look_like_ou(measured),
    ]
    ours = [
        *_of_estimator(results, main, by_cohort, OURS),
        _adaptive_beats_random(main, (OURS,)),
        fixed_claims.save_nothing(results, (OURS,)),
        _more_clients_help(by_cohort, _both_rules((OURS,))),
    ]
    return [*papers, *(claim._replace(ours=True) for claim in ours)]


def _of_estimator(
    results: Mapping[str, Results], main: Sequence[Results], by_cohort: Sequence[Results], ou: str
) -> list[Claim]:
    """What the paper says of its estimator, of one form of it."""
    return [
        _beats_others(main, ou),
        _best_on_synthetic(results, ou),
        _best_by_cohort(by_cohort, ou),
        _above_full([or_empty(results, e) for e in (SHAKESPEARE, SHAKESPEARE_FAST)], ou),
        speed_claims.converges_alike(main, ou),
        upload_claims.saves_half(main, ou),
        upload_claims.less_to_target(main, ou),
        steady.is_stable(main, ou),
        fixed_claims.best(results, ou),
    ]


def _both_rules(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{rule} {name}" for rule in ("adaptive", "random") for name in names)


def _beats_others(main: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"`{ou}` beats `zero` and `ignore` (adaptive)",
        f"ahead in {POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} {ou}", f"adaptive{w} {o}")
                                  for o in ("zero", "ignore")]),
    )  # fmt: skip


def _best_on_synthetic(results: Mapping[str, Results], ou: str) -> Claim:
    return Claim(
        f"adaptive `{ou}` outperforms all others on the synthetic task",
        f"ahead in {POINTS}",
        pairs_of([or_empty(results, SYNTHETIC)], lambda w: _rivals(ou)),
    )


def _best_by_cohort(by_cohort: Sequence[Results], ou: str) -> Claim:
    checks = [
        one._replace(where=f"Shakespeare, N = {result.cohort}")
        for result in by_cohort
        for one in pairs_of([result], lambda w: [] if w else _rivals(ou), rounds=None)
    ]
    sizes = [str(cohort) for cohort in BY_COHORT]
    return Claim(
        f"adaptive `{ou}` outperforms all strategies that save, at N = {', '.join(sizes[:-1])} and "
        f"{sizes[-1]}",
        f"ahead in {_MORE_ROUNDS}",
        checks,
    )


def _rivals(ou: str) -> list[tuple[str, str]]:
    """An estimator under the adaptive rule, and all that it is to outperform."""
    others = ("adaptive zero", "adaptive ignore", f"random {ou}", "random zero", "random ignore")
    return [(f"adaptive {ou}", other) for other in others]


def _above_full(lines: Sequence[Results], ou: str) -> Claim:
    return Claim(
        f"adaptive `{ou}` is above full communication on Shakespeare",
        f"ahead in {POINTS}",
        pairs_of(lines, lambda w: [(f"adaptive{w} {ou}", "full")]),
    )


def _zero_is_worst(main: Sequence[Results]) -> Claim:
    return Claim(
        "`zero` is the worst stand-in (adaptive)",
        f"behind in {POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} zero", f"adaptive{w} {o}")
                                  for o in ("ou", "ignore")], BEHIND),
    )  # fmt: skip


def _adaptive_beats_random(main: Sequence[Results], names: Sequence[str]) -> Claim:
    return Claim(
        f"adaptive beats random at the same rate ({_listed(names)})",
        f"ahead in {POINTS}",
        pairs_of(main, lambda w: [(f"adaptive{w} {name}", f"random{w} {name}")
                                  for name in names]),
    )  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _random_ou_is_worst(main: Sequence[Results]) -> Claim:
    return Claim(
        "random `ignore` and random `zero` beat random `ou`",
        f"ahead in {POINTS}",
        pairs_of(main, lambda w: [(f"random{w} {name}", f"random{w} ou")
                                  for name in ("ignore", "zero")]),
    )  # fmt: skip


def _more_clients_help(by_cohort: Sequence[Results], arms: Sequence[str]) -> Claim:
    which = f" of `{OURS}`" if any(OURS in arm for arm in arms) else ""
    return Claim(
        f"more clients help every arm{which}",
        f"ahead in {_MORE_ROUNDS}; seeds have the same first weights, and other clients",
        [_more_clients(by_cohort, arm) for arm in arms],
    )


def _more_clients(by_cohort: Sequence[Results], arm: str) -> Check:
    few, *_, many = by_cohort
    where = f"Shakespeare, N = {' / '.join(str(result.cohort) for result in by_cohort)}"
    what = f"`{arm}`, N = {many.cohort} − {few.cohort}"
    if any(arm not in result.arms for result in by_cohort):
        return not_run(where, what)
    arms = [result.arms[arm] for result in by_cohort]
    seeds = [seed for seed in arms[0].seeds if all(seed in own.seeds for own in arms)]
    ends = [own.at()[[own.seeds.index(seed) for seed in seeds]] for own in arms]
    signs = any(comparing.collapsed(r, arm, r.rounds, seeds).any() for r in (few, many))
    found = comparing.compare(ends[-1], ends[0], MARGIN, signs)
    medians = " / ".join(f"{np.median(end):.2f}" for end in ends)
    return check(where, what, found._replace(shown=f"medians {medians}; {found.shown}"))

"""Checks: what a claim rests on, and the verdict that they come to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper import comparing
from experiments.paper.comparing import Comparison
from experiments.paper.experiments import UNWEIGHTED
from experiments.paper.measures import ROUNDS
from taciturn.studies.difference import AHEAD, BEHIND, SAME, UNDECIDED
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Results

HOLDS, IN_PART, FAILS, OPEN, MISSING = (
    "holds", "holds in part", "does not hold", "undecided", "not run",
)  # fmt: skip
YES, NO = "yes", "no"
POINTS = f"points of accuracy after {ROUNDS} rounds"
SAYS = (YES, NO, UNDECIDED, MISSING)
# Ahead and behind, where a figure is not an accuracy.
UPLOAD = {AHEAD: "more", BEHIND: "less"}
HEIGHT = {AHEAD: "higher", BEHIND: "lower"}
TIME = {AHEAD: "later", BEHIND: "sooner"}


class Check(NamedTuple):
    """One comparison of a claim: where, of what, the numbers, and what they say of the claim."""

    where: str
    what: str
    shown: str
    word: str
    says: str  # of `SAYS`


class Claim(NamedTuple):
    """A claim, what it takes for it to hold, and its checks.

    Attributes:
      text: the claim.
      rule: what a check is.
      checks: all of them.
      any: whether one check is enough, as in "up to"; else all must say yes.
      ours: whether it is of Taciturn's variant of the estimator, which the paper does not have.
    """

    text: str
    rule: str
    checks: Sequence[Check]
    any: bool = False
    ours: bool = False

    def count(self, says: str) -> int:
        """How many checks say so."""
        return sum(check.says == says for check in self.checks)

    @property
    def yes_of_all(self) -> str:
        """How many checks say yes, of how many."""
        return f"{self.count(YES)} of {len(self.checks)}"

    @property
    def verdict(self) -> str:
        """What the checks come to."""
        says = {check.says for check in self.checks}
        if says == {YES} or (self.any and YES in says):
            return HOLDS
        if YES in says:
            return IN_PART
        return FAILS if NO in says else OPEN if UNDECIDED in says else MISSING


class Measure(NamedTuple):
    """A figure of a run that arms are compared by, beside accuracy.

    Attributes:
      value: of an arm, (seeds,).
      name: what it is.
      digits: with which its difference is shown, at least.
      words: for ahead and behind.
      margin: within which arms are level; 0 where they never are.
    """

    value: Callable[[Results, str], np.ndarray]
    name: str
    digits: int
    words: Mapping[str, str]
    margin: float = 0.0


def or_empty(results: Mapping[str, Results], experiment: Experiment) -> Results:
    """What came out of an experiment; no arms where it was not run."""
    numbers = experiment.numbers()
    empty = Results(experiment, numbers["rounds"], numbers["cohort"], 0, {}, (), {}, {})
    return results.get(experiment.name, empty)


def not_run(where: str, what: str) -> Check:
    """A check that there are no runs for."""
    return Check(where, what, "", "", MISSING)


def places(results: Iterable[Results]) -> Iterator[tuple[Results, str, str]]:
    """Each data set, a word for its arms' names, and what to call it."""
    for result in results:
        yield result, "", result.experiment.title
        if any(UNWEIGHTED in arm for arm in result.experiment.arms):
            yield result, UNWEIGHTED, f"{result.experiment.title},{UNWEIGHTED}"


def check(
    where: str,
    what: str,
    found: Comparison,
    yes: str = AHEAD,
    words: Mapping[str, str] | None = None,
) -> Check:
    """What a comparison says of a claim that needs the word `yes`.

    Where that is *level*, it is enough that the difference lies within the margin, and only one
    that lies beyond it says no.
    """
    if yes == SAME:
        says = YES if found.inside else NO if found.outside else UNDECIDED
    else:
        says = YES if found.word == yes else UNDECIDED if found.word == UNDECIDED else NO
    return Check(where, what, found.shown, found.told(words), says)


def pairs_of(
    results: Iterable[Results],
    pairs: Callable[[str], Iterable[tuple[str, str]]],
    yes: str = AHEAD,
    rounds: int | None = ROUNDS,
) -> list[Check]:
    """Checks of accuracies; `pairs` gives the arms for a weighting."""
    checks = []
    for result, weighting, where in places(results):
        for first, second in pairs(weighting):
            what = f"`{first}` − `{second}`"
            if first in result.arms and second in result.arms:
                found = comparing.accuracies(result, first, second, rounds or result.rounds)
                checks.append(check(where, what, found, yes))
            else:
                checks.append(not_run(where, what))
    return checks


def figures_of(
    main: Sequence[Results], first: str, others: Sequence[str], measure: Measure, yes: str
) -> list[Check]:
    """Checks of a figure of adaptive runs: `first` against others."""
    checks = []
    for result, weighting, where in places(main):
        for other in others:
            arms = (f"adaptive{weighting} {first}", f"adaptive{weighting} {other}")
            what = f"`{arms[0]}` − `{arms[1]}`, {measure.name}"
            if any(arm not in result.arms for arm in arms):
                checks.append(not_run(where, what))
                continue
            values = (measure.value(result, arms[0]), measure.value(result, arms[1]))
            found = comparing.figures(result, arms, values, ROUNDS, measure.margin, measure.digits)
            checks.append(check(where, what, found, yes, measure.words))
    return checks

"""Checks: what a claim rests on, and the verdict that they come to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taciturn.paper import comparing
from taciturn.paper.comparing import Comparison, common, compare
from taciturn.paper.experiments import UNWEIGHTED
from taciturn.paper.tables import ROUNDS
from taciturn.studies.difference import AHEAD, UNDECIDED
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Results

HOLDS, IN_PART, FAILS, OPEN, MISSING = (
    "holds", "holds in part", "does not hold", "undecided", "not run",
)  # fmt: skip
YES, NO = "yes", "no"


class Check(NamedTuple):
    """One comparison of a claim: where, of what, the numbers, and what they say of the claim."""

    where: str
    what: str
    shown: str
    word: str
    says: str  # YES, NO, UNDECIDED or MISSING


class Claim(NamedTuple):
    """A claim, what it takes for it to hold, and its checks.

    Attributes:
      text: the claim.
      rule: what a check is.
      checks: all of them.
      any: whether one check is enough, as in "up to"; else all must say yes.
    """

    text: str
    rule: str
    checks: Sequence[Check]
    any: bool = False

    @property
    def yes_of_all(self) -> str:
        """How many checks say yes, of how many."""
        return f"{sum(check.says == YES for check in self.checks)} of {len(self.checks)}"

    @property
    def verdict(self) -> str:
        """What the checks come to."""
        says = {check.says for check in self.checks}
        if says == {YES} or (self.any and YES in says):
            return HOLDS
        if YES in says:
            return IN_PART
        return FAILS if NO in says else OPEN if UNDECIDED in says else MISSING


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


def check(where: str, what: str, found: Comparison, yes: Sequence[str]) -> Check:
    """A check that says yes where the comparison comes to one of the words of `yes`."""
    says = YES if found.word in yes else UNDECIDED if found.word == UNDECIDED else NO
    return Check(where, what, found.shown, found.word, says)


def pairs_of(
    results: Iterable[Results],
    pairs: Callable[[str], Iterable[tuple[str, str]]],
    yes: Sequence[str] = (AHEAD,),
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
    main: Sequence[Results],
    names: Sequence[str],
    first: str,
    value: Callable[[Results, str], np.ndarray],
    yes: str,
    unit: str,
    digits: int,
) -> list[Check]:
    """Checks of a figure of adaptive runs: `first` against each of `names`."""
    checks = []
    for result, weighting, where in places(main):
        for name in names:
            arms = [f"adaptive{weighting} {first}", f"adaptive{weighting} {name}"]
            what = f"`{arms[0]}` − `{arms[1]}`, {unit}"
            if any(arm not in result.arms for arm in arms):
                checks.append(not_run(where, what))
            else:
                one, other = common(result, *arms)
                values = [value(result, arm) for arm in arms]
                fallen = [comparing.collapsed(result, arm, ROUNDS, len(one)) for arm in arms]
                signs = any(which.any() for which in fallen)
                found = compare(values[0][one], values[1][other], signs=signs, digits=digits)
                checks.append(check(where, what, found, (yes,)))
    return checks

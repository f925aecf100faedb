"""The five sentences that the page begins with; every number comes from the files."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper import published
from experiments.paper.checks import FAILS, HOLDS, IN_PART, MISSING, OPEN, Claim
from experiments.paper.comparing import accuracies
from experiments.paper.experiments import MAIN, OURS
from experiments.paper.measures import ROUNDS
from experiments.paper.words import SHOWN, missing
from taciturn.frontier.policies import RECOMMENDED
from taciturn.report.units import listed
from taciturn.studies.results import Results

_INSTEAD = (
    f"**Instead**: [the frontier](frontier.md) compares `{RECOMMENDED}`, the default, with its "
    f"rivals."
)


def summary(
    results: Mapping[str, Results], found: Sequence[Claim], paths: Mapping[str, Any]
) -> str:
    """All five; `paths` is the file of the illustration."""
    numbered = (
        _reproduced(results),
        _holds(found),
        f"{_fails(found)}{_random_ignore(results)}.",
        _INSTEAD,
        _how_long(results, paths),
    )
    return "\n".join(f"{i}. {text}" for i, text in enumerate(numbered, 1)) + "\n"


def _reproduced(results: Mapping[str, Results]) -> str:
    parts, absent = [], []
    for experiment in MAIN:
        result = results.get(experiment.name)
        if result is None or "full" not in result.arms:
            absent.append(experiment.title)
            continue
        was = published.MAIN[experiment.task]["full"].accuracy
        full = result.arms["full"].at(ROUNDS).mean()
        parts.append(f"at {full:.2f} % on {experiment.title} (printed {was:g}{whose(result)})")
    seeds = [len(a.seeds) for e in MAIN if e.name in results for a in results[e.name].arms.values()]
    fewest, most = min(seeds, default=0), max(seeds, default=0)
    span = f"{most}" if fewest == most else f"{fewest} to {most}"
    what = "in part" if missing(results, SHOWN) else "every table and figure"
    told = f": full communication ends {listed(parts)}" if parts else ""
    left = f"; {listed(absent)} {'was' if len(absent) == 1 else 'were'} not run" if absent else ""
    return f"**Reproduced**, {what}, over {span} seeds{told}{left}."


def whose(result: Results) -> str:
    """How many of the paper's clients a result has."""
    if not result.data:
        return ""
    was = published.DATA_SETS[result.experiment.task]
    return f"; {result.data['clients']:,} clients, the paper has {was.users}"


def _apart(found: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The paper's own claims, and those of Taciturn's variant."""
    return [claim for claim in found if not claim.ours], [claim for claim in found if claim.ours]


def _holds(found: Sequence[Claim]) -> str:
    own, ours = _apart(found)
    rest = [_count(some, OPEN) + _count(some, MISSING) for some in (own, ours)]
    return (
        f"**Holds**: {_count(own, HOLDS) or 'none'} of the paper's {len(own)} [claims](#claims)"
        f"{_named(found, own, HOLDS)}, and {_count(own, IN_PART)} in part; of {len(ours)} claims "
        f"on `{OURS}`, Taciturn's variant, {_count(ours, HOLDS) or 'none'}"
        f"{_named(found, ours, HOLDS)}, and {_count(ours, IN_PART)} in part. Undecided or not "
        f"run: {rest[0]} and {rest[1]}."
    )


def _fails(found: Sequence[Claim]) -> str:
    own, ours = _apart(found)
    return (
        f"**Does not hold**: {_count(own, FAILS) or 'none'} of the paper's"
        f"{_named(found, own, FAILS)} and {_count(ours, FAILS) or 'none'} of the variant's"
        f"{_named(found, ours, FAILS)}"
    )


def _named(found: Sequence[Claim], some: Sequence[Claim], verdict: str) -> str:
    """Which of some claims have a verdict, with their numbers on the page."""
    named = [f"{found.index(claim) + 1}, {claim.text}" for claim in some
             if claim.verdict == verdict]  # fmt: skip
    return f" ({'; '.join(named)})" if named else ""


def _count(found: Sequence[Claim], verdict: str) -> int:
    return sum(claim.verdict == verdict for claim in found)


def _random_ignore(results: Mapping[str, Results]) -> str:
    """Whether the simplest thing beats the paper's method."""
    parts = []
    for experiment in MAIN:
        result = results.get(experiment.name)
        arms = ("random ignore", "adaptive ou")
        if result is not None and all(arm in result.arms for arm in arms):
            found = accuracies(result, *arms, ROUNDS)
            shown = found.shown.partition(";")[0]
            parts.append(f"{found.told()} on {experiment.title} ({shown})")
    if not parts:
        return ""
    return f". `random ignore` against `adaptive ou`: {'; '.join(parts)}"


def _how_long(results: Mapping[str, Results], paths: Mapping[str, Any]) -> str:
    seconds: dict[str, list[float]] = {}
    for piece in [piece for result in results.values() for piece in result.pieces]:
        seconds.setdefault(piece.device, []).append(piece.seconds)
    if paths:
        seconds.setdefault(paths["versions"]["device"], []).append(paths["seconds"])
    parts = [
        f"{sum(each):,.0f} s{f' ({sum(each) / 60:.0f} minutes)' * (sum(each) > 90)} on {device}, "
        f"{max(each):,.0f} s of them for the longest piece"
        for device, each in seconds.items()
    ]
    return f"**It took** {listed(parts)}, compilation included."

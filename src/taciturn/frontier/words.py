"""What the results of a frontier say, in sentences."""

from collections.abc import Iterable

import numpy as np

from taciturn.core import budget
from taciturn.core.amounts import Amount
from taciturn.core.policy import parse
from taciturn.frontier.front import FULL, SAME, Open, Point, not_dominated, points, recommended
from taciturn.frontier.policies import RECOMMENDED
from taciturn.report.units import byte_text, listed
from taciturn.studies.results import ACCURACY, Arm, Results

_FIRST, _WINDOW = 20, 50  # rounds: a budget needs the first ones to know what updates are like


def headline(result: Results) -> str:
    """What the recommended policy comes to in an experiment."""
    found = points(result)
    best = recommended(found)
    title = result.experiment.title
    if best is None or best.gap is None:
        why = budget.doubt(parse(RECOMMENDED).paced(result.rounds).rule, result.size, result.cohort)
        return f"**{title}**: {why}.{_instead(found)}" if why else f"**{title}**: not run."
    seeds = len(best.accuracy)
    level = float(result.arms[FULL].at().mean())
    return (
        f"**{title}**: {best.accuracy.mean():.2f} % {result.measure}, and full communication "
        f"{level:.2f} %: a difference of {best.gap} over {seeds} seed{'s' * (seeds > 1)}, "
        f"at **{best.share.mean():.3g} %** of its upload ({byte_text(best.uploaded)})."
    )


def _instead(found: Iterable[Point]) -> str:
    """For models that are too small for the recommended budget: the least that does as well."""
    larger = {p.uploaded: (p, p.gap) for p in found
              if p.gap is not None and parse(p.policy).rule.name == "budget"}  # fmt: skip
    if not larger:
        return ""
    good = [sent for sent, (_, gap) in larger.items() if gap.mean >= -SAME]
    best, gap = larger[min(good) if good else max(larger)]
    return (
        f" `{best.policy}` differs from full communication by {gap}, at "
        f"**{best.share.mean():.3g} %** of its upload."
    )


def findings(result: Results) -> list[str]:
    """All that there is to say of an experiment's numbers, one statement each."""
    told = [front(result), targets(result), rivals(result), *stand_ins(result), budgets(result)]
    return [statement for statement in told if statement]


def front(result: Results) -> str:
    """Who is on the front."""
    found = sorted((point for point in points(result) if point.on_front), key=lambda p: p.uploaded)
    listed = ", ".join(
        f"{point.name} ({byte_text(point.uploaded)}, {point.accuracy.mean():.2f} %)"
        for point in found
    )
    return f"On the front, from the least upload on: {listed}."


def targets(result: Results) -> str:
    """Who reaches shares of full communication's accuracy for the fewest bytes."""
    found = points(result)
    told: list[str] = []
    for share in found[0].reached:
        sent = {p.name: p.reached[share] for p in found}
        bytes, name = min((count, name) for name, count in sent.items() if count is not None)
        whose = "" if told else " of full communication's accuracy"
        told.append(f"to {100 * share:g} %{whose}: {name} ({byte_text(bytes)})")
    return f"Fewest bytes {'; '.join(told)}."


def rivals(result: Results) -> str:
    """Where the recommended policy does not dominate, one line for each."""
    best = recommended(points(result))
    if best is None:
        return "The recommended policy is not in this comparison."
    open_ones = not_dominated(result)
    others = len(result.arms) - 1 - len(open_ones)
    dominated = (
        f"`{best.policy}` dominates {others} of the {len(result.arms) - 1} others: they upload as "
        f"much or more, are not ahead of it, and end at most {SAME:g} points above."
    )
    if not open_ones:
        return dominated
    return "\n".join([f"{dominated} The exceptions:", *(f"  - {_why(one)}" for one in open_ones)])


def _why(one: Open) -> str:
    return f"{one.rival.name}, which uploads {one.times:.3g} times as much: {one.gap}"


def stand_ins(result: Results) -> list[str]:
    """For each rule with several, which stand-in is best where silence is all that saves bytes."""
    policies = {name: parse(arm.policy) for name, arm in result.arms.items()}
    told = []
    for rule in ("adaptive", "optimal"):
        silent = [
            name
            for name, policy in policies.items()
            if policy.rule.name == rule and policy.codec.name == "float32"
        ]
        if len(silent) > 1:
            silent.sort(key=lambda name: -result.arms[name].at().mean())
            first, *others = silent
            text = listed(
                f"{policies[name].stand_in.name} {result.gap(first, name)}" for name in others
            )
            told.append(
                f"Of the stand-ins of `{rule}`, in float32, `{policies[first].stand_in.name}` ends "
                f"highest; by how much it leads the others: {text}."
            )
    return told


def budgets(result: Results) -> str:
    """How budgets that are shares were kept; empty where there is none, or runs are too short."""
    told = []
    for name, arm in result.arms.items():
        rule = dict(parse(arm.policy).rule.params)
        amount = rule.get("amount")
        # What a run may spend is no measure for some of its rounds.
        if isinstance(amount, Amount) and amount.is_share and rule["per"] == "round":
            kept = _windows(result, arm) / amount
            if kept.size:
                told.append(f"{name} {100 * kept.min():.1f} to {100 * kept.max():.1f}")
    if not told:
        return ""
    return (
        f"In any {_WINDOW} rounds between two tests after round {_FIRST}, budgets uploaded, in % "
        f"of what they may: {listed(told)}."
    )


def _windows(result: Results, arm: Arm) -> np.ndarray:
    """The shares uploaded in windows between tests, of all seeds."""
    places = range(len(arm.tested))
    pairs = [(i, j) for i in places for j in places
             if arm.tested[i] >= _FIRST and arm.tested[j] - arm.tested[i] == _WINDOW]  # fmt: skip
    sent = [arm.uploaded[:, j] - arm.uploaded[:, i] for i, j in pairs]
    return np.array(sent) / result.full_bytes(_WINDOW)


def data(result: Results) -> str:
    """What was learned from whom."""
    d = result.data
    told = (
        f"{d['clients']:,} clients with {d['examples']:,} rows, {d['tests']:,} to test on; "
        f"{result.size:,} weights."
    )
    if result.measure == ACCURACY:
        return told
    return (
        f"{told} Numbers are predicted: {result.measure} is the share of their variance in the "
        f"test rows that a model explains."
    )

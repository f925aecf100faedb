"""What the results of a frontier say, in sentences."""

from collections.abc import Iterable

from taciturn.core.policy import parse
from taciturn.frontier.front import FULL, Open, not_dominated, points, recommended
from taciturn.report.units import byte_text
from taciturn.studies.results import ACCURACY, Results


def headline(result: Results) -> str:
    """What the recommended policy comes to in an experiment."""
    found = points(result)
    best = recommended(found)
    title = result.experiment.title
    if best is None or best.gap is None:
        return f"{title}: the recommended policy has not been run."
    seeds = len(best.accuracy)
    level = float(result.arms[FULL].at().mean())
    return (
        f"**{title}**: {best.accuracy.mean():.2f} % {result.measure}, and full communication "
        f"{level:.2f} %: a difference of {best.gap} points over {seeds} seed{'s' * (seeds > 1)}, "
        f"at **{best.share.mean():.3g} %** of its upload ({byte_text(best.uploaded)})."
    )


def front(result: Results) -> str:
    """Who is on the front."""
    found = sorted((point for point in points(result) if point.on_front), key=lambda p: p.uploaded)
    listed = ", ".join(
        f"{point.name} ({byte_text(point.uploaded)}, {point.accuracy.mean():.2f} %)"
        for point in found
    )
    return f"On the front, from the least upload on: {listed}."


def rivals(result: Results) -> str:
    """Where the recommended policy does not dominate."""
    best = recommended(points(result))
    if best is None:
        return "The recommended policy has not been run here."
    open_ones = not_dominated(result)
    others = len(result.arms) - 1 - len(open_ones)
    dominated = (
        f"`{best.policy}` dominates {others} of {len(result.arms) - 1} others: they upload as much "
        f"or more, and are level with it or behind."
    )
    if not open_ones:
        return dominated
    return f"{dominated} It does not dominate {_listed(map(_why, open_ones))}."


def _why(one: Open) -> str:
    name, gap, times = one.rival.name, f"{one.gap.mean:+.2f} ± {one.gap.half:.2f}", one.times
    less = f"{1 / times:.3g} times less" if times < 1 else f"{times:.3g} times as much"
    if times < 1 and one.gap.behind:
        return f"{name}, which uploads {less} and is behind it ({gap})"
    if times < 1 and not one.gap.ahead:
        return f"{name}, which uploads {less} and is level with it ({gap})"
    return f"{name}, which uploads {less} and is ahead of it ({gap})"


def stand_ins(result: Results) -> str:
    """Which stand-in is best where silence is all that saves bytes; empty where there is one."""
    policies = {name: parse(arm.policy) for name, arm in result.arms.items()}
    silent = [
        name
        for name, policy in policies.items()
        if policy.rule.name == "adaptive" and policy.codec.name == "float32"
    ]
    if len(silent) < 2:
        return ""
    silent.sort(key=lambda name: -result.arms[name].at().mean())
    first, *others = silent
    text = _listed(
        f"{policies[name].stand_in.name} {result.gap(first, name)} points" for name in others
    )
    return (
        f"Of the stand-ins of `adaptive`, in float32, `{policies[first].stand_in.name}` ends "
        f"highest; by how much it leads the others: {text}."
    )


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


def _listed(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{'; '.join(first)}; and {last}" if first else last

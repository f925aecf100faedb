"""What the results of a frontier say, in sentences."""

from collections.abc import Iterable, Sequence

import numpy as np

from taciturn.core import budget
from taciturn.core.amounts import Amount
from taciturn.core.policy import parse
from taciturn.frontier.front import FULL, Point, Rival, points, recommended, rivals_of
from taciturn.frontier.policies import GRID, RECOMMENDED
from taciturn.report.units import byte_text, listed
from taciturn.studies.difference import MARGIN
from taciturn.studies.results import ACCURACY, WHO_PAYS, Arm, Results

_FIRST, _WINDOW = 20, 50  # rounds: a budget needs the first ones to know what updates are like


def headline(result: Results) -> str:
    """What the recommended policy comes to in an experiment."""
    found = points(result)
    best = recommended(found)
    title = result.experiment.title
    if best is None or best.gap is None:
        why = budget.doubt(parse(RECOMMENDED).rule, result.size, result.cohort, result.rounds)
        return f"**{title}**: {why}. {_instead(found)}" if why else f"**{title}**: not run."
    seeds = len(best.accuracy)
    level = float(result.arms[FULL].at().mean())
    return (
        f"**{title}**: {best.accuracy.mean():.2f} % {result.measure}, and full communication "
        f"{level:.2f} %: a difference of {best.gap} over {seeds} seed{'s' * (seeds > 1)}, "
        f"at **{best.share.mean():.3g} %** of its upload ({byte_text(best.uploaded)})."
    )


def half_of_it(results: Iterable[Results]) -> str:
    """What half of the recommended share comes to, in each code; empty where it was not run.

    A policy that was not run everywhere is not recommended, however good it is elsewhere.
    """
    results = list(results)
    share = dict(parse(RECOMMENDED).rule.params)["amount"]
    half = str(parse(RECOMMENDED.replace(str(share), f"{50 * share:g}%")))
    told = []
    for policy in (half, f"{half},codec=peaks"):
        ends = {
            result.experiment.title: point.gap
            for result in results
            for point in points(result)
            if point.policy == policy
        }
        if ends:
            absent = [r.experiment.title for r in results if r.experiment.title not in ends]
            told.append(
                f"`{policy}`: {listed(f'{title} {gap}' for title, gap in ends.items())}"
                + (f" (not run: {listed(absent)})" if absent else "")
            )
    return f"**Half of the recommended share**, {'. '.join(told)}." if told else ""


def brief(result: Results) -> str:
    """The same in a few words: the difference, and the share of the upload; empty if not run."""
    found = points(result)
    best = _best(found)
    if best is None or best.gap is None:
        return ""
    which = "" if best.policy == RECOMMENDED else f", with `{best.policy}`"
    return f"{result.experiment.title}{which}: {best.gap} at {best.share.mean():.3g} %"


def _best(found: Sequence[Point]) -> Point | None:
    """The recommended policy; where a model is too small for it, the next budget that does."""
    return recommended(found) or next(iter(_enough(found) or _budgets(found)[-1:]), None)


def _budgets(found: Iterable[Point]) -> list[Point]:
    """All budgets, from the least upload on."""
    budgets = [point for point in found if parse(point.policy).rule.name == "budget"]
    return sorted(budgets, key=lambda point: point.uploaded)


def _enough(found: Iterable[Point]) -> list[Point]:
    """The budgets that end at most the margin below full communication."""
    return [p for p in _budgets(found) if p.gap is not None and p.gap.mean >= -MARGIN]


def _instead(found: Sequence[Point]) -> str:
    """What there is where the recommended budget cannot be kept."""
    best = _best(found)
    if best is None:
        return "No other budget was run."
    where = f"at most {MARGIN:g} points below full communication"
    least = f"The least budget that ends {where}"
    none = f"No budget that was run ends {where}; the largest"
    return (
        f"{least if _enough(found) else none}: `{best.policy}`, {best.gap}, at "
        f"**{best.share.mean():.3g} %** of its upload."
    )


def findings(result: Results) -> list[str]:
    """All that there is to say of an experiment's numbers, one statement each."""
    told = [least(result), front(result), targets(result), rivals(result), noise(result),
            payers(result), budgets(result), not_run(result)]  # fmt: skip
    return [statement for statement in told if statement]


def least(result: Results) -> str:
    """How little is surely enough."""
    sure = [p for p in points(result) if p.gap is not None and p.gap.low > -MARGIN]
    if not sure:
        return (
            f"Nothing is surely within {MARGIN:g} points of full communication: every interval "
            f"reaches below that."
        )
    one = min(sure, key=lambda point: point.uploaded)
    return (
        f"The least upload that is surely within {MARGIN:g} points of full communication, which is "
        f"to say that its whole interval lies above −{MARGIN:g}: {one.name}, "
        f"{one.share.mean():.3g} % ({byte_text(one.uploaded)}), {one.gap}."
    )


def front(result: Results) -> str:
    """Who is on the front."""
    found = sorted((point for point in points(result) if point.on_front), key=lambda p: p.uploaded)
    told = ", ".join(
        f"{point.name} ({byte_text(point.uploaded)}, {point.accuracy.mean():.2f} %)"
        for point in found
    )
    return f"On the front, from the least upload on: {told}."


def targets(result: Results) -> str:
    """Who reaches shares of full communication's accuracy for the fewest bytes."""
    found = points(result)
    told: list[str] = []
    for share in found[0].reached:
        sent = {p.name: p.reached[share] for p in found}
        there = [(count, name) for name, count in sent.items() if count is not None]
        whose = "" if told else " of full communication's accuracy"
        first = f"{min(there)[1]} ({byte_text(min(there)[0])})" if there else "nobody"
        told.append(f"to {100 * share:g} %{whose}: {first}")
    return f"Fewest bytes {'; '.join(told)}."


def rivals(result: Results) -> str:
    """Whom the recommended policy dominates at equal accuracy, and all whom it does not."""
    best = _best(points(result))
    if best is None:
        return "The recommended policy is not in this comparison."
    others = rivals_of(best, result)
    beaten = sum(one.dominated for one in others)
    lines = [
        f"`{best.policy}` is {'' if best.on_front else 'not '}on the front. It dominates {beaten} "
        f"of the {len(others)} others at equal accuracy: these upload as much or more, are not "
        f"ahead, and are surely less than {MARGIN:g} points better."
    ]
    kinds: dict[str, list[Rival]] = {}
    for one in others:
        if not one.dominated:
            kinds.setdefault(_kind(one), []).append(one)
    lines += [f"  - {kind}: {listed(map(_why, kinds[kind]))}." for kind in _KINDS if kind in kinds]
    return "\n".join(lines)


_KINDS = (
    "Better, for fewer bytes",
    "Better, for as many bytes or more",
    "As many bytes or more, and too few seeds to tell",
    "Fewer bytes, and not ahead",
)


def _kind(one: Rival) -> str:
    """Why one is not dominated."""
    fewer, more, unclear, less = _KINDS
    if one.gap.ahead:
        return fewer if one.shorter else more
    return less if one.shorter else unclear


def _why(one: Rival) -> str:
    return f"{one.point.name} ({one.times:.3g} × the bytes, {one.gap})"


def noise(result: Results) -> str:
    """Who is ahead of full communication for fewer bytes; empty where nobody is."""
    cheaper = [p for p in points(result) if p.gap is not None and p.share.mean() < 99]
    ahead = [p.name for p in cheaper if p.gap is not None and p.gap.ahead]
    if not ahead:
        return ""
    return (
        f"Ahead of full communication, for fewer bytes, {'is' if len(ahead) == 1 else 'are'} "
        f"{listed(ahead)}: noise or silence helps the model here, so that being ahead is not the "
        f"merit of sending little."
    )


def payers(result: Results) -> str:
    """Who pays under the recommended policy; empty where the runs have no figures of clients."""
    best = _best(points(result))
    own = result.arms[best.name].who_pays if best else {}
    silent = [own.get(key) for key in WHO_PAYS[1:]]
    if best is None or any(share is None for share in silent):
        return ""
    small, large = (float(np.mean(share)) for share in silent if share is not None)
    text = (
        f"Under `{best.policy}` small clients are silent in {small:.1f} % of their turns, large "
        f"ones in {large:.1f} %"
    )
    worst, full = own.get(WHO_PAYS[0]), result.arms[FULL].who_pays.get(WHO_PAYS[0])
    if worst is None or full is None:
        return f"{text}."
    return (
        f"{text}; the worst tenth of clients has {np.mean(worst):.1f} %, with full communication "
        f"{np.mean(full):.1f} %."
    )


def budgets(result: Results) -> str:
    """How budgets that are shares were kept; empty where there is none, or runs are too short."""
    told = []
    for name, arm in result.arms.items():
        rule = dict(parse(arm.policy).rule.params)
        amount = rule.get("amount")
        if isinstance(amount, Amount) and amount.is_share:
            run = result.rounds if rule["per"] == "run" else 0
            kept = _windows(result, arm, run) / amount
            if kept.size:
                told.append(f"{name} {100 * kept.min():.1f} to {100 * kept.max():.1f}")
    if not told:
        return ""
    return (
        f"Upload over {_WINDOW} rounds, from one test to another after round {_FIRST}, in % of the "
        f"allowance (for `per=run`, of the rising line): {listed(told)}."
    )


def not_run(result: Results) -> str:
    """The policies of the grid that this experiment leaves out; empty where there is none."""
    absent = [name for name in GRID if name not in result.arms]
    return f"Not run here: {listed(absent)}." if absent else ""


def _windows(result: Results, arm: Arm, run: int) -> np.ndarray:
    """The shares uploaded in windows between tests, of all seeds, beside what the pace allows.

    A budget for a run of so many rounds rises; 0 is for one that is the same in every round.
    """
    places = range(len(arm.tested))
    pairs = [(i, j) for i in places for j in places
             if arm.tested[i] >= _FIRST and arm.tested[j] - arm.tested[i] == _WINDOW]  # fmt: skip
    pace = [budget.pace(np.arange(arm.tested[i], arm.tested[j], dtype=float), run).mean()
            for i, j in pairs]  # fmt: skip
    sent = [arm.uploaded[:, j] - arm.uploaded[:, i] for i, j in pairs]
    return np.array(sent) / (result.full_bytes(_WINDOW) * np.array(pace)[:, None])


def data(result: Results) -> str:
    """What was learned from whom."""
    d = result.data
    told = (
        f"{d['clients']:,} clients with {d['examples']:,} rows, {d['tests']:,} to test on; "
        f"{result.size:,} weights; matrix products in {result.made_with['precision']}."
    )
    if result.measure == ACCURACY:
        return told
    return (
        f"{told} Numbers are predicted: {result.measure} is the share of their variance in the "
        f"test rows that a model explains."
    )

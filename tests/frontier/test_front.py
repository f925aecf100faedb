"""What the frontier says follows from the numbers."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from taciturn.core.policy import parse
from taciturn.errors import RunError, UnknownName
from taciturn.frontier import figures, front, policies, tables, words
from taciturn.frontier.experiments import EXPERIMENTS, MAIN, experiment_of
from taciturn.frontier.policies import ENTRIES, GRID, RECOMMENDED
from taciturn.report.units import byte_text
from taciturn.sim.voices import Voices
from taciturn.studies import results_file
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import WHO_PAYS, Arm, Results

TESTED = np.array([5, 10])
SIZE = 1000
FULL_BYTES = 10 * 10 * (4 * SIZE + 24)


def arm(policy, final, share, half=50.0, who_pays=None):
    """Three seeds that end at `final` and a little about it, and are at `half` before."""
    ends = final + np.array([-0.1, 0.0, 0.1])
    accuracy = np.stack([np.full(3, half), ends], axis=1)
    uploaded = np.array([[0.5, 1.0]] * 3) * share / 100 * FULL_BYTES
    nothing = np.zeros((3, 10))
    return Arm(policy, (0, 1, 2), TESTED, accuracy, uploaded, nothing, nothing, who_pays or {})


def result(**arms):
    """By default the recommended policy is level with full at a hundredth."""
    found = {"full": arm("full", 80, 100), "best": arm(RECOMMENDED, 80, 1)} | arms
    experiment = Experiment(
        "x", "X", "glyphs", {}, {}, {name: a.policy for name, a in found.items()}
    )
    data = {"clients": 5, "examples": 50, "tests": 7}
    return Results(experiment, 10, 10, SIZE, found, (), {"precision": "tf32"}, data)


def point(found, name):
    (one,) = [p for p in front.points(found) if p.name == name]
    return one


def test_shares_gaps_and_bytes():
    best = point(result(), "best")
    assert best.share == pytest.approx(1)
    assert best.gap.mean == pytest.approx(0)
    assert best.uploaded == pytest.approx(FULL_BYTES / 100)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"a": (1, 5), "b": (2, 6)}, {"a", "b"}),
        ({"a": (1, 5), "b": (2, 5)}, {"a"}),
        ({"a": (1, 6), "b": (1, 5)}, {"a"}),
        ({"a": (1, 5), "b": (1, 5)}, {"a", "b"}),
        ({"a": (2, 6), "b": (3, 5), "c": (1, 4)}, {"a", "c"}),
    ],
)
def test_the_front_is_what_nobody_beats(ends, expected):
    assert front.pareto(ends) == expected


def test_bytes_are_counted_until_the_mean_gets_there():
    early = arm("full+eden:1", 80, 10, half=77)
    found = point(result(early=early), "early").reached
    assert found[0.9] == found[0.95] == pytest.approx(0.05 * FULL_BYTES)  # 72 and 76 of 80
    assert found[0.99] == pytest.approx(0.1 * FULL_BYTES)
    never = point(result(never=arm("full+eden:2", 70, 5)), "never").reached
    assert never[0.9] is None


def test_what_uploads_more_and_is_level_or_behind_is_dominated():
    level = arm("full+eden:1", 80.05, 3)
    level.accuracy[:, -1] += [0.1, -0.1, 0.0]  # seeds differ by more than the mean
    as_much = arm("full+eden:0.5", 80, 0.995)
    found = result(level=level, behind=arm("full+eden:2", 70, 6), as_much=as_much)
    told = words.rivals(found)
    assert "dominates 4 of the 4 others" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("final", "share", "why"),
    [
        (85, 3, "Better, for as many bytes or more: rival (3 × the bytes, +5.00 ± 1.49 points (a"),
        (80, 3, "too few seeds to tell: rival (3 × the bytes, +0.00 ± 1.49 points (undecided))."),
        (70, 0.5, "Fewer bytes, and not ahead: rival (0.5 × the bytes, −10.00 ± 1.49 points (b"),
        (80, 0.5, "Fewer bytes, and not ahead: rival (0.5 × the bytes, +0.00 ± 1.49 points (un"),
        (85, 0.5, "Better, for fewer bytes: rival (0.5 × the bytes, +5.00 ± 1.49 points (ahead)"),
    ],
)
def test_a_rival_that_is_not_dominated_is_named_with_the_reason(final, share, why):
    rival = arm("full+eden:1", final, share)
    rival.accuracy[:, -1] += [0.6, -0.6, 0.0]  # seeds differ
    text = words.rivals(result(rival=rival))
    assert "dominates 1 of the 2 others" in text
    assert [why in line for line in text.splitlines()] == [False, True]
    beaten = final >= 80 and share < 1
    assert ("is not on the front" in text) == beaten


def test_the_least_upload_that_is_surely_enough_is_named():
    unsure = arm("full+eden:1", 80, 0.5)
    unsure.accuracy[:, -1] += [0.6, -0.6, 0.0]
    near = arm("full+eden:2", 79.6, 0.6)  # its interval: from -0.4 to -0.4
    told = words.least(result(unsure=unsure, near=near))
    assert "near, 0.6 % (" in told
    assert "−0.40 ± 0.00 points (behind)" in told
    bad = result(best=arm(RECOMMENDED, 70, 1))
    assert words.least(bad).startswith("Nothing is surely within 0.5 points of full")


def test_who_pays_under_the_recommended_policy_is_told():
    def pays(worst):
        names = dict(zip(WHO_PAYS, (worst, 12.25, 3.0), strict=True))
        return {name: np.full(3, value) for name, value in names.items()}

    best = arm(RECOMMENDED, 80, 1, who_pays=pays(41.0))
    told = words.payers(result(best=best, full=arm("full", 80, 100, who_pays=pays(42.0))))
    assert "silent in 12.2 % of their turns, large ones in 3.0 %" in told
    assert told.endswith("the worst tenth of clients has 41.0 %, with full communication 42.0 %.")
    assert words.payers(result(best=best)).endswith("large ones in 3.0 %.")
    assert words.payers(result()) == ""


def test_whoever_gets_far_enough_for_the_fewest_bytes_is_named():
    text = words.targets(result(low=arm("full+eden:2", 73, 0.5)))
    share = {s: byte_text(s / 100 * FULL_BYTES) for s in (0.5, 1)}
    assert text == (
        f"Fewest bytes to 90 % of full communication's accuracy: low ({share[0.5]}); "
        f"to 95 %: best ({share[1]}); to 99 %: best ({share[1]})."
    )
    # A share of a measure below zero lies above it.
    below = [arm(policy, -10, 1, half=-50) for policy in ("full", RECOMMENDED)]
    nobody = words.targets(result(full=below[0], best=below[1]))
    assert "to 99 %: nobody" in nobody


def test_the_headline_has_difference_interval_and_share():
    text = words.headline(result())
    assert "80.00 % accuracy" in text
    assert "+0.00 ± 0.00 points (level) over 3 seeds" in text
    assert "**1 %** of its upload" in text
    assert words.brief(result()) == "X: +0.00 ± 0.00 points (level) at 1 %"
    without = result()
    del without.arms["best"]
    assert words.headline(without._replace(size=1_000_000)) == "**X**: not run."


def test_where_a_model_is_too_small_for_the_budget_the_headline_has_the_next_that_does_as_well():
    found = result(
        little=arm("budget:1%", 70, 1),
        enough=arm("budget:2%", 79.8, 2),
        more=arm("budget:4%", 80, 4),
    )
    del found.arms["best"]
    text = words.headline(found)
    assert words.brief(found) == "X, with `budget:2%`: −0.20 ± 0.00 points (behind) at 2 %"
    assert text.startswith("**X**: the budget of 0.2% cannot be kept: with 1,000 weights")
    least = "The least budget that ends at most 0.5 points below full communication: `budget:2%`"
    assert f"{least}, −0.20 ± 0.00 points (behind), at **2 %**" in text
    del found.arms["enough"], found.arms["more"]
    assert "the largest: `budget:1%`, −10.00 ± 0.00 points" in words.headline(found)
    del found.arms["little"]
    assert words.headline(found).endswith("No other budget was run.")


def test_stand_ins_are_compared_where_both_were_run():
    found = result(a=arm("adaptive+ou", 75, 60), b=arm("adaptive+peers", 78, 60),
                   c=arm("adaptive+ou+eden:1", 90, 60))  # fmt: skip
    alone = result(a=arm("adaptive+ou", 75, 60))
    alone = alone._replace(experiment=replace(alone.experiment, title="Y"))
    made = tables.stand_ins([found, alone])
    assert made.columns[3:-1] == ("X",)
    assert made.rows == [("`peers`", "`ou`", "`adaptive`", "+3.00 ± 0.00", "X")]
    behind = result(a=arm("adaptive+ou", 79, 60), b=arm("adaptive+peers", 78, 60))
    assert tables.stand_ins([behind]).rows[0][3:] == ("-1.00 ± 0.00", "nowhere")
    assert tables.stand_ins([result()]).rows == []


def test_who_is_ahead_of_full_for_fewer_bytes_is_told():
    more = arm("full", 85, 100)
    found = result(a=arm("full+eden:1", 85, 3), b=arm("full+eden:2", 79, 6), more=more)
    assert words.noise(found).startswith("Ahead of full communication, for fewer bytes, is a: ")
    assert words.noise(result()) == ""


def test_half_of_the_recommended_share_is_told_where_it_was_run():
    half = "budget:0.1%,per=run"
    assert words.half_of_it([result()]) == ""
    told = words.half_of_it([result(half=arm(half, 79, 0.5)), result()])
    assert told == f"**Half of the recommended share**, `{half}`: X −1.00 ± 0.00 points (behind)."
    peaks = f"{half},codec=peaks"
    other = result(half=arm(half, 79, 0.5))
    other = other._replace(experiment=replace(other.experiment, title="Y"))
    both = words.half_of_it([result(half=arm(half, 79, 0.5), peaks=arm(peaks, 81, 0.5)), other])
    assert both == (
        f"**Half of the recommended share**, `{half}`: X −1.00 ± 0.00 points (behind) and Y −1.00 "
        f"± 0.00 points (behind). `{peaks}`: X +1.00 ± 0.00 points (ahead) (not run: Y)."
    )


def test_what_was_not_run_is_named():
    names = {name: arm(policy, 80, 1) for name, policy in GRID.items()}
    assert words.not_run(result(**names)) == ""
    missing = {name: own for name, own in names.items() if name not in ("FedPAQ", "EDEN 1 bit")}
    assert words.not_run(result(**missing)) == "Not run here: EDEN 1 bit and FedPAQ."


def test_without_full_communication_there_is_nothing_to_compare_with():
    found = result()
    del found.arms["full"]
    with pytest.raises(RunError, match="full communication"):
        front.points(found)


def test_differences_are_taken_over_the_seeds_that_both_have():
    found = result()
    some = found.arms["best"]
    fewer = some._replace(seeds=(2, 0), accuracy=some.accuracy[[2, 0]], uploaded=some.uploaded[:2])
    gap = found._replace(arms=found.arms | {"best": fewer}).gap("best", "full")
    assert gap.mean == pytest.approx(0)
    assert gap.half == pytest.approx(0)


def test_the_table_has_a_line_for_each_and_names_the_recommended():
    made = tables.frontier(result(rival=arm("full+eden:1", 79, 3)))
    assert [row[0] for row in made.rows] == ["full", "rival", "**best**"]
    lines = made.text().splitlines()
    assert len({len(line) for line in lines if line.startswith("full")}) == 1
    assert "**" not in made.text()
    assert lines[3].startswith("best")


def test_who_pays_is_shown_where_the_runs_have_it():
    assert tables.who_pays(result()).rows == []
    pays = {"worst_tenth": np.array([40.0, 42, 44]), "silent_small": np.array([70.0, 70, 70])}
    made = tables.who_pays(result(rival=arm("full+eden:1", 79, 3, who_pays=pays)))
    ((name, worst, small, large),) = made.rows
    assert (name, str(worst), str(small), large) == (
        "rival", "42.00 ± 2.00", "70.00 ± 0.00", None
    )  # fmt: skip


def test_figures_of_clients_are_those_of_the_run():
    voices = Voices(
        seed=np.array([0, 0, 0, 1]),
        client=np.array([3, 5, 8, 3]),
        examples=np.array([10.0, 30, 20, 10]),
        asked=np.array([4, 4, 4, 2]),
        spoke=np.array([1, 4, 2, 0]),
        silent=np.array([3, 0, 2, 0]),
    )
    worst = np.array([[0.1, 0.2], [0.3, np.nan]])
    history = SimpleNamespace(seeds=(0, 1), worst_tenth=worst, voices=voices)
    assert results_file._who_pays(history, 0) == {
        "worst_tenth": 20.0, "silent_small": 75.0, "silent_large": 0.0
    }  # fmt: skip
    assert results_file._who_pays(history, 1) == dict.fromkeys(WHO_PAYS)


def test_the_picture_has_every_policy_at_its_bytes_and_accuracy():
    found = result(rival=arm("full+eden:1", 79, 3), other=arm("full+eden:2", 79.05, 3.1))
    figure = figures.frontier(found)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    ends = {(x, y) for line in axes.get_lines() if line.get_linestyle() == "None"
            for x, y in zip(*line.get_data(), strict=True)}  # fmt: skip
    assert ends == {(p.uploaded, p.accuracy.mean()) for p in front.points(found)}
    said = [text.get_text() for text in axes.get_xticklabels()]
    ticks = dict(zip(axes.get_xticks(), said, strict=True))
    assert ticks == {1024: "1 KiB", 10 * 1024: "10 KiB", 100 * 1024: "100 KiB", 1024**2: "1 MiB"}
    (band,) = axes.patches
    assert (band.get_y(), band.get_height()) == pytest.approx((79.5, 0.5))
    texts = {text.get_text(): text for text in axes.texts if text.get_text()}
    assert set(texts) == set(found.arms)
    assert texts["best"].get_fontweight() == "bold"
    renderer = axes.figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in texts.values()]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "full communication", "budgets", "eden", "recommended", "Pareto front",
        "0.5 points below full",
    ]  # fmt: skip


def test_the_picture_has_an_arrow_for_what_ends_far_below():
    (axes,) = figures.frontier(result(low=arm("full+top_k:0.1", 60, 3))).axes
    lowest = axes.get_ylim()[0]
    assert lowest == pytest.approx(77)
    arrows = [line.get_ydata()[0] for line in axes.get_lines() if line.get_marker() == "v"]
    assert arrows == [lowest]
    assert "low: 60.0 %" in {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    ("policy", "kind"),
    [("full", "full communication"), ("budget:1%", "budgets"), ("adaptive+ou", "silence"),
     ("adaptive+ignore+eden:0.1", "silence"), ("optimal:0.3+zero", "sampling"),
     ("random:0.5+ignore+quantize:4", "sampling"), ("full+eden:1", "eden"),
     ("full+quantize:2", "quantize"), ("full+draw_k:0.01", "draw_k"),
     ("full+peaks:0.1", "peaks"), ("full+float16", "others")],
)  # fmt: skip
def test_kinds_of_policies_have_a_colour_each(policy, kind):
    name = "full" if policy == "full" else "one"
    found = result(**{name: arm(policy, 80, 50)})
    assert figures._kind(point(found, name), found) == kind
    assert kind in figures._KINDS


def test_policies_are_spelt_as_they_are_read_back():
    assert len(GRID) == len(ENTRIES)
    for entry in ENTRIES:
        assert str(parse(entry.policy)) == entry.policy
        assert entry.reference
    assert RECOMMENDED in GRID.values()
    for some in (policies.SIX, policies.TWELVE):
        assert some.items() <= GRID.items()
        assert {"full", RECOMMENDED} <= set(some.values())
    assert (len(policies.SIX), len(policies.TWELVE)) == (6, 12)
    assert policies.OWN == {"power of choice": {"choice": 30}}
    assert [str(entry) for entry in ENTRIES if entry.name in policies.OWN] == ["full, choice=30"]


def test_every_setting_has_a_reason_and_every_experiment_full_communication():
    for experiment in EXPERIMENTS.values():
        assert experiment.arms["full"] == "full"
        for setting in (*experiment.options.values(), *experiment.settings.values()):
            assert setting.why.endswith(".")
    assert [experiment.seeds for experiment in MAIN] == [10, 10, 5, 5, 10]


def test_an_experiment_takes_what_was_asked_for():
    found = experiment_of("emnist", {"full": "full"}, {"rounds": 40, "lr": 0.3})
    assert found.numbers()["epochs"] == 2
    assert (found.numbers()["rounds"], found.numbers()["lr"]) == (40, 0.3)
    assert found.numbers()["evaluate_every"] == 2
    assert experiment_of("glyphs").arms == GRID
    assert experiment_of("glyphs").own == policies.OWN
    with pytest.raises(UnknownName):
        experiment_of("glyhps")


def test_how_a_budget_was_kept_is_counted_from_test_to_test():
    rounds = np.arange(10, 101, 10)
    each = np.where(rounds <= 20, 3.0, 1.0)  # the first rounds do not count
    each[4:6] = 1.5
    nothing = np.zeros((1, 100))
    sent = np.cumsum(each)[None] * 10 * 10 * (4 * SIZE + 24) * 0.01
    own = Arm("budget:1%", (0,), rounds, sent, sent, nothing, nothing)
    found = result(spent=own)
    assert "spent 110.0 to 120.0." in words.budgets(found)
    pace = 0.2 + 1.6 * (np.arange(100) + 0.5) / 100  # of a budget for the run
    sent = np.cumsum(pace)[None, rounds - 1] * 10 * (4 * SIZE + 24) * 0.01
    own = Arm("budget:1%,per=run", (0,), rounds, sent, sent, nothing, nothing)
    rising = result(spent=own)._replace(rounds=100)
    assert "spent 100.0 to 100.0." in words.budgets(rising)
    assert words.budgets(result()) == ""  # no fifty rounds

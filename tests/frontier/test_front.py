"""What the frontier says follows from the numbers."""

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
    return Results(experiment, 10, 10, SIZE, found, (), {}, data)


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
    level.accuracy[:, -1] += [0.2, -0.2, 0.0]  # seeds differ by more than the mean
    found = result(level=level, behind=arm("full+eden:2", 70, 6))
    assert front.not_dominated(found) == []
    assert "dominates 3 of the 3 others" in words.rivals(found)
    assert "exceptions" not in words.rivals(found)


@pytest.mark.parametrize(
    ("final", "share", "why"),
    [
        (85, 3, "uploads 3 times as much: +5.00 ± 1.49 points (ahead)"),
        (70, 0.5, "uploads 0.5 times as much: -10.00 ± 1.49 points (behind)"),
        (80, 0.5, "uploads 0.5 times as much: +0.00 ± 1.49 points (undecided)"),
        (85, 0.5, "uploads 0.5 times as much: +5.00 ± 1.49 points (ahead)"),
        (80.6, 3, "uploads 3 times as much: +0.60 ± 1.49 points (undecided)"),
    ],
)
def test_a_rival_that_is_not_dominated_is_named_with_the_reason(final, share, why):
    rival = arm("full+eden:1", final, share)
    rival.accuracy[:, -1] += [0.6, -0.6, 0.0]  # seeds differ
    text = words.rivals(result(rival=rival))
    assert "dominates 1 of the 2 others" in text
    assert f"rival, which {why}" in text


def test_whoever_gets_far_enough_for_the_fewest_bytes_is_named():
    text = words.targets(result(low=arm("full+eden:2", 73, 0.5)))
    share = {s: byte_text(s / 100 * FULL_BYTES) for s in (0.5, 1)}
    assert text == (
        f"Fewest bytes to 90 % of full communication's accuracy: low ({share[0.5]}); "
        f"to 95 %: best ({share[1]}); to 99 %: best ({share[1]})."
    )


def test_the_headline_has_difference_interval_and_share():
    text = words.headline(result())
    assert "80.00 % accuracy" in text
    assert "+0.00 ± 0.00 points (level) over 3 seeds" in text
    assert "**1 %** of its upload" in text
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
    assert text.startswith("**X**: the budget of 0.2% cannot be kept: with 1,000 weights")
    assert "`budget:2%` differs from full communication by -0.20 ± 0.00 points (behind)" in text
    del found.arms["enough"], found.arms["more"]
    assert "`budget:1%` differs from full communication by -10.00" in words.headline(found)


def test_stand_ins_are_compared_with_the_one_that_ends_highest():
    found = result(a=arm("adaptive+ou", 75, 60), b=arm("adaptive+ignore", 78, 60))
    (told,) = words.stand_ins(found)
    assert "`ignore` ends highest" in told
    assert "ou +3.00 ± 0.00 points (ahead)" in told
    assert words.stand_ins(result()) == []


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
    (axes,) = figures.frontier(found).axes
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


def test_policies_are_spelt_as_they_are_read_back():
    assert len(GRID) == len(ENTRIES)
    for entry in ENTRIES:
        assert str(parse(entry.policy)) == entry.policy
        assert entry.reference
    assert RECOMMENDED in GRID.values()
    for some in (policies.SIX, policies.ELEVEN):
        assert some.items() <= GRID.items()
        assert {"full", RECOMMENDED} <= set(some.values())
    assert (len(policies.SIX), len(policies.ELEVEN)) == (6, 11)
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
    assert words.budgets(result()) == ""  # no fifty rounds

"""What the frontier makes of numbers: its points, its front, its table and its picture."""

import numpy as np
import pytest

from taciturn.core.policy import parse
from taciturn.errors import RunError, UnknownName
from taciturn.frontier import figures, front, policies, tables
from taciturn.frontier.experiments import EXPERIMENTS, experiment_of
from taciturn.frontier.policies import ENTRIES, GRID, RECOMMENDED
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Arm, Results

SIZE = 1000
FULL_BYTES = 10 * 10 * (4 * SIZE + 24)


def arm(policy, final, share, half=50.0, who_pays=None):
    """Three seeds that end at `final` and a little about it, and are at `half` before."""
    ends = final + np.array([-0.1, 0.0, 0.1])
    accuracy = np.stack([np.full(3, half), ends], axis=1)
    uploaded = np.array([[0.5, 1.0]] * 3) * share / 100 * FULL_BYTES
    nothing = np.zeros((3, 10))
    tested = np.array([5, 10])
    return Arm(policy, (0, 1, 2), tested, accuracy, uploaded, nothing, nothing, who_pays or {})


def result(**arms):
    """By default the recommended policy is level with full at a hundredth."""
    found = {"full": arm("full", 80, 100), "best": arm(RECOMMENDED, 80, 1)} | arms
    experiment = Experiment(
        "x", "X", "glyphs", {}, {}, {name: a.policy for name, a in found.items()}
    )
    return Results(experiment, 10, 10, SIZE, found, (), {}, {})


def drawn(figure):
    """The names in a picture."""
    return {text.get_text() for text in figure.axes[0].texts if text.get_text()}


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


def test_a_point_has_share_gap_and_the_bytes_until_the_mean_gets_there():
    *_, early = front.points(result(early=arm("full+eden:1", 79, 10, half=77)))
    assert early.share == pytest.approx(10)
    assert early.gap.mean == pytest.approx(-1)
    assert early.uploaded == pytest.approx(FULL_BYTES / 10)
    assert not early.on_front
    reached = early.reached
    assert reached[0.9] == reached[0.95] == pytest.approx(0.05 * FULL_BYTES)  # 72 and 76 of 80
    assert reached[0.99] is None
    alone = result()
    del alone.arms["full"]
    with pytest.raises(RunError, match="full communication"):
        front.points(alone)


def test_differences_are_taken_over_the_seeds_that_both_have():
    found = result()
    some = found.arms["best"]
    fewer = some._replace(seeds=(2, 0), accuracy=some.accuracy[[2, 0]], uploaded=some.uploaded[:2])
    gap = found._replace(arms=found.arms | {"best": fewer}).gap("best", "full")
    assert (gap.mean, gap.half) == (pytest.approx(0), pytest.approx(0))


def test_the_table_has_a_line_for_each_and_the_worst_tenth_where_runs_have_it():
    pays = {"worst_tenth": np.array([40.0, 42, 44])}
    made = tables.frontier(result(rival=arm("full+eden:1", 79, 3, who_pays=pays)))
    assert [row[0] for row in made.rows] == ["full", "rival", "**best**"]
    assert made.columns[-1] == "worst tenth %"
    assert [row[-1] and str(row[-1]) for row in made.rows] == [None, "42.00 ± 2.00", None]
    assert made.text().splitlines()[3].startswith("best")
    assert tables.frontier(result()).columns[-1] == "to 99 %"


def test_the_picture_has_every_policy_at_its_bytes_and_accuracy():
    found = result(rival=arm("full+eden:1", 79, 3), low=arm("full+top_k:0.1", 60, 3))
    figure = figures.frontier(found)
    (axes,) = figure.axes
    ends = {(x, y) for line in axes.get_lines() if line.get_linestyle() == "None"
            for x, y in zip(*line.get_data(), strict=True)}  # fmt: skip
    assert ends == {  # what ends far below is an arrow at the lower edge
        (p.uploaded, max(p.accuracy.mean(), axes.get_ylim()[0])) for p in front.points(found)
    }
    assert drawn(figure) == {"full", "best", "rival", "low: 60.0 %"}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "full communication", "budgets", "eden", "sparse_ternary, top_k", "recommended",
        "Pareto front", "0.5 points below full",
    ]  # fmt: skip


def test_a_picture_has_no_more_policies_than_can_be_read():
    eden = {f"{i}": arm(f"full+eden:{i}", 78 + i / 10, i) for i in (1, 2, 3, 4)}
    other = {f"worse {i}": arm(f"adaptive,k={i}+ou", 79 - i / 10, 50 + i) for i in range(6)}
    few = drawn(figures.frontier(result(**eden, **other)))
    assert {*eden, *other} <= few  # twelve
    rivals = {"QSGD": arm("full+quantize:2", 77.9, 9), "beaten": arm("full+quantize:4", 77.8, 19)}
    figure = figures.frontier(result(**eden, **other, **rivals, more=arm("full+float16", 79, 60)))
    assert drawn(figure) == {"full", "best", *eden, "worse 0", "QSGD", "more"}
    assert figure.axes[0].get_title() == "X, 9 of 15 policies"


def test_policies_are_spelt_as_they_are_read_back():
    assert len(GRID) == len(ENTRIES)
    for entry in ENTRIES:
        assert str(parse(entry.policy)) == entry.policy
    assert policies.FEW.items() < policies.MORE.items() < GRID.items()
    assert (len(policies.FEW), len(policies.MORE)) == (6, 11)  # each that is named is there
    assert all(experiment.arms["full"] == "full" for experiment in EXPERIMENTS.values())


def test_an_experiment_takes_what_was_asked_for():
    found = experiment_of("emnist", {"full": "full"}, {"rounds": 40, "lr": 0.3})
    assert found.numbers()["epochs"] == 2
    assert (found.numbers()["rounds"], found.numbers()["lr"]) == (40, 0.3)
    assert found.numbers()["evaluate_every"] == 2
    assert experiment_of("glyphs").arms == GRID
    assert experiment_of("glyphs").own == policies.OWN
    with pytest.raises(UnknownName):
        experiment_of("glyhps")

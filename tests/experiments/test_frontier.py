"""`taciturn frontier`, and what it makes of runs."""

import json

import numpy as np
import pytest

from taciturn import cli, simulate
from taciturn.core.policy import parse
from taciturn.errors import RunError
from taciturn.frontier import front, picture
from taciturn.frontier.policies import GRID
from taciturn.studies.experiment import Experiment
from taciturn.studies.results import Arm, Results

FULL_BYTES = 10 * 10 * (4 * 1000 + 24)


def frontier(*arguments):
    cli.main(["frontier", *arguments])


def test_a_frontier_of_ones_own_policies(capsys, tmp_path, counted):
    policies = "silence, ignored; fixed:0.1+zero; random:0.5+ignore"
    asked = ["synthetic", "--policies", policies, "--rounds", "3", "--seeds", "2",
             "--out", str(tmp_path), "--side-by-side", "4"]  # fmt: skip
    assert all(str(parse(text)) == text for text in GRID.values())
    frontier("list")
    frontier(*asked)
    printed = capsys.readouterr().out
    for word in ("power of choice", "to 99 %", *policies.split("; ")):
        assert word in printed
    for name in ("table-synthetic.csv", "figure-synthetic.png", "figure-synthetic.svg"):
        assert (tmp_path / name).stat().st_size > 100
        assert str(tmp_path / name) in printed
    assert [(len(arms), seeds) for arms, seeds in counted] == [(2, (0, 1)), (2, (0, 1))]
    frontier(*asked)
    assert len(counted) == 2  # nothing is run again
    kept = json.loads((tmp_path / "synthetic.json").read_text())
    history = simulate("synthetic", "random:0.5+ignore", rounds=3, seeds=2)
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    found = [run for run in kept["runs"] if run["policy"] == "random:0.5+ignore"]
    assert [run["uploaded"] for run in found] == sent.tolist()
    assert [run["accuracy"] for run in found] == [
        pytest.approx(100 * row, rel=1e-5) for row in history.accuracy
    ]
    frontier(*asked, "--again", "fixed:0.1+zero")
    assert len(counted) == 3
    with pytest.raises(RunError, match="made with rounds = 3, and now it is rounds = 2: choose"):
        frontier(*("2" if one == "3" else one for one in asked))


def test_numbers_to_predict_are_scored_by_what_is_explained(capsys, tmp_path):
    rng = np.random.default_rng(0)
    table = tmp_path / "table.csv"
    rows = [f"{i % 12},{a:.3f},{3 * a + 0.1 * b:.3f}" for i, (a, b) in
            enumerate(rng.normal(size=(240, 2)))]  # fmt: skip
    table.write_text("\n".join(["who,a,y", *rows]) + "\n")
    frontier("table", "--data", str(table), "--option", "client=who", "label=y", "--policies",
             "full", "--rounds", "8", "--seeds", "1", "--out", str(tmp_path))  # fmt: skip
    printed = capsys.readouterr().out
    assert "explained variance %" in printed
    kept = json.loads((tmp_path / "table.json").read_text())
    (full,) = kept["runs"]
    assert f"{100 * (1 - full['loss'][-1] / kept['data']['variance']):.2f}" in printed


def result(**arms):
    """Three seeds that end at an accuracy and a little about it, after a share of all bytes."""
    found = {}
    for name, (policy, final, share) in ({"full": ("full", 80, 100)} | arms).items():
        ends = final + np.array([-0.1, 0.0, 0.1])
        found[name] = Arm(
            policy, (0, 1, 2), np.array([5, 10]), np.stack([ends - 3, ends], axis=1),
            np.array([[0.5, 1.0]] * 3) * share / 100 * FULL_BYTES, [{}] * 3,
        )  # fmt: skip
    experiment = Experiment(
        "x", "X", "glyphs", {}, {}, {name: arm.policy for name, arm in found.items()}
    )
    return Results(experiment, {"rounds": 10, "cohort": 10}, 1000, found, [], {})


def test_the_front_is_what_nobody_beats():
    for ends, expected in (
        ({"a": (1, 5), "b": (2, 6)}, {"a", "b"}),
        ({"a": (1, 5), "b": (1, 5)}, {"a", "b"}),
        ({"a": (2, 6), "b": (3, 5), "c": (1, 4)}, {"a", "c"}),
    ):
        assert front.pareto(ends) == expected


def test_a_row_has_the_gap_the_share_and_the_bytes_until_the_mean_gets_there():
    found = result(best=("budget", 80, 1), rival=("full+eden:1", 79, 10))
    full, rival, best = front.table(found).rows
    assert [row[0] for row in (full, rival, best)] == ["full", "rival", "**best**"]
    assert rival[2:6] == ("-1.00 ± 0.00", rival[3], "39.3 KiB", None)
    assert str(rival[3]) == "10.0 ± 0.0"
    assert rival[6:] == ("19.65 KiB", "19.65 KiB", None)  # 72 and 76 of 80, and never 79.2
    del found.arms["full"]
    with pytest.raises(RunError, match="full communication"):
        front.points(found)


def test_the_picture_has_policies_at_their_bytes_and_accuracy():
    found = result(best=("budget", 80, 1), low=("full+top_k:0.1", 60, 3))
    (axes,) = picture.draw(found).axes
    ends = {(x, y) for line in axes.get_lines() if line.get_linestyle() == "None"
            for x, y in zip(*line.get_data(), strict=True)}  # fmt: skip
    lowest = axes.get_ylim()[0]  # what ends far below is an arrow at the lower edge
    assert ends == {(p.uploaded, max(p.accuracy, lowest)) for p in front.points(found)}
    assert {t.get_text() for t in axes.texts} - {""} == {"full", "best", "low: 60.0 %"}

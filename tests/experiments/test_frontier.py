"""`taciturn frontier`, as a user calls it."""

import json

import numpy as np
import pytest

from taciturn import cli, simulate
from taciturn.errors import DataError, InputError, RunError, UnknownName
from taciturn.studies import pieces
from taciturn.studies.experiment import Experiment, Setting
from taciturn.studies.results import WHO_PAYS


def frontier(*arguments: str) -> None:
    cli.main(["frontier", *arguments])


@pytest.fixture
def counted(monkeypatch):
    """The policies and seeds of every piece that is run."""
    calls = []
    inner = pieces.compare

    def compare(task, policies, **settings):
        calls.append((list(policies.values()), settings["seeds"]))
        return inner(task, policies, **settings)

    monkeypatch.setattr(pieces, "compare", compare)
    return calls


def test_a_frontier_of_ones_own_policies(capsys, tmp_path, counted):
    policies = "silence + EDEN 0.1; budget:10%; random:0.5+ignore"
    asked = ["synthetic", "--policies", policies, "--rounds", "3", "--seeds", "2",
             "--out", str(tmp_path), "--side-by-side", "4"]  # fmt: skip
    frontier("list", "--out", str(tmp_path))
    frontier(*asked)
    printed = capsys.readouterr().out
    for word in ("emnist-long", "not run", "recommended", "to 99 %", *policies.split("; ")):
        assert word in printed
    for name in ("table-synthetic.csv", "figure-synthetic.png", "figure-synthetic.svg"):
        assert (tmp_path / name).stat().st_size > 100
        assert str(tmp_path / name) in printed
    assert [(len(arms), seeds) for arms, seeds in counted] == [(2, (0, 1)), (2, (0, 1))]
    frontier(*asked)
    assert len(counted) == 2  # nothing is run again
    kept = json.loads((tmp_path / "synthetic.json").read_text())
    assert {"clients", "examples", "tests", "sha256"} <= set(kept["data"])
    assert all(piece["seconds"] > 0 for piece in kept["pieces"])
    history = simulate("synthetic", "random:0.5+ignore", rounds=3, seeds=2)
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    found = [run for run in kept["runs"] if run["policy"] == "random:0.5+ignore"]
    assert [run["uploaded"] for run in found] == sent.tolist()
    assert [run["accuracy"] for run in found] == [
        pytest.approx(100 * row, rel=1e-5) for row in history.accuracy
    ]
    for seed, run in enumerate(found):
        thirds = [history.voices.of_seed(seed).silent_share(third) for third in (0, 2)]
        assert [run[key] for key in WHO_PAYS] == [None, *thirds]  # nobody has test rows of his own
    with pytest.raises(RunError, match="made with rounds = 3, and now it is rounds = 2: choose"):
        frontier(*("2" if one == "3" else one for one in asked))


def few_rounds(arms, own=None) -> Experiment:
    settings = {"rounds": Setting(2, "Few."), "cohort": Setting(3, "Few."),
                "evaluate_every": Setting(1, "Few.")}  # fmt: skip
    return Experiment("synthetic", "S", "synthetic", {}, settings, arms, own=own or {})


def test_an_arm_with_settings_of_its_own_is_a_piece_of_its_own(tmp_path, counted):
    def chosen(choice):
        experiment = few_rounds({"full": "full", "chosen": "full"}, {"chosen": {"choice": choice}})
        return pieces.run(experiment, pieces.Options(tmp_path, 1), said.append)

    said = []
    found = chosen(9)
    assert counted == [(["full"], (0,)), (["full"], (0,))]
    history = simulate("synthetic", "full", rounds=2, cohort=3, choice=9)
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    np.testing.assert_array_equal(found.arms["chosen"].uploaded, sent)
    np.testing.assert_array_equal(sent - found.arms["full"].uploaded, [[9 * 24, 18 * 24]])
    chosen(9)
    chosen(8)
    assert len(counted) == 3  # other settings replace what was there
    kept = json.loads((tmp_path / "synthetic.json").read_text())["runs"]
    assert [run.get("settings") for run in kept] == [None, {"choice": 8}]
    chosen(101)
    assert len(counted) == 3
    assert said[-1].startswith("S: chosen left out: `choice` must be at least the cohort of 3")


def test_what_has_changed_is_run_again(tmp_path, counted):
    asked = ["synthetic", "--policies", "EDEN 1 bit; random:0.5+zero", "--rounds", "1", "--seeds",
             "2", "--out", str(tmp_path), "--side-by-side", "8"]  # fmt: skip
    frontier(*asked)
    kept = tmp_path / "synthetic.json"
    before = kept.read_text()
    with pytest.raises(InputError, match=r"has no runs of EDEN 2 bits to run again"):
        frontier(*asked, "--again", "full+eden:2")
    with pytest.raises(InputError, match=r"EDEN 1 bit would be run again, and is none of the pol"):
        frontier(*(one.replace("EDEN 1 bit; ", "") for one in asked), "--again", "full+eden:1")
    assert kept.read_text() == before
    frontier(*asked, "--again", "full+eden:1")
    assert [arms for arms, _ in counted] == [
        ["full", "full+eden:1", "random:0.5+zero"], ["full+eden:1"]
    ]  # fmt: skip
    after = json.loads(kept.read_text())
    assert sorted(map(str, after["runs"])) == sorted(map(str, json.loads(before)["runs"]))


def test_a_budget_that_cannot_be_kept_is_left_out(tmp_path, counted):
    said = []
    experiment = few_rounds({"full": "full", "little": "budget:2%", "more": "budget:10%"})
    pieces.run(experiment, pieces.Options(tmp_path, 2), said.append)
    assert [names for names, _ in counted] == [["full", "budget:10%"]] * 2
    (about,) = [line for line in said if "left out" in line]
    assert about.startswith("S: little left out: the budget of 2% cannot be kept: with 101 weights")


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
    assert kept["data"]["variance"] == pytest.approx(9, rel=0.5)
    (full,) = kept["runs"]
    assert f"{100 * (1 - full['loss'][-1] / kept['data']['variance']):.2f}" in printed


def test_data_that_are_one_file_must_be_named(tmp_path, monkeypatch):
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    with pytest.raises(DataError, match="parkinsons_updrs"):
        frontier("parkinsons", "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["glyphs", "--policies", "adaptive; adaptive"], InputError),
        (["glyphs", "--precision", "half"], UnknownName),
    ],
)
def test_wrong_requests_have_one_clear_error(arguments, error, tmp_path):
    with pytest.raises(error):
        frontier(*arguments, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("missing", "most", "expected"),
    [
        ({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, (2, 2), [("ab", [0, 1]), ("c", [0, 1])]),
        ({"a": [0, 1, 2], "b": [0, 1, 2]}, (2, 2), [("ab", [0, 1]), ("ab", [2])]),
        ({"a": [1], "b": [0, 1]}, (5, 5), [("a", [1]), ("b", [0, 1])]),
    ],
)
def test_pieces_are_cut(missing, most, expected):
    assert [("".join(arms), seeds) for arms, seeds in pieces.cut(missing, *most)] == expected

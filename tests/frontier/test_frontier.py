"""`taciturn frontier`, as a user calls it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taciturn import cli, simulate
from taciturn.errors import DataError, InputError, RunError, UnknownName
from taciturn.frontier import figures, page
from taciturn.frontier.experiments import EXPERIMENTS
from taciturn.frontier.front import points, recommended
from taciturn.report.units import byte_text
from taciturn.studies import pieces
from taciturn.studies.experiment import Experiment, Setting
from taciturn.studies.results import read

DOCS = Path(__file__).parents[2] / "docs"
POLICIES = "adaptive+ignore+eden:0.1; budget:10%; random:0.5+ignore"


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
    asked = ["synthetic", "--policies", POLICIES, "--rounds", "3", "--seeds", "2",
             "--out", str(tmp_path), "--side-by-side", "4"]  # fmt: skip
    frontier(*asked)
    printed = capsys.readouterr().out
    assert "silence + EDEN 0.1" in printed
    assert "to 99 %" in printed
    for name in ("table-synthetic.csv", "figure-synthetic.png", "figure-synthetic.svg"):
        assert (tmp_path / name).stat().st_size > 100
        assert str(tmp_path / name) in printed
    # Two arms and then the other two, with both seeds each.
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


def own_settings(**choices: int) -> Experiment:
    """Full communication by itself, and with power of choice."""
    settings = {"rounds": Setting(2, "Few."), "cohort": Setting(3, "Few."),
                "evaluate_every": Setting(1, "Few.")}  # fmt: skip
    own = {name: {"choice": choice} for name, choice in choices.items()}
    arms = {"full": "full"} | dict.fromkeys(own, "full")
    return Experiment("synthetic", "S", "synthetic", {}, settings, arms, own=own)


def test_an_arm_with_settings_of_its_own_is_a_piece_of_its_own(tmp_path, counted):
    said, options = [], pieces.Options(tmp_path, 1)
    found = pieces.run(own_settings(chosen=9), options, said.append)
    assert counted == [(["full"], (0,)), (["full"], (0,))]
    history = simulate("synthetic", "full", rounds=2, cohort=3, choice=9)
    sent = (history.bytes_up + history.overhead_up).cumsum(1)
    np.testing.assert_array_equal(found.arms["chosen"].uploaded, sent)
    np.testing.assert_array_equal(sent - found.arms["full"].uploaded, [[9 * 24, 18 * 24]])
    labels = {text.get_text(): text for text in figures.frontier(found).axes[0].texts}
    assert labels["chosen"].get_color() != labels["full"].get_color()

    pieces.run(own_settings(chosen=9), options, said.append)
    assert len(counted) == 2  # nothing is run again
    pieces.run(own_settings(chosen=8), options, said.append)
    assert len(counted) == 3  # other settings replace what was there
    kept = json.loads((tmp_path / "synthetic.json").read_text())["runs"]
    assert [run.get("settings") for run in kept] == [None, {"choice": 8}]


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
    assert len(after["pieces"]) == 2


def test_policies_may_be_named_as_in_the_list(tmp_path, counted):
    frontier("synthetic", "--policies", "power of choice; EDEN 1 bit; random:0.5+zero", "--rounds",
             "1", "--seeds", "1", "--out", str(tmp_path))  # fmt: skip
    assert counted == [(["full", "full+eden:1", "random:0.5+zero"], (0,)), (["full"], (0,))]
    kept = json.loads((tmp_path / "synthetic.json").read_text())["runs"]
    assert {run["arm"]: run.get("settings") for run in kept} == {
        "full": None, "EDEN 1 bit": None, "random:0.5+zero": None,
        "power of choice": {"choice": 30},
    }  # fmt: skip


def test_an_arm_whose_settings_do_not_fit_the_task_is_left_out(tmp_path, counted):
    said = []
    found = pieces.run(own_settings(many=101), pieces.Options(tmp_path, 1), said.append)
    assert list(found.arms) == ["full"]
    assert len(counted) == 1
    assert said[-1].startswith("S: many left out: `choice` must be at least the cohort of 3")


def test_a_budget_that_cannot_be_kept_is_left_out(tmp_path, counted):
    said, arms = [], {"full": "full", "little": "budget:2%", "more": "budget:10%"}
    experiment = replace(own_settings(), arms=arms)
    found = pieces.run(experiment, pieces.Options(tmp_path, 2), said.append)
    assert list(found.arms) == ["full", "more"]
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
             "full+eden:1", "--rounds", "8", "--seeds", "1", "--out", str(tmp_path))  # fmt: skip
    printed = capsys.readouterr().out
    assert "explained variance %" in printed
    kept = json.loads((tmp_path / "table.json").read_text())
    assert kept["data"]["variance"] == pytest.approx(9, rel=0.5)
    (full, _) = kept["runs"]
    explained = 100 * (1 - full["loss"][-1] / kept["data"]["variance"])
    assert f"{explained:.2f}" in printed


def test_list_says_what_there_is(capsys, tmp_path):
    frontier("list", "--out", str(tmp_path))
    printed = capsys.readouterr().out
    assert "emnist-long" in printed
    assert "not run" in printed
    assert "recommended" in printed


def test_the_page_is_what_its_files_say():
    assert (DOCS / "frontier.md").read_text("utf-8") == page.text(
        DOCS / "frontier", Path("frontier")
    )


def test_the_readme_leads_with_what_the_files_say():
    lead, *_ = (DOCS.parent / "README.md").read_text("utf-8").partition("## Try it")
    lead = " ".join(lead.split())
    emnist, long = (read(EXPERIMENTS[name], DOCS / "frontier")
                    for name in ("emnist", "shakespeare-long"))  # fmt: skip
    best, full = recommended(points(emnist)), points(emnist)[0]
    gap, later = best.gap, recommended(points(long)).gap
    seconds = sum(piece.seconds for piece in emnist.pieces if "H200" in piece.device)
    assert f"{len(emnist.arms)} policies" in lead
    assert f"in {seconds:.0f} seconds on one NVIDIA H200" in lead
    (peaks,) = (p for p in points(emnist) if p.policy.endswith("codec=peaks"))
    half = f"{peaks.gap.mean:.2f} ± {peaks.gap.half:.2f} points for {byte_text(peaks.uploaded)}"
    assert f"`{peaks.policy}`, ran on two CPU cores: {half}".replace("-", "−") in lead
    policies = " ".join((DOCS / "policies.md").read_text("utf-8").split())
    half = f"{-peaks.gap.mean:.2f} ± {peaks.gap.half:.2f} points below full communication"
    assert f"`{peaks.policy}` ends {half} on EMNIST" in policies
    assert peaks.gap.word() == "level"
    assert f"`{best.policy}`, ends {-gap.mean:.2f} ± {gap.half:.2f} points below full" in lead
    assert f"for {byte_text(best.uploaded)} instead of {byte_text(full.uploaded)}" in lead
    text = f"{later.mean:.2f} ± {later.half:.2f}".replace("-", "−")
    assert f"it is level with full communication, at {text} points" in lead
    assert (later.word(), gap.mean < 0) == ("level", True)  # else other words


@pytest.mark.parametrize("name", ["emnist", "shakespeare", "emnist-long", "shakespeare-long"])
def test_what_a_rising_budget_gains_is_what_the_files_say(name):
    experiment = EXPERIMENTS[name]
    even, rising = "budget:0.2%", "budget:0.2%,per=run"
    both = replace(experiment, arms={even: even, rising: rising}, own={})
    found = read(both, DOCS / "frontier")
    gain, seeds = found.gap(rising, even), len(found.arms[even].seeds)
    text = f"{gain.mean:+.2f} ± {gain.half:.2f}".replace("-", "−")
    policies = (DOCS / "policies.md").read_text("utf-8")
    assert f"| {experiment.title} | {seeds} | {text} |" in policies


def test_the_page_of_an_empty_folder_says_what_to_run(tmp_path):
    (path,) = page.write(tmp_path)
    for name in EXPERIMENTS:
        assert f"`taciturn frontier {name}`" in path.read_text("utf-8")


def test_the_page_has_experiments_of_ones_own(tmp_path):
    frontier("synthetic", "--policies", "full+float16; budget:12%", "--rounds", "6", "--seeds", "2",
             "--out", str(tmp_path))  # fmt: skip
    *_, path = page.write(tmp_path)
    text = path.read_text("utf-8")
    assert "## synthetic" in text
    assert "| full+float16 |" in text
    assert "### synthetic" in text
    assert "| rounds | 6 | As asked for. |" in text
    for absent in ("### EMNIST", "Not run yet", "chosen on the seeds"):
        assert absent not in text


def test_runs_of_other_settings_are_refused_by_what_differs(tmp_path):
    options = ("--policies", "full+float16", "--seeds", "1", "--out", str(tmp_path), "--rounds")
    frontier("synthetic", *options, "2")
    with pytest.raises(RunError, match="made with rounds = 2, and now it is rounds = 3: choose"):
        frontier("synthetic", *options, "3")


def test_data_that_are_one_file_must_be_named(tmp_path, monkeypatch):
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    with pytest.raises(DataError, match="parkinsons_updrs"):
        frontier("parkinsons", "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["glyhps"], UnknownName),
        (["glyphs", "--policies", "adaptiv"], UnknownName),
        (["glyphs", "--policies", "adaptive; adaptive"], InputError),
        (["glyphs", "--seeds", "0"], InputError),
        (["glyphs", "--rounds", "0"], InputError),
        (["glyphs", "--side-by-side", "0"], InputError),
        (["glyphs", "--option", "x"], InputError),
        (["glyphs", "--precision", "half"], UnknownName),
        (["page", "--page", "."], InputError),
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
        ({"a": [0, 1], "b": [0, 1]}, (2, 1), [("ab", [0]), ("ab", [1])]),
        ({"a": [0, 1, 2]}, (1, 2), [("a", [0, 1]), ("a", [2])]),
        ({"a": [1], "b": [0, 1]}, (5, 5), [("a", [1]), ("b", [0, 1])]),
        ({}, (1, 1), []),
    ],
)
def test_pieces_are_cut(missing, most, expected):
    assert [("".join(arms), seeds) for arms, seeds in pieces.cut(missing, *most)] == expected

"""`taciturn frontier`, as a user calls it."""

import json
from pathlib import Path

import numpy as np
import pytest

from taciturn import cli, simulate
from taciturn.errors import DataError, InputError, UnknownName
from taciturn.frontier import page
from taciturn.frontier.experiments import EXPERIMENTS
from taciturn.studies import pieces

DOCS = Path(__file__).parents[2] / "docs"
POLICIES = "adaptive+ignore+eden:0.1; random:0.5+ignore"


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
    # Two arms and then the third, with both seeds each.
    assert [(len(arms), seeds) for arms, seeds in counted] == [(2, (0, 1)), (1, (0, 1))]
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


def test_the_page_of_an_empty_folder_says_what_to_run(tmp_path):
    (path,) = page.write(tmp_path)
    for name in EXPERIMENTS:
        assert f"`taciturn frontier {name}`" in path.read_text("utf-8")


def test_data_that_are_one_file_must_be_named(tmp_path, monkeypatch):
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    with pytest.raises(DataError, match="parkinsons_updrs"):
        frontier("parkinsons", "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["glyhps"], UnknownName),
        (["glyphs", "--policies", "adaptiv"], UnknownName),
        (["glyphs", "--policies", "full; full"], InputError),
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

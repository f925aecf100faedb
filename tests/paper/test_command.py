"""`taciturn paper`, as a user calls it."""

import pytest

from taciturn import cli
from taciturn.errors import InputError, RunError, UnknownName


def test_list_says_what_there_is(capsys, tmp_path):
    cli.main(["paper", "list", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "main" in printed
    assert "6 paths" in printed
    assert "8 bytes" in printed
    assert "not run" in printed


@pytest.mark.slow
def test_a_quick_table_and_figure(capsys, tmp_path):
    cli.main(["paper", "table", "thresholds", "--quick", "--rounds", "3", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "\nadaptive ou constrained  " in printed
    assert (tmp_path / "table-thresholds.csv").exists()
    assert (tmp_path / "glyphs.json").exists()
    cli.main(["paper", "figure", "7", "--quick", "--rounds", "3", "--out", str(tmp_path)])
    assert (tmp_path / "figure-thresholds.svg").exists()


def test_experiments_are_run_by_name_and_the_page_is_made_of_what_is_there(capsys, tmp_path):
    out = ["--out", str(tmp_path)]
    cli.main(["paper", "run", "synthetic", "--rounds", "2", "--seeds", "1", *out])
    assert "synthetic: 9 runs" in capsys.readouterr().out
    before = (tmp_path / "synthetic.json").read_text()
    cli.main(["paper", "page", *out])
    page = (tmp_path / "results.md").read_text("utf-8")
    assert "EMNIST: not run." in page
    assert "| adaptive ou constrained | 1 |" in page
    assert (tmp_path / "synthetic.json").read_text() == before
    assert {path.suffix for path in tmp_path.glob("figure-*")} == {".png", ".svg"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["table", "mian"], UnknownName),
        (["figure", "1"], UnknownName),  # a diagram
        (["figure", "9"], UnknownName),
        (["run", "synthetic,emnits"], UnknownName),
        (["run"], InputError),
        (["page", "--quick"], InputError),
        (["table"], InputError),
        (["table", "main", "--seeds", "0"], InputError),
        (["table", "clients", "--quick"], RunError),
        (["figure", "6", "--quick"], RunError),
        (["figure", "²"], UnknownName),
        (["all", "--quick"], InputError),
        (["table", "main", "--precision", "float31"], UnknownName),
    ],
)
def test_wrong_requests_have_one_clear_error(arguments, error, tmp_path):
    with pytest.raises(error):
        cli.main(["paper", *arguments, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()

"""Bad input on the command line: one line that names what is wrong, and nothing left behind.

A case is a command line and a piece of what it must say. `NAME` in braces is a file of `files.py`.
Nothing here trains or compiles: input that gets as far as that was accepted, and fails the case.
What each setting, argument and file may be is in `test_python.py`; here is every way to it once.
"""

import errno
import os
import shlex
from pathlib import Path

import pytest

CASES = [
    ("walk", "walk"),
    ("run --rouns 3", "--rouns"),
    ("run synthetic extra", "extra"),
    ("run synthetic --rounds 1.5", "rounds"),
    ("run synthetic --lr 0.1 --rounds 3 --lr=0.2", "`--lr`"),
    ("run synthetic --rounds 1000000 --seeds 1000", "10000"),
    ("run synthetc", "`synthetic`"),
    (f"run {'x' * 300}", "`xxx"),
    ("run synthetic --rule zero", "`zero`"),
    ("run synthetic --policy full --rule full", "`--policy`"),
    ("run synthetic --budget 4kB --rule full", "`--budget`"),
    ("run synthetic --out {not_utf8}", "`out`"),
    ("run npz", "`data`"),
    ("run table --data {csv}", "`client`"),
    ("run table --data {csv} --client user", "`label`"),
    ("run table --data {csv} --client user --label user", "two columns"),
    ("run table --data {csv} --client user --label y --option hidden", "KEY=VALUE"),
    ("run table --data {csv} --client user --label y --option label=a", "KEY=VALUE"),
    ("run idx --data {idx} --split even", "`split`"),
    ("run idx --data {idx}", "`clients`"),
    ("run --config {toml_unknown}", "`rouns`"),
    ("run synthetic --sweep lr", "name=value,value"),
    ("run synthetic --sweep lr=0.1,x", "`lr`"),
    ("run synthetic --sweep learning=1", "`learning`"),
    ("compare synthetic", "needs arms"),
    ("compare synthetic --arms 'full; full'", "twice"),
    ("compare synthetic --arms 'full, adaptive+ou'", "separated by semicolons"),
    ("compare synthetic --arms full --policy full", "--policy"),
    ("resume {missing}", "missing"),
    ("resume {empty}", "config.toml"),
    ("resume {run}", "Python"),
    ("runs {missing}", "missing is not a folder"),
    ("data look", "look"),
    ("data fetch", "needs a name"),
    ("data fetch mnist", "`mnist`"),
    ("data list --data {text}", "`data`"),
    ("data show synthetic --out {missing}/a/b.png", "cannot be written"),
    ("report", "run folder"),
    ("watch {missing}", "missing is not a folder"),
    ("watch {empty} --port 80000", "80000"),
    ("report {missing}", "metrics.csv"),
    ("report {run_without_rows}", "run_without_rows"),
    ("report {run_of_other_columns}", "'seed'"),
    ("report {run_cut_in_the_middle}", "row 2"),
    ("report {run_without_bytes}", "`bytes_up`"),
    ("report {run_with_words}", "many"),
    ("report {run_in_latin}", "run_in_latin"),
    ("report {run} --out {missing}/a/b.png", "cannot be written"),
    ("report {run} --out {folder}", "`--out`"),
    ("frontier glyphs --policies nobody --out {new}", "`nobody`"),
]


def error_of(taciturn, *arguments):
    """What a command that is refused says, in one line if it is not its parser that refuses."""
    code, out, err = taciturn(*arguments)
    assert (code in (1, 2), out) == (True, ""), err
    if code == 1:
        assert err.startswith("taciturn: ")
        assert err.count("\n") == 1
        assert len(err) < 1_000
    return err


@pytest.mark.parametrize(("line", "needle"), CASES, ids=[line[:70] for line, _ in CASES])
def test_it_is_one_line_that_says_what_is_wrong(line, needle, places, taciturn):
    err = error_of(taciturn, *(word.format_map(places) for word in shlex.split(line)))
    plain = " ".join(err.replace("│", " ").split())
    assert needle in plain or needle in plain.replace("_", "-")
    assert not Path("runs").exists()


def test_a_full_disk_is_one_line(monkeypatch, taciturn):
    """At the start; `tests/test_resume.py` fills the disk later on."""

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    err = error_of(taciturn, "run", "synthetic", "--out", "there")
    assert "there/config.toml" in err
    assert "No space left on device" in err

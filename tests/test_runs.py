"""Run folders: a file is the old one or the new one, never half of either."""

import json
import math
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

from taciturn import files, runs
from taciturn.errors import RunError
from taciturn.report import versions


def test_what_is_not_there_is_null_left_out_or_empty(tmp_path):
    path = tmp_path / "file"
    runs.write_json(
        path, {"a": math.nan, "b": (1, math.inf), "c": np.float32(0.5), "d": np.int64(3)}
    )
    assert json.loads(path.read_text()) == {"a": None, "b": [1, None], "c": 0.5, "d": 3}
    values = {"text": 'quotes " and \\ and Zürich', "number": 0.1, "list": [0.5, math.inf]}
    runs.write_toml(path, values | {"nothing": None})
    assert tomllib.loads(path.read_text("utf-8")) == values
    runs.write_csv(path, [{"a": 1, "b": math.nan}, {"a": 2, "b": 0.5}])
    assert path.read_text() == "a,b\n1,\n2,0.5\n"


@pytest.mark.parametrize("end", ["2,0.5", "25\n", "2,0.5,1\n"])
def test_a_row_that_is_not_whole_is_left_out(tmp_path, end):
    (tmp_path / "a.csv").write_text(f"a,b\n0,1.5\n1,\n{end}")
    assert runs.read_csv(tmp_path / "a.csv") == [{"a": "0", "b": "1.5"}, {"a": "1", "b": ""}]


def test_no_bit_of_a_checked_file_changes_unseen(tmp_path):
    path = tmp_path / "a.safetensors"
    content = {"a": [1, 2], "b": "text"}
    arrays = {"w": np.arange(6.0).reshape(2, 3).T, "n": np.int32(3)}
    runs.write_checked(path, content, arrays)
    found, back = runs.read_checked(path)
    assert found == content
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array, strict=True)
    data = path.read_bytes()
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
        with pytest.raises(RunError, match=r"a\.safetensors"):
            runs.read_checked(path)


@pytest.mark.parametrize("read", [runs.read_json, runs.read_arrays])
def test_what_cannot_be_read_is_named(tmp_path, read):
    path = tmp_path / "file"
    for data in (None, b"{ half", b"", b"\xff\xfe\x00"):
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(RunError, match="file cannot be read"):
            read(path)


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    for name in ("file", "stopped/config.toml", "complete/config.toml", "complete/summary.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for folder, message in (
        (tmp_path, "already there and not an empty folder"),
        (tmp_path / "file", "already there and not an empty folder"),
        (tmp_path / "file" / "below", "cannot be made: Not a directory"),
        (tmp_path / "stopped", "stopped: `taciturn resume"),
        (tmp_path / "complete", "already there and not an empty folder"),
    ):
        with pytest.raises(RunError, match=message), runs.create(folder, "task"):
            pass
    assert not list(tmp_path.rglob(".running.lock"))


def test_a_folder_has_one_writer_and_may_have_the_litter_of_a_dead_one(tmp_path):
    (tmp_path / ".a.0.taciturn").touch()
    with runs.create(tmp_path, "task"):
        assert [path.name for path in tmp_path.iterdir()] == [".running.lock"]
        with pytest.raises(RunError, match="is in use: another process"), runs.claimed(tmp_path):
            pass
    with runs.claimed(tmp_path):
        assert files.is_locked(tmp_path / runs.LOCK)


def test_without_a_folder_each_run_gets_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        with runs.create(None, "synthetic"):
            pass
    assert len(list(Path("runs").glob("synthetic-2*"))) == 3


def test_the_commit_is_that_of_the_packages_own_checkout(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    def seen(folder):
        monkeypatch.setattr(versions, "_CHECKOUT", folder)
        versions.commit.cache_clear()
        return versions.versions()["commit"]

    git("init")
    (tmp_path / "below").mkdir()
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "first")
    head = git("rev-parse", "--short=12", "HEAD")
    assert seen(tmp_path) == head
    (tmp_path / "file").write_text("b")
    assert seen(tmp_path) == f"{head}-dirty"
    assert seen(tmp_path / "below") is None  # the repository of somebody who has installed it
    versions.commit.cache_clear()

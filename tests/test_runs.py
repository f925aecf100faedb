"""Run folders: a file is the old one or the new one, never half of either."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn import runs
from taciturn.errors import RunError


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (runs.write_json, {"a": object()}),
        (runs.write_toml, {"a": object()}),
        (runs.write_csv, [{"a": 1}, {"b": 2}]),
        (runs.write_arrays, {"a": "text"}),
    ],
)
def test_every_writer_is_atomic(tmp_path: Path, write: Any, value: Any) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(Exception):  # noqa: B017, PT011
        write(path, value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_standard_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    runs.write_json(
        path, {"a": math.nan, "b": (1, math.inf), "c": np.float32(0.5), "d": np.int64(3)}
    )
    assert json.loads(path.read_text()) == {"a": None, "b": [1, None], "c": 0.5, "d": 3}
    assert runs.read_json(path) == {"a": None, "b": [1, None], "c": 0.5, "d": 3}
    assert "\n" not in runs.to_json({"a": [1, 2]}, indent=None)


def test_toml_reads_back(tmp_path: Path) -> None:
    values = {
        "text": 'quotes " and \\ and Zürich',
        "number": 0.1,
        "whole": 3,
        "flag": True,
        "list": [1, 2],
        "clip": math.inf,
    }
    runs.write_toml(tmp_path / "a.toml", values | {"nothing": None})
    assert tomllib.loads((tmp_path / "a.toml").read_text("utf-8")) == values


def test_csv_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    runs.write_csv(tmp_path / "a.csv", [{"a": 1, "b": math.nan}, {"a": 2, "b": 0.5}])
    assert (tmp_path / "a.csv").read_text() == "a,b\n1,\n2,0.5\n"


def test_a_table_grows_and_its_last_row_can_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    table = runs.GrowingTable(path, [{"a": 0, "b": 1.5}, {"a": 1, "b": math.nan}])
    table.rewrite({"a": 1, "b": 0.25})
    table.append({"a": 2, "b": math.nan})
    table.rewrite({"a": 2, "b": 0.5})
    table.rewrite({"a": 2, "b": math.nan})
    table.append({"a": 3, "b": 1.0})
    assert path.read_text() == "a,b\n0,1.5\n1,0.25\n2,\n3,1.0\n"
    assert runs.read_csv(path)[2:] == [{"a": "2", "b": ""}, {"a": "3", "b": "1.0"}]


@pytest.mark.parametrize("end", ["2", "2,", "2,0.5", "25\n", "2,0.5,1\n"])
def test_a_row_that_is_not_whole_is_left_out(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b\n0,1.5\n1,\n{end}")
    assert runs.read_csv(tmp_path / "a.csv") == [{"a": "0", "b": "1.5"}, {"a": "1", "b": ""}]


def test_a_row_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    row = {"a": 1, "b": 2.0}
    table = runs.GrowingTable(tmp_path / "a.csv", [row] * 1000)
    before = (tmp_path / "a.csv").stat()
    table.append(row)
    after = (tmp_path / "a.csv").stat()
    assert after.st_ino == before.st_ino  # the file that was there, and not another one
    assert after.st_size == before.st_size + len("1,2.0\n")


def test_arrays_read_back(tmp_path: Path) -> None:
    arrays = {"w": np.arange(6.0).reshape(2, 3).T, "b": np.array([1, 2], np.int32),
              "bias": np.float32(0.5)}  # fmt: skip
    runs.write_arrays(tmp_path / "a.safetensors", arrays)
    back = runs.read_arrays(tmp_path / "a.safetensors")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape


@pytest.mark.parametrize("read", [runs.read_json, runs.read_arrays])
def test_what_cannot_be_read_is_named(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "file"
    with pytest.raises(RunError, match="file cannot be read"):
        read(path)
    for data in (b"{ half", b"", b"\xff\xfe\x00"):
        path.write_bytes(data)
        with pytest.raises(RunError, match="file cannot be read"):
            read(path)


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = runs.create(tmp_path / "a" / "b", "task")
    assert folder == tmp_path / "a" / "b"
    assert folder.is_dir()
    assert runs.create(folder, "task") == folder  # empty: fine


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="already there and not an empty folder"):
        runs.create(tmp_path, "task")
    with pytest.raises(RunError, match="already there and not an empty folder"):
        runs.create(tmp_path / "file", "task")
    with pytest.raises(RunError, match="cannot be made: Not a directory"):
        runs.create(tmp_path / "file" / "below", "task")


def test_without_a_folder_each_run_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [runs.create(None, "synthetic") for _ in range(3)]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder.parent == Path("runs")
        assert folder.name.startswith("synthetic-2")
        assert folder.is_dir()

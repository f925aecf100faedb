"""The cache of parsed data: whole or not at all, and never of another time."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from taciturn.data import cache as caching
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset


def made(value=0, test=True):
    arrays = {"x": np.full((5, 2), value, np.uint8), "y": np.arange(5)}
    return Dataset(("a", "b"), arrays, np.array([2, 3]), arrays if test else None, 1, {"lines": 7})


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.bin"
    path.write_bytes(b"data")
    return path


@pytest.fixture
def kept(cache, source):
    """The file of a cache that was just written."""
    cached("set", [source], made)
    (path,) = (cache / "parsed").iterdir()
    return path


def build_again(source):
    """How often the source is parsed when it is asked for now."""
    calls = []

    def build():
        calls.append(1)
        return made(9)

    dataset = cached("set", [source], build)
    assert dataset.train["x"][0, 0] == (9 if calls else 0)
    return len(calls)


@pytest.mark.parametrize("test", [True, False])
def test_what_was_parsed_comes_back(source, test):
    cached("set", [source], lambda: made(test=test))
    again = cached("set", [source], lambda: pytest.fail("parsed twice"))
    assert again.names == ("a", "b")
    assert again.rows.tolist() == [2, 3]
    assert (again.left_out, again.counts) == (1, {"lines": 7})
    np.testing.assert_array_equal(again.train["y"], np.arange(5))
    assert (again.test is not None) == test


def test_a_changed_source_is_parsed_again(kept, source):
    source.write_bytes(b"other data")
    assert build_again(source) == 1
    assert cached("set", [source], lambda: pytest.fail("not kept")).train["x"][0, 0] == 9


def test_a_source_of_another_time_is_parsed_again(kept, source):
    os.utime(source, ns=(1, 1))
    assert build_again(source) == 1


def test_another_version_is_parsed_again(kept, source, monkeypatch):
    monkeypatch.setattr(caching, "VERSION", caching.VERSION + 1)
    assert build_again(source) == 1


def test_the_same_name_elsewhere_is_another_source(cache, tmp_path, monkeypatch):
    """Relative to two folders, of one size and time."""
    found = []
    for folder, content in (("one", b"a"), ("two", b"b")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("data.bin").write_bytes(content)
        os.utime("data.bin", ns=(1, 1))
        found.append(cached("set", [Path("data.bin")], lambda value=content[0]: made(value)))
    assert [dataset.train["x"][0, 0] for dataset in found] == [ord("a"), ord("b")]


@pytest.mark.parametrize(("size", "place"), [(20 << 20, 0), (20 << 20, -1), (3 << 20, 3 << 19)])
def test_other_content_of_the_same_size_and_time_is_another_source(tmp_path, size, place):
    path = tmp_path / "large.bin"
    content = bytearray(size)
    seen = []
    for value in (0, 1):
        content[place] = value
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        _, length, *times, digest = caching.known_by(path)[1:]
        seen.append((length, times[0], digest))
    assert seen[0][:2] == seen[1][:2]
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'\\"left_out\\": 1', b'\\"left_out\\": 0'),
    ],
    ids=["empty", "cut", "array", "header"],
)
def test_a_damaged_cache_is_noticed_and_made_anew(kept, source, caplog, spoil):
    data = kept.read_bytes()
    assert spoil(data) != data
    kept.write_bytes(spoil(data))
    with caplog.at_level(logging.WARNING, "taciturn"):
        assert build_again(source) == 1
    assert "It is made anew" in caplog.text


def test_an_interrupted_run_leaves_nothing(cache, source, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            cached("set", [source], made)
    assert list((cache / "parsed").iterdir()) == []
    assert cached("set", [source], lambda: made(9)).train["x"][0, 0] == 9


def test_a_cache_that_cannot_be_written_is_done_without(cache, source, caplog):
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "taciturn"):
        dataset = cached("set", [source], made)
    assert dataset.train["y"].tolist() == list(range(5))
    assert "cannot be kept" in caplog.text


def test_other_files_and_other_readers_have_caches_of_their_own(kept, source, tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(b"data")
    assert cached("set", [other], lambda: made(5)).train["x"][0, 0] == 5
    assert cached("kind", [source], lambda: made(6)).train["x"][0, 0] == 6
    assert build_again(source) == 0

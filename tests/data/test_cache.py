"""The cache of parsed data: whole or not at all, and never of another time."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest

from taciturn.data import cache as caching
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset


def made(value=0, test=True):
    train, whose = {"x": np.full((5, 2), value, np.uint8), "y": np.arange(5)}, np.arange(5) // 2
    tested = {"test": train, "test_clients": whose} if test else {"test": None}
    return Dataset(("a", "b"), train, np.array([2, 3]), left_out=1, counts={"lines": 7}, **tested)


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


def is_parsed(source, name="set"):
    """Whether the source is parsed when it is asked for now."""
    return cached(name, [source], lambda: made(9)).train["x"][0, 0] == 9


@pytest.mark.parametrize("test", [True, False])
def test_what_was_parsed_comes_back(source, test):
    cached("set", [source], lambda: made(test=test))
    again = cached("set", [source], lambda: pytest.fail("parsed twice"))
    assert again.names == ("a", "b")
    assert again.rows.tolist() == [2, 3]
    assert (again.left_out, again.counts) == (1, {"lines": 7})
    np.testing.assert_array_equal(again.train["y"], np.arange(5))
    assert (again.test is not None) == test
    assert (again.test_clients is not None) == test


@pytest.mark.parametrize(
    "change",
    [
        lambda path, patch: path.write_bytes(b"other data"),
        lambda path, patch: os.utime(path, ns=(1, 1)),
        lambda path, patch: patch.setattr(caching, "VERSION", caching.VERSION + 1),
    ],
    ids=["content", "time", "version"],
)
def test_what_changed_is_parsed_again(kept, source, change, monkeypatch):
    assert not is_parsed(source)
    change(source, monkeypatch)
    assert is_parsed(source)
    cached("set", [source], lambda: pytest.fail("not kept"))


def test_other_files_and_other_readers_have_caches_of_their_own(kept, source, tmp_path):
    (tmp_path / "other.bin").write_bytes(b"data")
    assert is_parsed(tmp_path / "other.bin")
    assert is_parsed(source, "kind")
    assert not is_parsed(source)


def test_other_content_of_the_same_size_and_time_is_another_source(tmp_path):
    path = tmp_path / "large.bin"
    content = bytearray(20 << 20)
    seen = []
    for value in (0, 1):
        content[-1] = value
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        seen.append(caching.known_by(path)[-1])
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:100],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'\\"left_out\\": 1', b'\\"left_out\\": 0'),
    ],
    ids=["cut", "array", "header"],
)
def test_a_damaged_cache_is_noticed_and_made_anew(kept, source, caplog, spoil):
    data = kept.read_bytes()
    assert spoil(data) != data
    kept.write_bytes(spoil(data))
    with caplog.at_level(logging.WARNING, "taciturn"):
        assert is_parsed(source)
    assert "It is made anew" in caplog.text


def test_a_cache_that_cannot_be_written_is_done_without(cache, source, caplog):
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "taciturn"):
        assert is_parsed(source)
    assert "cannot be kept" in caplog.text

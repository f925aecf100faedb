"""The cache of parsed data: whole or not at all, and never of another time."""

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
    return next((cache / "parsed").iterdir())


def is_parsed(source, name="set"):
    """Whether the source is parsed when it is asked for now."""
    return cached(name, [source], lambda: made(9)).train["x"][0, 0] == 9


@pytest.mark.parametrize("test", [True, False])
def test_what_was_parsed_comes_back(source, test):
    cached("set", [source], lambda: made(test=test))
    again = cached("set", [source], lambda: pytest.fail("parsed twice"))
    np.testing.assert_equal(vars(again), vars(made(test=test)))


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        (lambda kept, source, patch: source.write_bytes(b"other data"), False),
        (lambda kept, source, patch: os.utime(source, ns=(1, 1)), False),
        (lambda kept, source, patch: patch.setattr(caching, "VERSION", 0), False),
        (lambda kept, source, patch: kept.write_bytes(kept.read_bytes()[:-1]), True),
    ],
    ids=["content", "time", "version", "cut"],
)
def test_what_is_changed_or_cut_is_parsed_again(kept, source, change, damaged, monkeypatch, caplog):
    assert not is_parsed(source)
    change(kept, source, monkeypatch)
    assert is_parsed(source)
    assert ("It is made anew" in caplog.text) == damaged
    cached("set", [source], lambda: pytest.fail("not kept"))


def test_other_files_and_other_readers_have_caches_of_their_own(kept, source, tmp_path):
    (tmp_path / "other.bin").write_bytes(b"data")
    assert is_parsed(tmp_path / "other.bin")
    assert is_parsed(source, "kind")
    assert not is_parsed(source)


def test_other_content_of_the_same_size_and_time_is_another_source(tmp_path):
    path = tmp_path / "large.bin"
    seen = set()
    for end in (b"a", b"b"):
        path.write_bytes(bytes(20 << 20) + end)
        seen.add(caching.known_by(path)[-1])
    assert len(seen) == 2


def test_a_cache_that_cannot_be_written_is_done_without(cache, source, caplog):
    cache.write_text("a file where the folder should be")
    assert is_parsed(source)
    assert "cannot be kept" in caplog.text

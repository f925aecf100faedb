"""The cache of parsed data: whole or not at all, and never of another time."""

from __future__ import annotations

import json
import logging
import os

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
    """The folder of a cache that was just written."""
    cached("set", [source], made)
    (folder,) = (cache / "parsed").iterdir()
    return folder


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
def test_what_was_parsed_comes_back_mapped_into_memory(source, test):
    first = cached("set", [source], lambda: made(test=test))
    again = cached("set", [source], lambda: pytest.fail("parsed twice"))
    for dataset in (first, again):
        assert isinstance(dataset.train["x"], np.memmap)
        assert dataset.names == ("a", "b")
        assert dataset.rows.tolist() == [2, 3]
        assert (dataset.left_out, dataset.counts) == (1, {"lines": 7})
        np.testing.assert_array_equal(dataset.train["y"], np.arange(5))
        assert (dataset.test is not None) == test


def test_a_sound_cache_is_used(kept, source):
    assert build_again(source) == 0


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "header.json").unlink(),
        lambda folder: (folder / "header.json").write_text('{"version": 1'),
        lambda folder: (folder / "header.json").write_text("[]"),
        lambda folder: (folder / "train.y.npy").unlink(),
        lambda folder: np.save(folder / "train.y.npy", np.arange(4)),
        lambda folder: np.save(folder / "train.y.npy", np.arange(5.0)),
        lambda folder: (folder / "train.x.npy").write_bytes(
            (folder / "train.x.npy").read_bytes()[:-1]
        ),
    ],
    ids=["no header", "half a header", "other json", "no array", "shape", "dtype", "cut array"],
)
def test_half_a_cache_is_noticed_and_rebuilt(kept, source, spoil):
    spoil(kept)
    assert build_again(source) == 1


def test_an_interrupted_run_leaves_nothing_that_counts(cache, source, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            cached("set", [source], made)
    assert list((cache / "parsed").iterdir()) == []
    assert cached("set", [source], lambda: made(9)).train["x"][0, 0] == 9


def test_a_folder_half_written_beside_is_not_taken_for_the_cache(kept, source):
    kept.rename(kept.with_name(f".{kept.name}.half"))
    assert build_again(source) == 1


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


@pytest.mark.slow
def test_the_whole_of_emnist_is_mapped_and_not_read(cache, source):
    sizes = np.full(3_400, 671_585 // 3_400)
    sizes[: 671_585 % 3_400] += 1

    def build():
        train = {"x": np.zeros((671_585, 28, 28), np.uint8), "y": np.zeros(671_585, np.int32)}
        test = {"x": np.zeros((77_483, 28, 28), np.uint8), "y": np.zeros(77_483, np.int32)}
        return Dataset(tuple(f"f{i:04}" for i in range(3_400)), train, sizes, test)

    cached("emnist", [source], build)
    dataset = cached("emnist", [source], lambda: pytest.fail("parsed twice"))
    assert dataset.summary() == {"clients": 3_400, "train": 671_585, "test": 77_483, "left out": 0}
    assert all(isinstance(array, np.memmap) for array in dataset.train.values())
    (folder,) = (cache / "parsed").iterdir()
    assert json.loads((folder / "header.json").read_text())["version"] == caching.VERSION

"""The cache of parsed data: whole or not at all, and never of another time."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
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


def test_bytes_that_changed_in_the_cache_are_noticed(kept, source, caplog):
    content = bytearray(kept.read_bytes())
    for place in (len(content) - 1, content.index(b'"rows"') + 9, 2):
        spoiled = bytearray(content)
        spoiled[place] ^= 1
        kept.write_bytes(spoiled)
        with caplog.at_level(logging.WARNING, "taciturn"):
            assert build_again(source) == 1
        assert "has changed since it was written" in caplog.text
        kept.write_bytes(content)


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
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(b"[]\n"),
        lambda path: path.write_bytes(b'00000000\n{"version": 4}\n'),
        lambda path: path.write_bytes(bytes(1000)),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
    ],
    ids=["none", "empty", "half a header", "other json", "less", "zeros", "cut", "more"],
)
def test_half_a_cache_is_noticed_and_rebuilt(kept, source, spoil):
    spoil(kept)
    assert build_again(source) == 1


def test_an_interrupted_run_leaves_nothing(cache, source, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            cached("set", [source], made)
    assert list((cache / "parsed").iterdir()) == []
    assert cached("set", [source], lambda: made(9)).train["x"][0, 0] == 9


BUILDS = """
import sys
from pathlib import Path
import numpy as np
from taciturn.data.cache import cached
from taciturn.data.dataset import Dataset

class Endless(np.ndarray):
    @property
    def data(self):
        print("writing", flush=True)
        sys.stdin.read()

np.ascontiguousarray = lambda array: array.view(Endless)
arrays = {"x": np.zeros(1000)}
cached("set", [Path(sys.argv[1])], lambda: Dataset(("a",), arrays, np.array([1000]), None))
"""


def test_what_a_killed_run_leaves_is_removed(cache, source):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BUILDS, str(source)], **pipes) as process:
        assert process.stdout.readline() == b"writing\n"
        assert len(list((cache / "parsed").iterdir())) == 1
        process.kill()
    assert len(list((cache / "parsed").iterdir())) == 1
    assert build_again(source) == 1
    (path,) = (cache / "parsed").iterdir()
    assert path.name.startswith("set-")


def test_names_that_differ_by_case_alone_are_two_names(cache, source):
    arrays = {"x": np.zeros(3), "X": np.ones((3, 2)), "test": np.arange(3), "TEST": np.zeros(3)}
    dataset = Dataset(("a",), arrays, np.array([3]), arrays)
    found = cached("set", [source], lambda: dataset)
    assert isinstance(found.train["X"], np.memmap)
    for key, array in arrays.items():
        np.testing.assert_array_equal(found.train[key], array)
        np.testing.assert_array_equal(found.test[key], array)
    assert len(list((cache / "parsed").iterdir())) == 1


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.uint8), np.arange(12.0).reshape(3, 4).T[::2],
                                   np.array([True, False]), np.array(["ab", "ü"])])  # fmt: skip
def test_arrays_of_any_form_come_back(source, array):
    dataset = Dataset(("a",), {"x": array, "y": np.arange(2)}, np.array([2]), None)
    found = cached("set", [source], lambda: dataset)
    assert isinstance(found.train["x"], np.memmap)
    np.testing.assert_array_equal(found.train["x"], array)
    assert found.train["x"].dtype == array.dtype
    assert found.train["y"].tolist() == [0, 1]


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
    (path,) = (cache / "parsed").iterdir()
    with open(path, "rb") as file:
        file.readline()
        assert json.loads(file.readline())["version"] == caching.VERSION

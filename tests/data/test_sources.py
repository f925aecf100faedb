"""Where data are found, in which order, and what is said when they are not."""

import dataclasses
import tarfile

import pytest
from made import write_emnist

from taciturn.data import sources
from taciturn.data.download import digest
from taciturn.data.sources import find, find_or_fetch
from taciturn.errors import DataError
from taciturn.tasks import load


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """A publisher who hosts a small EMNIST, in an archive, under a file address."""
    write_emnist(tmp_path / "made")
    packed = tmp_path / "fed_emnist.tar.bz2"
    with tarfile.open(packed, "w:bz2") as tar:
        for file in (tmp_path / "made").iterdir():
            tar.add(file, file.name)
    downloads = {packed.as_uri(): digest(packed, "sha256")}
    source = dataclasses.replace(sources.SOURCES["emnist"], downloads=downloads)
    monkeypatch.setitem(sources.SOURCES, "emnist", source)
    return packed


def test_the_order_is_path_variable_cache(tmp_path, cache, monkeypatch):
    given, variable, kept = tmp_path / "given", tmp_path / "variable/emnist", cache / "data/emnist"
    for folder in (given, variable, kept):
        write_emnist(folder)
    monkeypatch.setenv("TACITURN_DATA", str(variable.parent))
    assert find("emnist", given)[0].parent == given
    assert find("emnist")[0].parent == variable
    monkeypatch.delenv("TACITURN_DATA")
    assert find("emnist")[0].parent == kept


def test_half_a_set_is_passed_over(tmp_path):
    (write_emnist(tmp_path) / "fed_emnist_test.h5").unlink()
    assert find("emnist", tmp_path) is None
    for folder in (tmp_path / "emnist", tmp_path):
        write_emnist(folder)
        assert find("emnist", tmp_path)[0].parent == folder


def test_a_place_that_is_named_stands_alone(tmp_path, cache, publisher, monkeypatch):
    write_emnist(cache / "data/emnist")
    monkeypatch.setenv("TACITURN_DATA", str(tmp_path / "tipo"))
    with pytest.raises(DataError, match=r"TACITURN_DATA must be a folder, and .*tipo is none"):
        load("emnist")
    (tmp_path / "tipo").mkdir()
    with pytest.raises(DataError, match="While TACITURN_DATA is set, data are looked for nowhere"):
        load("emnist")
    message = rf"fed_emnist_train.h5 .* not found in {tmp_path}/tipo.*{publisher.as_uri()}.*--data"
    with pytest.raises(DataError, match=message):
        load("emnist", data=tmp_path / "tipo")


def test_what_is_nowhere_is_downloaded_and_found_the_next_time(cache, publisher):
    task = load("emnist")
    assert task.clients.population == 3
    publisher.unlink()
    assert find_or_fetch("emnist")[0].parent == cache / "data/emnist"
    kept = sorted(path.name for path in (cache / "data/emnist").glob("[!.]*"))
    assert kept == ["SHA256SUMS", "fed_emnist_test.h5", "fed_emnist_train.h5"]


def test_offline_the_message_names_file_place_and_remedy(cache, publisher):
    publisher.unlink()
    message = rf"cannot be reached.*train.h5 and .* not found in {cache}/data/emnist.*by hand"
    with pytest.raises(DataError, match=message):
        load("emnist")


def test_an_archive_of_other_things_says_so(publisher, monkeypatch):
    other = dataclasses.replace(sources.SOURCES["emnist"], files=("other.h5",))
    monkeypatch.setitem(sources.SOURCES, "emnist", other)
    with pytest.raises(DataError, match=r"does not contain other\.h5"):
        find_or_fetch("emnist")

"""EMNIST by writer, from each of the layouts it comes in."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import types

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from made import images, write_emnist, write_leaf

from taciturn.data import hugging_face
from taciturn.errors import DataError
from taciturn.tasks import load
from taciturn.tasks.task import unit

emnist = importlib.import_module("taciturn.data.emnist")


def leaf_clients(**clients):
    """LEAF's lists of the same images that TFF's layout gets."""
    return {
        name: (made["pixels"].reshape(-1, 784).tolist(), made["label"].tolist())
        for name, made in clients.items()
    }


def test_tff_files_come_back_without_loss(tmp_path):
    task = load("emnist", data=write_emnist(tmp_path))
    assert task.clients.population == 3
    assert task.clients.rows.tolist() == [3, 5, 2]
    whole = task.clients.batch(jnp.int32(1), jnp.arange(5))
    made = images(5, 3)["pixels"]
    np.testing.assert_array_equal(np.asarray(whole["x"]) / np.float32(255), made)
    np.testing.assert_allclose(unit(whole["x"]), made, rtol=2e-7)
    np.testing.assert_array_equal(whole["y"], images(5, 3)["label"])
    assert len(task.test["y"]) == 3  # the union of those of f0 and f2


def test_leaf_files_are_the_same_data(tmp_path):
    write_emnist(tmp_path / "tff")
    first = leaf_clients(f0=images(3), f1=images(5, 3))
    write_leaf(tmp_path / "leaf/train/a.json", first)
    write_leaf(tmp_path / "leaf/train/b.json", leaf_clients(f2=images(2, 60)))
    write_leaf(tmp_path / "leaf/test/c.json", leaf_clients(f0=images(1), f2=images(2, 7)))
    tff, leaf = (emnist.read(tmp_path / kind) for kind in ("tff", "leaf"))
    assert leaf.names == tff.names
    for key in ("x", "y"):
        np.testing.assert_array_equal(leaf.train[key], tff.train[key])
        np.testing.assert_array_equal(leaf.test[key], tff.test[key])


def test_a_leaf_user_in_two_files_is_one_client(tmp_path):
    write_leaf(tmp_path / "a.json", leaf_clients(f0=images(3)))
    write_leaf(tmp_path / "b.json", leaf_clients(f0=images(2, 9)))
    dataset = emnist.read(tmp_path)
    assert dataset.rows.tolist() == [5]
    assert dataset.test is None


def test_writers_without_training_images_are_left_out_and_counted(tmp_path, caplog):
    train = {"f0": images(3), "f1": images(0), "f2": images(1)}
    write_emnist(tmp_path, train, {"f0": images(1), "f1": images(2), "f9": images(1)})
    with caplog.at_level(logging.WARNING, "taciturn"):
        dataset = emnist.read(tmp_path)
    assert dataset.names == ("f0", "f2")
    assert dataset.left_out == 2  # f1 and f9
    assert len(dataset.test["y"]) == 1
    assert "2 clients without a training example" in caplog.text


def spoilt(**changes):
    """A writer whose features are changed; None takes one away."""
    features = images(3) | changes
    return {"f0": images(2), "f1": {k: v for k, v in features.items() if v is not None}}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (spoilt(pixels=np.zeros((3, 28, 28), np.int32)), "floating-point numbers, got int32"),
        (spoilt(pixels=np.full((3, 28, 28), 2, np.float32)), r"in \[0, 1\], got 2.0 to 2.0"),
        (spoilt(pixels=np.zeros((2, 28, 28), np.float32)), "one entry per example"),
        (spoilt(label=np.array([0, 62, 1], np.int32)), "labels must be in 0 to 61, got 62"),
        (spoilt(label=np.zeros(3, np.float32)), "whole numbers, one per example, got float32"),
    ],
)
def test_a_wrong_file_is_named_with_its_client(tmp_path, train, message):
    write_emnist(tmp_path, train)
    with pytest.raises(DataError, match=message) as error:
        emnist.read(tmp_path)
    assert "fed_emnist_train.h5, client `f1`" in str(error.value)


def test_a_file_that_is_cut_short_is_named(tmp_path):
    write_emnist(tmp_path)
    path = tmp_path / "fed_emnist_test.h5"
    path.write_bytes(path.read_bytes()[:-5_000])
    with pytest.raises(DataError, match=r"fed_emnist_test.h5 is no whole HDF5 file: .*truncated"):
        emnist.read(tmp_path)


def test_a_client_whose_bytes_are_gone_is_named(tmp_path):
    write_emnist(tmp_path)
    path = tmp_path / "fed_emnist_train.h5"
    with h5py.File(path, "r+") as file:
        del file["examples/f1/pixels"]
        file.create_dataset(
            "examples/f1/pixels", data=images(5)["pixels"], chunks=(5, 28, 28), compression="gzip"
        )
        chunk = file["examples/f1/pixels"].id.get_chunk_info(0)
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    with pytest.raises(DataError, match=r"fed_emnist_train.h5, client `f1`: cannot be read"):
        emnist.read(tmp_path)


class Table:
    """As much of a data set of the library as is used, with these writers in each block."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def iter(self, size):
        return table(*self.blocks)


def table(*writers):
    """Blocks of the columns of `flwrlabs/femnist`."""
    from PIL import Image

    for block in writers:
        levels = [np.full((28, 28), i, np.uint8) for i in range(len(block))]
        yield {
            "image": [Image.fromarray(level) for level in levels],
            "writer_id": list(block),
            "hsf_id": [0] * len(block),
            "character": list(range(len(block))),
        }


def test_a_table_of_the_hub_is_grouped_by_writer(monkeypatch):
    asked = []

    def found(name):
        asked.append(name)
        return Table(["a", "b", "a"], ["b", "b"])

    monkeypatch.setattr(hugging_face, "table", found)
    task = load("emnist", source="huggingface")
    again = load("emnist", source="huggingface")
    assert asked == ["flwrlabs/femnist"]  # the second comes from the cache
    assert task.clients.rows.tolist() == again.clients.rows.tolist() == [2, 3]
    assert task.clients.arrays["x"][:, 0, 0].tolist() == [0, 2, 1, 0, 1]
    assert task.clients.arrays["y"].tolist() == [0, 2, 1, 0, 1]
    assert task.test is None


def test_the_library_is_asked_for_the_table_and_its_errors_are_named(monkeypatch):
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        if name == "flwrlabs/femnist":
            raise ConnectionError("Couldn't reach it.")
        return Table(["a", "b"])

    library = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(DataError, match=r"Hub: Couldn't reach it\. To bring it by hand"):
        load("emnist", source="huggingface")
    assert load("emnist", source="huggingface", data="some/table").clients.population == 2
    assert asked == [("flwrlabs/femnist", "train"), ("some/table", "train")]


def test_the_library_itself_reads_a_folder(tmp_path, monkeypatch):
    library = pytest.importorskip("datasets", reason="the `data` extra is not installed")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "table"
    folder.mkdir()
    made = library.Dataset.from_dict(next(table(["a", "b", "a"])))
    made.to_parquet(folder / "train.parquet")
    task = load("emnist", source="huggingface", data=folder)
    assert task.clients.rows.tolist() == [2, 1]
    assert task.clients.arrays["x"][:, 0, 0].tolist() == [0, 2, 1]
    assert task.clients.arrays["y"].tolist() == [0, 2, 1]


def test_a_folder_of_tables_is_read_again_when_it_changes(tmp_path, monkeypatch):
    asked, folder = [], tmp_path / "table"
    folder.mkdir()
    monkeypatch.setattr(hugging_face, "table", lambda name: asked.append(name) or Table(["a"]))
    for text in ("one", None, "two"):
        if text is not None:
            (folder / "train.parquet").write_text(text)
            os.utime(folder / "train.parquet", (1, 1))
        load("emnist", source="huggingface", data=folder)
    assert asked == [str(folder)] * 2

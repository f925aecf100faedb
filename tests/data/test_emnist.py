"""EMNIST by writer, from each of the layouts it comes in."""

import sys
from types import SimpleNamespace

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from made import images, write_emnist, write_leaf

from taciturn.data import emnist
from taciturn.errors import DataError
from taciturn.tasks import load
from taciturn.tasks.task import unit


def leaf(path, **clients):
    """LEAF's lists of the same images that TFF's layout gets."""
    write_leaf(path, {name: (made["pixels"].reshape(-1, 784).tolist(), made["label"].tolist())
                      for name, made in clients.items()})  # fmt: skip


def test_tff_files_come_back_without_loss(tmp_path):
    task = load("emnist", data=write_emnist(tmp_path))
    assert task.clients.rows.tolist() == [3, 5, 2]
    whole, made = task.clients.batch(jnp.int32(1), jnp.arange(5)), images(5, 3)
    np.testing.assert_array_equal(np.asarray(whole["x"]) / np.float32(255), made["pixels"])
    np.testing.assert_allclose(unit(whole["x"]), made["pixels"], rtol=2e-7)
    np.testing.assert_array_equal(whole["y"], made["label"])
    assert task.test_clients.tolist() == [0, 2, 2]
    grey = emnist.as_examples(np.full((1, 28, 28), 0.9 / 255, np.float32), np.array([0]))
    assert (grey["x"] == 1).all()  # what is no k / 255 is rounded


def test_leaf_files_are_the_same_data(tmp_path):
    """A user of two files is one client."""
    write_emnist(tmp_path / "tff")
    (tmp_path / "tff/notes.json").write_text("no data")
    whole = images(5, 3)
    first, second = ({k: v[part] for k, v in whole.items()} for part in (slice(2), slice(2, 5)))
    leaf(tmp_path / "leaf/train/a.json", f0=images(3), f1=first)
    leaf(tmp_path / "leaf/train/b.json", f1=second, f2=images(2, 60))
    leaf(tmp_path / "leaf/test/c.json", f0=images(1), f2=images(2, 7))
    ours, tffs = (emnist.read(tmp_path / kind) for kind in ("leaf", "tff"))
    assert ours.names == tffs.names
    for key in "xy":
        np.testing.assert_array_equal(ours.train[key], tffs.train[key])
        np.testing.assert_array_equal(ours.test[key], tffs.test[key])
    alone = emnist.read(tmp_path / "leaf" / "train")  # a folder of files, without a test set
    assert (alone.rows.tolist(), alone.test) == ([3, 5, 2], None)


def test_writers_without_training_images_are_left_out_and_counted(tmp_path, caplog):
    train = {"f0": images(3), "f1": images(0), "f2": images(1)}
    write_emnist(tmp_path, train, {"f0": images(1), "f1": images(2), "f9": images(1)})
    dataset = emnist.read(tmp_path)
    assert (dataset.names, dataset.left_out) == (("f0", "f2"), 2)  # without f1 and f9
    assert len(dataset.test["y"]) == 1
    assert "2 clients without a training example" in caplog.text


def test_a_client_whose_data_are_wrong_is_named(tmp_path):
    """`tests/bad_input` has more that is wrong."""
    write_emnist(tmp_path, {"f1": images(3) | {"pixels": np.zeros((3, 28, 28), np.int32)}})
    wrong, path = "client `f1`: pixels must be floating.*int32", tmp_path / "fed_emnist_train.h5"
    with pytest.raises(DataError, match=rf"{path}, {wrong}"):
        emnist.read(tmp_path)
    with h5py.File(path, "w") as file:
        ones = file.create_dataset("examples/f1/pixels", data=np.ones(99), compression="gzip")
        chunk = ones.id.get_chunk_info(0)
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    with pytest.raises(DataError, match=rf"{path}, client `f1`: cannot be read"):
        emnist.read(tmp_path)


def block(*writers):
    """The columns of some rows of `flwrlabs/femnist`."""
    from PIL import Image

    places = range(len(writers))
    drawn = [Image.fromarray(np.full((28, 28), i, np.uint8)) for i in places]
    return {"image": drawn, "writer_id": list(writers), "character": list(places)}


@pytest.fixture
def library(monkeypatch):
    """As much of Hugging Face's library as is used; `asked` are the tables, `fails` do not load."""

    def load_dataset(name, split):
        made.asked.append((name, split))
        if name in made.fails:
            raise ConnectionError("Couldn't reach it.")
        return SimpleNamespace(iter=lambda size: [block("a", "b", "a"), block("b", "b")])

    made = SimpleNamespace(load_dataset=load_dataset, asked=[], fails=())
    monkeypatch.setitem(sys.modules, "datasets", made)
    return made


def test_a_table_of_the_hub_is_grouped_by_writer(library):
    for _ in range(2):  # the second comes from the cache
        task = load("emnist", source="huggingface")
        assert task.clients.rows.tolist() == [2, 3]
        assert task.clients.arrays["x"][:, 0, 0].tolist() == [0, 2, 1, 0, 1]
        assert task.clients.arrays["y"].tolist() == [0, 2, 1, 0, 1]
        assert task.test is None
    assert library.asked == [("flwrlabs/femnist", "train")]
    library.fails = ("some/table",)
    with pytest.raises(DataError, match=r"Hub: Couldn't reach it\. To bring it by hand"):
        load("emnist", source="huggingface", data="some/table")


def test_a_folder_of_tables_is_read_again_when_it_changes(folder, library):
    for text in ("one", "two"):
        (folder / "train.parquet").write_text(text)
        for _ in range(2):
            load("emnist", source="huggingface", data=folder)
    assert library.asked == [(str(folder), "train")] * 2


def test_the_library_itself_reads_a_folder(folder, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the `data` extra is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.Dataset.from_dict(block("a", "b", "a")).to_parquet(folder / "train.parquet")
    task = load("emnist", source="huggingface", data=folder)
    assert task.clients.rows.tolist() == [2, 1]
    assert task.clients.arrays["x"][:, 0, 0].tolist() == [0, 2, 1]
    assert task.clients.arrays["y"].tolist() == [0, 2, 1]

"""Files that people bring, and how they are split; `tests/bad_input` has what is wrong."""

import gzip
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.data.files import idx_array
from taciturn.tasks import load
from taciturn.tasks.files import dirichlet

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("clients", [[1, 0, 1, 0, 1, 1], ["b", "a", "b", "a", "b", "b"]])
def test_an_npz_is_grouped_by_client(tmp_path, clients):
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=np.array(clients))
    task = load("npz", data=tmp_path / "a.npz")
    order = [1, 3, 0, 2, 4, 5]
    x, y = X[order].astype(np.float32), Y[order].astype(np.int32)
    np.testing.assert_array_equal(task.clients.arrays["x"], x, strict=True)
    np.testing.assert_array_equal(task.clients.arrays["y"], y, strict=True)
    assert (task.clients.rows.tolist(), task.test) == ([2, 4], None)


def test_an_npz_may_have_a_test_set_and_bytes(tmp_path):
    x, client = X.astype(np.uint8), np.array([5, 7, 7, 7, 5, 7])
    tests = {"x_test": x[:3], "y_test": Y[:3], "client_test": client[:3]}
    np.savez(tmp_path / "a.npz", x=x, y=Y, client=client, **tests)
    task = load("npz", data=tmp_path / "a.npz")
    assert task.test["y"].tolist() == [0, 1, 2]
    assert task.test_clients.tolist() == [0, 1, 1]
    assert task.test["x"].dtype == task.clients.arrays["x"].dtype == np.uint8
    # Bytes are learned from as numbers in [0, 1].
    batch = {"x": jnp.array([[255, 0]], jnp.uint8), "y": jnp.array([0])}
    loss, _ = task.metrics(lambda x, key: x, batch)["loss"]
    np.testing.assert_allclose(loss, np.log(np.e + 1) - 1, rtol=1e-6)


def test_a_folder_for_every_client(tmp_path):
    for name, rows in {"anna": slice(2), "bert": slice(2, 6), "none": slice(0)}.items():
        (tmp_path / name).mkdir()
        for key, array in (("x", X), ("y", Y)):
            np.save(tmp_path / name / f"{key}.npy", array[rows])
            if name == "anna":
                np.save(tmp_path / name / f"{key}_test.npy", array[:1])
    task = load("folder", data=tmp_path)
    assert task.clients.rows.tolist() == [2, 4]
    np.testing.assert_array_equal(task.clients.arrays["x"], X)
    assert task.test["y"].tolist() == [0]


def write_idx(path, array, kind=8):
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_set(folder, train=60, test=20, side=28, classes=10, suffix=".gz", word="t10k"):
    """An idx set in which every image is filled with its number, modulo 251, and label i mod 10."""
    for name, count in (("train", train), (word, test)):
        numbers = np.arange(count)
        pixels = np.repeat((numbers % 251).astype(np.uint8), side**2).reshape(count, side, side)
        write_idx(folder / f"{name}-images-idx3-ubyte{suffix}", pixels)
        labels = (numbers % classes).astype(np.uint8)
        write_idx(folder / f"{name}-labels-idx1-ubyte{suffix}", labels)
    return folder


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_every_example_goes_to_one_client_with_its_label(tmp_path, suffix):
    task = load("fashion", data=write_set(tmp_path, suffix=suffix), clients=7)
    numbers = task.clients.arrays["x"][:, 0, 0]
    assert sorted(numbers.tolist()) == list(range(60))
    np.testing.assert_array_equal(task.clients.arrays["y"], numbers % 10)
    assert sorted(task.clients.rows.tolist()) == [8, 8, 8, 9, 9, 9, 9]
    other = load("fashion", data=tmp_path, clients=7, seed=1).clients.arrays["x"][:, 0, 0]
    assert not np.array_equal(other, numbers)
    assert len(task.test["y"]) == 20


def test_dirichlet_shares_out_every_label_by_a_draw():
    labels = np.repeat(np.arange(10), 500)
    few, many = (
        np.stack([np.bincount(labels[owners == k], minlength=10) for k in range(20)])
        for owners in (dirichlet(labels, 20, a, np.random.default_rng(0)) for a in (0.05, 1e4))
    )
    assert few.sum(0).tolist() == many.sum(0).tolist() == [500] * 10
    # Which of a label's examples somebody gets is up to chance too.
    owners = dirichlet(np.zeros(100, int), 2, 10.0, np.random.default_rng(0))
    assert (np.diff(owners) < 0).any()
    # Dir(10⁴) is even: 25 a client and label, deviation √(0.05 · 0.95 / (20 · 10⁴)) · 500 ≈ 0.25.
    assert np.abs(many - 25).max() <= 2
    assert (few > 0).sum() < 80 < 200 == (many > 0).sum()


def test_a_dirichlet_split_leaves_out_who_gets_nothing(tmp_path, caplog):
    write_set(tmp_path, classes=2)
    task = load("fashion", data=tmp_path, split="dirichlet", alpha=0.01, clients=50)
    there = task.clients.population
    assert there < 50
    assert f"{50 - there} of 50 clients got no examples" in caplog.text
    assert task.clients.rows.sum() == 60
    np.testing.assert_array_equal(task.clients.arrays["y"], task.clients.arrays["x"][:, 0, 0] % 2)


def test_any_idx_set_can_be_learned(tmp_path):
    data = write_set(tmp_path, side=8, classes=3, suffix="", word="test")
    task = load("idx", data=data, clients=4)
    batch = task.clients.batch(jnp.int32(0), jnp.arange(5))
    model = jax.eval_shape(task.init, jax.random.key(0))
    assert model.dense1.kernel.shape == (64, 128)
    assert model.dense2.kernel.shape == (128, 3)
    assert jax.eval_shape(task.loss, model, batch, jax.random.key(0)).shape == (5,)


@pytest.mark.parametrize(("kind", "dtype"), [(9, "i1"), (11, ">i2"), (14, ">f8")])
def test_idx_files_of_every_type(tmp_path, kind, dtype):
    made = np.arange(6).reshape(2, 3).astype(dtype)
    read = idx_array(write_idx(tmp_path / "a", made, kind))
    np.testing.assert_array_equal(read, made)
    assert read.dtype.isnative

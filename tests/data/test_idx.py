"""Fashion-MNIST and other idx sets, and how they are split over clients."""

from __future__ import annotations

import gzip
import logging
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.data.idx import read_idx
from taciturn.data.splits import dirichlet
from taciturn.errors import DataError, InputError
from taciturn.tasks import load

FASHION = Path("/usr/share/datasets/fashion-mnist")


def write_idx(path, array, kind=8):
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_set(folder, train=60, test=20, side=28, classes=10, suffix=".gz", word="t10k"):
    """An idx set in which every image is filled with its number, modulo 251, and label i mod 10."""
    for name, count in (("train", train), (word, test)):
        numbers = (np.arange(count) % 251).astype(np.uint8)
        pixels = np.broadcast_to(numbers[:, None, None], (count, side, side))
        write_idx(folder / f"{name}-images-idx3-ubyte{suffix}", np.ascontiguousarray(pixels))
        labels = (np.arange(count) % classes).astype(np.uint8)
        write_idx(folder / f"{name}-labels-idx1-ubyte{suffix}", labels)
    return folder


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_every_example_goes_to_one_client_with_its_label(tmp_path, suffix):
    task = load("fashion", data=write_set(tmp_path, suffix=suffix), clients=7)
    numbers = task.clients.arrays["x"][:, 0, 0]
    assert sorted(numbers.tolist()) == list(range(60))
    np.testing.assert_array_equal(task.clients.arrays["y"], numbers % 10)
    assert sorted(task.clients.rows.tolist()) == [8, 8, 8, 9, 9, 9, 9]
    assert len(task.test["y"]) == 20


def test_the_split_follows_the_seed(tmp_path):
    write_set(tmp_path)
    first, again, other = (
        load("fashion", data=tmp_path, seed=seed, clients=5).clients.arrays["x"][:, 0, 0].tolist()
        for seed in (0, 0, 1)
    )
    assert first == again != other


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
    with caplog.at_level(logging.WARNING, "taciturn"):
        task = load("fashion", data=tmp_path, split="dirichlet", alpha=0.01, clients=50)
    gone = 50 - task.clients.population
    assert gone > 0
    assert f"{gone} of 50 clients got no examples" in caplog.text
    assert task.clients.rows.min() > 0
    assert task.clients.rows.sum() == 60
    np.testing.assert_array_equal(task.clients.arrays["y"], task.clients.arrays["x"][:, 0, 0] % 2)


def test_any_idx_set_can_be_learned(tmp_path):
    data = write_set(tmp_path, side=8, classes=3, suffix="", word="test")
    task = load("idx", data=data, clients=4)
    batch = task.clients.batch(jnp.int32(0), jnp.arange(5))
    model = task.init(jax.random.key(0))
    assert model.dense1.kernel.shape == (64, 128)
    assert model.dense2.kernel.shape == (128, 3)
    assert task.loss(model, batch, jax.random.key(0)).shape == (5,)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_files_of_every_type(tmp_path, kind, dtype):
    made = np.arange(6).reshape(2, 3).astype(dtype)
    read = read_idx(write_idx(tmp_path / "a", made, kind))
    np.testing.assert_array_equal(read, made)
    assert read.dtype.isnative


def test_a_file_that_is_cut_short_is_named(tmp_path):
    path = write_idx(tmp_path / "a", np.zeros((3, 4), np.uint8))
    whole = path.read_bytes()
    for content, message in (
        (whole[:-1], r"must have 24 bytes for the shape \(3, 4\), got 23"),
        (whole + b"x", "got 25"),
        (whole[:9], "cut short: no lengths for its rank of 2"),
        (b"PK\3\4", "is no idx file: it begins with 504b0304"),
        (b"", "begins with nothing"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(path)


def test_a_broken_gzip_is_named(tmp_path):
    path = write_idx(tmp_path / "a.gz", np.arange(200, dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.gz cannot be read"):
        read_idx(path)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("train-labels-idx1-ubyte.gz", np.arange(3), "3 labels for the 60 images"),
        ("train-labels-idx1-ubyte.gz", np.full(60, 10), "train-labels.*0 to 9, got 10"),
        ("t10k-images-idx3-ubyte.gz", np.zeros((20, 7, 7)), "differ in size"),
        ("t10k-images-idx3-ubyte.gz", np.zeros(20), "must hold images of bytes"),
    ],
)
def test_a_wrong_set_is_named(tmp_path, file, array, message):
    write_set(tmp_path)
    write_idx(tmp_path / file, array.astype(np.uint8))
    with pytest.raises(DataError, match=message):
        load("fashion", data=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "even"}, "`split` must be iid or dirichlet, got 'even'"),
        ({"split": "dirichlet", "alpha": 0}, r"`alpha` must be in \(0, inf\), got 0"),
        ({"clients": 61}, "`clients` must be at most 60 examples, got 61"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, message):
    write_set(tmp_path)
    with pytest.raises(InputError, match=message):
        load("fashion", data=tmp_path, **({"clients": 5} | options))


def test_an_idx_set_needs_a_folder_and_files(tmp_path):
    with pytest.raises(InputError, match="needs `data`"):
        load("idx")
    with pytest.raises(DataError, match=r"no file called \*train-images\*"):
        load("idx", data=tmp_path)
    for name in ("a-train-images", "b-train-images"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match="several files of train-images"):
        load("idx", data=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not FASHION.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_itself():
    task = load("fashion", split="dirichlet", alpha=0.3)
    assert task.clients.rows.sum() == 60_000
    assert np.bincount(task.clients.arrays["y"]).tolist() == [6_000] * 10
    assert len(task.test["y"]) == 10_000

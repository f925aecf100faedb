"""What people bring themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.errors import DataError, InputError
from taciturn.tasks import load

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def write_npz(path, **changes):
    arrays = {"x": X, "y": Y, "client": np.array([1, 0, 1, 0, 1, 1])} | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def write_folders(root, **clients):
    for name, arrays in clients.items():
        (root / name).mkdir(parents=True)
        for key, value in arrays.items():
            np.save(root / name / f"{key}.npy", value)
    return root


@pytest.mark.parametrize("clients", [[1, 0, 1, 0, 1, 1], ["b", "a", "b", "a", "b", "b"]])
def test_an_npz_is_grouped_by_client(tmp_path, clients):
    task = load("npz", data=write_npz(tmp_path / "a.npz", client=np.array(clients)))
    assert task.clients.rows.tolist() == [2, 4]
    np.testing.assert_array_equal(task.clients.arrays["x"], X[[1, 3, 0, 2, 4, 5]])
    assert task.clients.arrays["x"].dtype == np.float32
    assert task.clients.arrays["y"].tolist() == [1, 0, 0, 2, 1, 2]
    assert task.test is None
    model = task.init(jax.random.key(0))
    assert model.dense2.kernel.shape == (128, 3)
    batch = task.clients.batch(jnp.int32(1), jnp.arange(4))
    assert np.isfinite(task.loss(model, batch, jax.random.key(0))).all()


def test_an_npz_may_have_a_test_set_and_bytes(tmp_path):
    bytes_ = X.astype(np.uint8)
    path = write_npz(tmp_path / "a.npz", x=bytes_, x_test=bytes_[:2], y_test=Y[:2])
    task = load("npz", data=path, hidden=5)
    assert task.test["y"].tolist() == [0, 1]
    assert task.clients.arrays["x"].dtype == np.uint8

    def model(x, key):  # bytes are learned from as numbers in [0, 1]
        return jnp.concatenate([x, x[:, :1]], axis=1)

    (scores,) = task.metrics(model, {"x": jnp.array([[255, 0]], jnp.uint8), "y": jnp.array([0])})[
        "loss"
    ][:1]
    np.testing.assert_allclose(scores, np.log(2 * np.e + 1) - 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client": None}, "no array `client`; it has x, y"),
        ({"client": np.zeros(3, int)}, "has 6 `x` and the clients of 3"),
        ({"client": np.zeros(6)}, "a number or a name for each example"),
        ({"y": Y[:5]}, "6 `x` and 5 `y`"),
        ({"y": Y - 1}, "must be in 0 to"),
        ({"y": Y / 2}, "labels must be whole numbers"),
        ({"x": np.where(X > 3, np.inf, X)}, "`x` must be finite"),
        ({"x": X.astype(str)}, "`x` must be numbers"),
        ({"x_test": X}, "has `x_test` and no `y_test`: a test set needs both"),
        ({"y_test": Y}, "has `y_test` and no `x_test`: a test set needs both"),
        ({"x_test": X, "y_test": Y[:2]}, "client `x_test`: 6 `x` and 2 `y`"),
        ({"y": Y + 2**40}, "labels must be in 0 to 2147483646, got 1099511627778"),
        ({"y": Y * 2_500_000}, "has 6 examples and labels up to 5000000"),
        ({"x_test": X[:, :1], "y_test": Y}, "`x` is float32 of .1,., that of others float32"),
        ({"x_test": X, "y_test": Y + 1}, "client `x_test`: labels must be in 0 to 2, got 3"),
    ],
)
def test_a_wrong_npz_is_named(tmp_path, changes, message):
    with pytest.raises(DataError, match=message) as error:
        load("npz", data=write_npz(tmp_path / "a.npz", **changes))
    assert "a.npz" in str(error.value)


def test_pickles_are_not_opened(tmp_path):
    path = write_npz(tmp_path / "a.npz", x=np.array([{}] * 6, dtype=object))
    with pytest.raises(DataError, match="no whole npz file without pickles"):
        load("npz", data=path)


def test_a_cut_npz_is_named(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"a\.npz is no whole npz file"):
        load("npz", data=path)


def test_a_single_array_is_no_npz(tmp_path):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(DataError, match=r"a\.npy is no whole npz file"):
        load("npz", data=tmp_path / "a.npy")


def test_a_folder_for_every_client(tmp_path):
    root = write_folders(
        tmp_path / "all",
        anna={"x": X[:2], "y": Y[:2], "x_test": X[:1], "y_test": Y[:1]},
        bert={"x": X[2:], "y": Y[2:]},
        none={"x": X[:0], "y": Y[:0]},
    )
    task = load("folder", data=root)
    assert task.clients.rows.tolist() == [2, 4]
    np.testing.assert_array_equal(task.clients.arrays["x"], X)
    assert task.test["y"].tolist() == [0]


@pytest.mark.parametrize(
    ("bert", "message"),
    [
        ({"x": X}, r"y\.npy cannot be read"),
        ({"x": X[:, :1], "y": Y}, "client `bert`: `x` is float32 of .1,., that of others"),
        ({"x": X, "y": Y[:2]}, "client `bert`: 6 `x` and 2 `y`"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y + 5}, "client `bert`: labels must be in 0 to 2"),
    ],
)
def test_a_wrong_folder_is_named(tmp_path, bert, message):
    root = write_folders(tmp_path / "all", anna={"x": X, "y": Y}, bert=bert)
    with pytest.raises(DataError, match=message) as error:
        load("folder", data=root)
    assert "bert" in str(error.value)


@pytest.mark.parametrize("name", ["npz", "folder"])
def test_a_path_is_needed_and_must_be_there(tmp_path, name):
    with pytest.raises(InputError, match="needs `data`"):
        load(name)
    with pytest.raises(DataError, match="nowhere is not there"):
        load(name, data=tmp_path / "nowhere")


def test_a_folder_without_clients_says_so(tmp_path):
    with pytest.raises(DataError, match=r"no folders with x\.npy"):
        load("folder", data=tmp_path)

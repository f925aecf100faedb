"""What people bring themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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

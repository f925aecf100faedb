"""What people bring themselves; `tests/bad_input` has what is wrong with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.tasks import load

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("clients", [[1, 0, 1, 0, 1, 1], ["b", "a", "b", "a", "b", "b"]])
def test_an_npz_is_grouped_by_client(tmp_path, clients):
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=np.array(clients))
    task = load("npz", data=tmp_path / "a.npz")
    assert task.clients.rows.tolist() == [2, 4]
    np.testing.assert_array_equal(task.clients.arrays["x"], X[[1, 3, 0, 2, 4, 5]])
    assert task.clients.arrays["x"].dtype == np.float32
    assert task.clients.arrays["y"].tolist() == [1, 0, 0, 2, 1, 2]
    assert task.test is None
    model = jax.eval_shape(task.init, jax.random.key(0))
    assert model.dense2.kernel.shape == (128, 3)


def test_an_npz_may_have_a_test_set_and_bytes(tmp_path):
    x, client = X.astype(np.uint8), np.array([5, 7, 7, 7, 5, 7])
    tests = {"x_test": x[:3], "y_test": Y[:3], "client_test": client[:3]}
    np.savez(tmp_path / "a.npz", x=x, y=Y, client=client, **tests)
    task = load("npz", data=tmp_path / "a.npz", hidden=5)
    assert task.test["y"].tolist() == [0, 1, 2]
    assert task.test_clients.tolist() == [0, 1, 1]
    assert task.clients.arrays["x"].dtype == np.uint8

    def model(x, key):  # bytes are learned from as numbers in [0, 1]
        return jnp.concatenate([x, x[:, :1]], axis=1)

    batch = {"x": jnp.array([[255, 0]], jnp.uint8), "y": jnp.array([0])}
    loss, _ = task.metrics(model, batch)["loss"]
    np.testing.assert_allclose(loss, np.log(2 * np.e + 1) - 1, rtol=1e-6)


def test_a_folder_for_every_client(tmp_path):
    for name, arrays in {
        "anna": {"x": X[:2], "y": Y[:2], "x_test": X[:1], "y_test": Y[:1]},
        "bert": {"x": X[2:], "y": Y[2:]},
        "none": {"x": X[:0], "y": Y[:0]},
    }.items():
        (tmp_path / name).mkdir()
        for key, array in arrays.items():
            np.save(tmp_path / name / f"{key}.npy", array)
    task = load("folder", data=tmp_path)
    assert task.clients.rows.tolist() == [2, 4]
    np.testing.assert_array_equal(task.clients.arrays["x"], X)
    assert task.test["y"].tolist() == [0]

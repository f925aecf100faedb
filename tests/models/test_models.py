"""Models: exact to the weight, begun as Keras begins them, and right in values and gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from plain_models import assert_near, plain_two_layers, with_gradients

from taciturn.core import hashing
from taciturn.models import MLP, CharLSTM, EmnistCNN, SmallCNN, lstm
from taciturn.models.convolution import convolve
from taciturn.models.lstm import LSTM
from taciturn.models.networks import Conv, Dense, dropout

KEY = jax.random.key(5)


def weights(model):
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lambda: model(KEY))))


def test_weights_are_counted():
    assert weights(EmnistCNN) == 1_206_590
    assert weights(CharLSTM) == 820_522
    assert weights(MLP) == 784 * 128 + 128 + 128 * 10 + 10
    assert weights(SmallCNN) == (25 * 8 + 8) + (25 * 8 * 16 + 16) + (256 * 62 + 62)


def assert_glorot(kernel, fan_in, fan_out):
    """Uniform in ±√(6 / (fan_in + fan_out)), as Keras begins."""
    shares = np.asarray(kernel).ravel() / (6 / (fan_in + fan_out)) ** 0.5
    assert 0.98 < shares.max() <= 1
    assert -0.98 > shares.min() >= -1
    assert abs((shares**2).mean() - 1 / 3) < 5 * (4 / 45 / shares.size) ** 0.5  # five deviations


def test_initial_values_of_dense_and_conv():
    dense, conv = Dense(KEY, 30, 50), Conv(KEY, 3, 4, 32)
    assert_glorot(dense.kernel, 30, 50)
    assert_glorot(conv.kernel, 9 * 4, 9 * 32)
    assert not dense.bias.any()
    assert not conv.bias.any()


def test_initial_values_of_an_lstm():
    units = 24
    layer = LSTM(KEY, 10, units)
    assert_glorot(layer.kernel, 10, 4 * units)
    np.testing.assert_allclose(layer.recurrent @ layer.recurrent.T, np.eye(units), atol=1e-5)
    assert layer.bias.tolist() == [0] * units + [1] * units + [0] * 2 * units
    # Without the sign of R's diagonal, QR's matrices lean to one side. A corner's variance is 1/8.
    corners = jax.vmap(lambda key: LSTM(key, 1, 2).recurrent[0, 0])(jax.random.split(KEY, 400))
    assert abs(float(corners.mean())) < 5 * (1 / 8 / 400) ** 0.5


def test_conv_pooled_is_conv_and_pooling():
    layer = eqx.tree_at(lambda c: c.bias, Conv(KEY, 3, 2, 4), jnp.array([0.3, -0.5, 0.0, 1.0]))
    x = jax.random.normal(KEY, (3, 8, 7, 2))
    expected = jax.nn.relu(convolve(x, layer.kernel, 3) + layer.bias)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    pooled = expected[:, :6, :4].reshape(3, 3, 2, 2, 2, 4).max((2, 4))
    np.testing.assert_allclose(layer.pooled(x), pooled, atol=1e-5)


@pytest.mark.parametrize(("backend", "ahead"), [("cpu", 12), ("gpu", 4)])
def test_two_lstms_are_the_plain_ones(backend, ahead, monkeypatch):
    """One after another, and overlapping."""
    layers = LSTM(KEY, 3, 5), LSTM(jax.random.key(6), 5, 5)
    x = jax.random.normal(KEY, (12, 2, 3))
    monkeypatch.setattr(lstm, "BLOCK", 4)
    expected = jax.jit(with_gradients(plain_two_layers))(*layers, x)
    calls = []
    original = lstm.recur
    monkeypatch.setattr(lstm, "recur", lambda *a: calls.append(a) or original(*a))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert_near(jax.jit(with_gradients(lstm.two_layers))(*layers, x), expected)
    assert calls[0][0].shape[0] == ahead  # times of the first layer before the second begins


def test_the_gradient_of_the_last_state_and_of_the_first():
    """`recur` is cut into blocks: gradients pass through where one ends and the next begins."""
    layer = LSTM(KEY, 3, 4)
    gates = layer.gates(jax.random.normal(KEY, (6, 2, 3)))
    start = tuple(jax.random.normal(jax.random.key(n), (2, 4)) for n in (1, 2))

    def whole(gates, recurrent, start):
        hidden, (h, c) = lstm.recur(gates, recurrent, start)
        return jnp.sum(hidden**2) + jnp.sum(h * 3) + jnp.sum(c**3)

    check_grads(whole, (gates, layer.recurrent, start), 1, ["rev"], 2e-2, 2e-2, 1e-2)


def test_the_char_lstm_reads_in_order():
    """Logits at a position depend on it and those before, and on nothing after."""
    model = CharLSTM(KEY, 10, 4, 8)
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]])
    changed = tokens.at[0, 3].set(9)
    same = np.isclose(model(tokens), model(changed), atol=1e-7).all((0, 2))
    assert same.tolist() == [True, True, True, False, False, False]


def test_dropout_keeps_what_the_key_says_and_the_mean():
    x, words = jnp.full((20, 30), 3.0), jax.random.key_data(KEY)
    kept = hashing.bits(words, x.shape) >= 2**30
    np.testing.assert_array_equal(dropout(x, 0.25, words), np.where(kept, 4, 0))


def test_without_a_key_nothing_is_dropped():
    model, images = eqx.filter_jit(EmnistCNN(KEY)), jax.random.normal(KEY, (2, 28, 28))
    tested = model(images)
    np.testing.assert_array_equal(tested, model(images))
    assert not np.allclose(tested, model(images, KEY))
    assert not np.allclose(model(images, jax.random.key(6)), model(images, KEY))

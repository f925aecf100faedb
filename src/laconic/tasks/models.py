"""The paper's models, exact to the weight, and the small ones of the embedded tasks.

Every array leaf of a model is a weight. Models are called on a batch; `key` is None when they are
tested. Initial values are those of Keras, which the paper's authors used, so that results compare.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from laconic.tasks.hashing import dropout, fold


def glorot(key: jax.Array, shape: tuple[int, ...], fan_in: int, fan_out: int) -> jax.Array:
    """Keras's default for kernels: uniform in ±√(6 / (fan_in + fan_out))."""
    limit = (6 / (fan_in + fan_out)) ** 0.5
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


class Dense(eqx.Module):
    """x W + b."""

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, inputs: int, outputs: int) -> None:
        self.kernel = glorot(key, (inputs, outputs), inputs, outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel + self.bias


class Conv(eqx.Module):
    """A square convolution without padding, as a matrix product over patches.

    `lax.conv` with weights of its own for every client becomes a grouped convolution, slow on CPU
    and GPU alike, and inside a `scan` runs on one thread; a matrix product does neither.
    """

    kernel: jax.Array  # (side · side · inputs, outputs), rows in the order of the patches
    bias: jax.Array
    side: int = eqx.field(static=True)

    def __init__(self, key: jax.Array, side: int, inputs: int, outputs: int) -> None:
        area = side * side
        self.kernel = glorot(key, (area * inputs, outputs), area * inputs, area * outputs)
        self.bias = jnp.zeros(outputs)
        self.side = side

    def __call__(self, x: jax.Array) -> jax.Array:
        return patches(x, self.side) @ self.kernel + self.bias


def patches(x: jax.Array, side: int) -> jax.Array:
    """(batch, height, width, channels) to the side × side neighbourhoods, in row-major order."""
    height, width = x.shape[1] - side + 1, x.shape[2] - side + 1
    shifted = [x[:, i : i + height, j : j + width, :] for i in range(side) for j in range(side)]
    return jnp.concatenate(shifted, axis=-1)


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2 × 2 square; an odd last row or column is dropped."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


class EmnistCNN(eqx.Module):
    """The paper's EMNIST model, two 3 × 3 convolutions and two dense layers; 1,206,590 weights."""

    conv1: Conv
    conv2: Conv
    dense1: Dense
    dense2: Dense

    def __init__(self, key: jax.Array, classes: int = 62) -> None:
        keys = jax.random.split(key, 4)
        self.conv1 = Conv(keys[0], 3, 1, 32)
        self.conv2 = Conv(keys[1], 3, 32, 64)
        self.dense1 = Dense(keys[2], 9216, 128)
        self.dense2 = Dense(keys[3], 128, classes)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of images (batch, 28, 28)."""
        first, second = (None, None) if key is None else (fold(key, 0), fold(key, 1))
        x = jax.nn.relu(self.conv1(x[..., None]))
        x = max_pool(jax.nn.relu(self.conv2(x)))
        x = dropout(x.reshape(x.shape[0], -1), 0.25, first)
        x = dropout(jax.nn.relu(self.dense1(x)), 0.5, second)
        return self.dense2(x)


class SmallCNN(eqx.Module):
    """A CNN for a laptop: 5 × 5 convolutions with pooling between, 8 and 16 channels."""

    conv1: Conv
    conv2: Conv
    dense: Dense

    def __init__(self, key: jax.Array, classes: int = 62) -> None:
        keys = jax.random.split(key, 3)
        self.conv1 = Conv(keys[0], 5, 1, 8)
        self.conv2 = Conv(keys[1], 5, 8, 16)
        self.dense = Dense(keys[2], 4 * 4 * 16, classes)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of images (batch, 28, 28)."""
        x = max_pool(jax.nn.relu(self.conv1(x[..., None])))
        x = max_pool(jax.nn.relu(self.conv2(x)))
        return self.dense(x.reshape(x.shape[0], -1))


class MLP(eqx.Module):
    """The network of the paper's Fashion-MNIST illustration: 784-128-10 with ReLU."""

    dense1: Dense
    dense2: Dense

    def __init__(
        self, key: jax.Array, inputs: int = 784, hidden: int = 128, classes: int = 10
    ) -> None:
        keys = jax.random.split(key)
        self.dense1 = Dense(keys[0], inputs, hidden)
        self.dense2 = Dense(keys[1], hidden, classes)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of inputs (batch, …), flattened."""
        return self.dense2(jax.nn.relu(self.dense1(x.reshape(x.shape[0], -1))))


class LSTM(eqx.Module):
    """A layer of long short-term memory, with Keras's gate order (i, f, g, o) and forget bias 1."""

    kernel: jax.Array
    recurrent: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, inputs: int, units: int) -> None:
        first, second = jax.random.split(key)
        self.kernel = glorot(first, (inputs, 4 * units), inputs, 4 * units)
        # Orthogonal rows, as Keras has it for the (units, 4 · units) matrix as a whole.
        normal = jax.random.normal(second, (4 * units, units))
        q, r = jnp.linalg.qr(normal)
        self.recurrent = (q * jnp.sign(jnp.diagonal(r))).T
        self.bias = jnp.concatenate([jnp.zeros(units), jnp.ones(units), jnp.zeros(2 * units)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """Hidden states (batch, time, units) of inputs (batch, time, inputs)."""
        units = self.recurrent.shape[0]
        # The inputs' share of all gates is one product, outside the loop over time.
        gates = jnp.swapaxes(x @ self.kernel + self.bias, 0, 1)
        zero = jnp.zeros((x.shape[0], units), gates.dtype)

        def step(carry: tuple[jax.Array, jax.Array], gate: jax.Array):  # type: ignore[no-untyped-def]
            h, c = carry
            i, f, g, o = jnp.split(gate + h @ self.recurrent, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        _, hidden = jax.lax.scan(step, (zero, zero), gates)
        return jnp.swapaxes(hidden, 0, 1)


class CharLSTM(eqx.Module):
    """The paper's Shakespeare model: embedding of 8, two LSTMs of 256, a dense layer; 820,522."""

    embedding: jax.Array
    lstm1: LSTM
    lstm2: LSTM
    dense: Dense

    def __init__(
        self, key: jax.Array, vocabulary: int = 90, width: int = 8, units: int = 256
    ) -> None:
        keys = jax.random.split(key, 4)
        self.embedding = jax.random.uniform(keys[0], (vocabulary, width), minval=-0.05, maxval=0.05)
        self.lstm1 = LSTM(keys[1], width, units)
        self.lstm2 = LSTM(keys[2], units, units)
        self.dense = Dense(keys[3], units, vocabulary)

    def __call__(self, tokens: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits (batch, time, vocabulary) of tokens (batch, time)."""
        return self.dense(self.lstm2(self.lstm1(self.embedding[tokens])))

"""The paper's models, exact to the weight, and the small ones of the embedded tasks.

Every array leaf of a model is a weight. Models are called on a batch; `key` is None when they are
tested. Initial values are those of Keras, which the paper's authors used, so that results compare.
"""

from __future__ import annotations

from typing import Any

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
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    # Four strided views: the gradient is then a choice between them, which fuses.
    top = jnp.maximum(x[:, 0:height:2, 0:width:2], x[:, 0:height:2, 1:width:2])
    bottom = jnp.maximum(x[:, 1:height:2, 0:width:2], x[:, 1:height:2, 1:width:2])
    return jnp.maximum(top, bottom)


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
        x = jax.nn.relu(max_pool(self.conv2(x)))  # the same as the other way round, and less work
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
        x = jax.nn.relu(max_pool(self.conv1(x[..., None])))
        x = jax.nn.relu(max_pool(self.conv2(x)))
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
        # The inputs' share of all gates is one product, outside the loop over time.
        gates = jnp.swapaxes(x @ self.kernel + self.bias, 0, 1)
        return jnp.swapaxes(recur(gates, self.recurrent), 0, 1)


@jax.custom_vjp
def recur(gates: jax.Array, recurrent: jax.Array) -> jax.Array:
    """The loop over time of an LSTM.

    Its gradient is written out because that of a `scan` adds to the gradient of `recurrent` in
    every step, reading and writing a whole matrix each time; here it is one product at the end.

    Args:
      gates: the inputs' share of the gates i, f, g, o; (time, batch, 4 · units).
      recurrent: (units, 4 · units).

    Returns:
      Hidden states, (time, batch, units).
    """
    return _recur_forward(gates, recurrent)[0]


def _recur_forward(gates: jax.Array, recurrent: jax.Array) -> tuple[jax.Array, Any]:
    units, dtype = recurrent.shape[0], gates.dtype
    wide = jnp.promote_types(dtype, jnp.float32)

    def step(carry: Any, gate: jax.Array) -> Any:
        h, c = carry
        z = gate + jnp.dot(h, recurrent, preferred_element_type=wide)
        i, f, o = (jax.nn.sigmoid(z[:, k * units : (k + 1) * units]) for k in (0, 1, 3))
        g = jnp.tanh(z[:, 2 * units : 3 * units])
        c = f * c + i * g
        h = (o * jnp.tanh(c)).astype(dtype)
        return (h, c), (h, c.astype(dtype), jnp.concatenate([i, f, g, o], axis=-1).astype(dtype))

    zero = jnp.zeros((gates.shape[1], units), dtype)
    _, (hidden, cells, opened) = jax.lax.scan(
        step, (zero, zero.astype(wide)), gates, unroll=_unroll()
    )
    return hidden, (hidden, cells, opened, recurrent)


def _recur_backward(kept: Any, d_hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden, cells, opened, recurrent = kept
    units, dtype = recurrent.shape[0], hidden.dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    zero = jnp.zeros_like(hidden[0])

    def before(states: jax.Array) -> jax.Array:
        return jnp.concatenate([zero[None], states[:-1]])

    def step(carry: Any, now: Any) -> Any:
        dh, dc = carry
        d_out, gates, cell, cell_before = (a.astype(wide) for a in now)
        i, f, g, o = (gates[:, k * units : (k + 1) * units] for k in range(4))
        dh = dh + d_out
        squashed = jnp.tanh(cell)
        dc = dc + dh * o * (1 - squashed**2)
        dz = jnp.concatenate(
            [
                dc * g * i * (1 - i),
                dc * cell_before * f * (1 - f),
                dc * i * (1 - g**2),
                dh * squashed * o * (1 - o),
            ],
            axis=-1,
        ).astype(dtype)
        dh = jnp.dot(dz, recurrent.T, preferred_element_type=wide)
        return (dh, dc * f), dz

    start = (zero.astype(wide), zero.astype(wide))
    _, d_gates = jax.lax.scan(
        step, start, (d_hidden, opened, cells, before(cells)), reverse=True, unroll=_unroll()
    )
    d_recurrent = jnp.einsum("tbu,tbk->uk", before(hidden), d_gates)
    return d_gates, d_recurrent.astype(recurrent.dtype)


recur.defvjp(_recur_forward, _recur_backward)


def _unroll() -> int:
    """Steps of time in one turn of the loop: launches are what a GPU waits for."""
    return 1 if jax.default_backend() == "cpu" else 16


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

"""Convolutional networks for images of 28 × 28."""

import equinox as eqx
import jax
import jax.numpy as jnp

from taciturn.core.hashing import fold
from taciturn.models.convolution import convolve
from taciturn.models.dense import Dense, glorot
from taciturn.models.dropout import dropout
from taciturn.models.winograd import convolve_and_pool


class Conv(eqx.Module):
    """A square convolution without padding, and ReLU."""

    kernel: jax.Array  # (side · side · inputs, outputs)
    bias: jax.Array
    side: int = eqx.field(static=True)

    def __init__(self, key: jax.Array, side: int, inputs: int, outputs: int) -> None:
        area = side * side
        self.kernel = glorot(key, (area * inputs, outputs), area * inputs, area * outputs)
        self.bias = jnp.zeros(outputs)
        self.side = side

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.kernel.dtype)
        return jax.nn.relu(convolve(x, self.kernel, self.side) + self.bias)

    def pooled(self, x: jax.Array) -> jax.Array:
        """As `max_pool(self(x))`; bias and ReLU come after pooling, where there is less to do."""
        x = x.astype(self.kernel.dtype)
        return jax.nn.relu(convolve_and_pool(x, self.kernel, self.side) + self.bias)


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
        words = None if key is None else jax.random.key_data(key)
        first, second = (None, None) if words is None else (fold(words, 0), fold(words, 1))
        x = self.conv2.pooled(self.conv1(x[..., None]))
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
        x = self.conv2.pooled(self.conv1.pooled(x[..., None]))
        return self.dense(x.reshape(x.shape[0], -1))

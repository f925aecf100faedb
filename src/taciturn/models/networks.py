"""Dense and convolutional layers, dropout, and the networks for images and tables."""

import equinox as eqx
import jax
import jax.numpy as jnp

from taciturn.core.hashing import bits, fold
from taciturn.models.convolution import convolve
from taciturn.models.winograd import convolve_and_pool


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
        return x.astype(self.kernel.dtype) @ self.kernel + self.bias


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


def dropout(x: jax.Array, rate: float, words: jax.Array | None) -> jax.Array:
    """`x` with entries zeroed with probability `rate`, and the rest scaled up; without a key, `x`.

    The bits are hashed from the two `words` of a key: JAX's own generator would cost a tenth of a
    local step on a CPU.
    """
    if words is None:
        return x
    keep = bits(words, x.shape) >= jnp.uint32(int(rate * 2**32))
    return jnp.where(keep, x / (1 - rate), jnp.zeros_like(x))


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

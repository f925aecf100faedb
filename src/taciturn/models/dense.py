"""Dense layers, and a network of two."""

import equinox as eqx
import jax
import jax.numpy as jnp


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

"""What models are compared with, and how: values, and gradients by every argument."""

import jax
import jax.numpy as jnp
import numpy as np


def drawn(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def with_gradients(function, *fixed):
    """`function(*arguments, *fixed)`, and what comes back to its arguments of a gradient."""

    def run(*arguments):
        y, back = jax.vjp(lambda *arguments: function(*arguments, *fixed), *arguments)
        dy = jnp.arange(y.size).reshape(y.shape) % 7 - 3  # exact in every precision
        return y, *back(dy.astype(y.dtype))

    return run


def assert_near(ours, theirs, share=1e-5, relative=0.0):
    """All arrays are near: within a share of the largest number, or a relative deviation."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = (np.asarray(c, np.float32) for c in (a, b))
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=relative, atol=share * np.abs(b).max())


def plain_lstm(layer, x):
    """The equations of an LSTM, a step at a time; x is (time, batch, inputs)."""
    units = layer.recurrent.shape[0]

    def step(carry, now):
        h, c = carry
        z = now @ layer.kernel + h @ layer.recurrent + layer.bias
        i, f, g, o = (z[:, n * units : (n + 1) * units] for n in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], units))
    return jax.lax.scan(step, (zero, zero), x)[1]


def plain_two_layers(first, second, x):
    return plain_lstm(second, plain_lstm(first, x))

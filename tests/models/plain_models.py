"""LSTMs as their equations say, to compare with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from taciturn.models.lstm import LSTM


def plain_lstm(layer: LSTM, x: jax.Array) -> jax.Array:
    """The equations of an LSTM, a step at a time; x is (time, batch, inputs)."""
    units = layer.recurrent.shape[0]

    def step(carry: Any, now: jax.Array) -> Any:
        h, c = carry
        z = now @ layer.kernel + h @ layer.recurrent + layer.bias
        i, f, g, o = (z[:, n * units : (n + 1) * units] for n in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], units))
    return jax.lax.scan(step, (zero, zero), x)[1]


def plain_two_layers(first: LSTM, second: LSTM, x: jax.Array) -> jax.Array:
    return plain_lstm(second, plain_lstm(first, x))

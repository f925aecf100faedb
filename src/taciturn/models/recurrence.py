"""The loop over time of an LSTM, with a gradient written by hand."""

from typing import Any

import jax
import jax.numpy as jnp

BLOCK = 16  # steps of time in a block


@jax.custom_vjp
def recur(gates: jax.Array, recurrent: jax.Array, start: Any) -> tuple[jax.Array, Any]:
    """The loop over time of an LSTM.

    Its gradient is written out because that of a `scan` adds to the gradient of `recurrent` in
    every step, reading and writing a whole matrix each time; here it is one product at the end.

    Args:
      gates: the inputs' share of the gates i, f, g, o; (time, batch, 4 · units).
      recurrent: (units, 4 · units).
      start: hidden state and cell before the first step, (batch, units) each; the cell is at least
        float32.

    Returns:
      Hidden states (time, batch, units), and hidden state and cell after the last step.
    """
    return _recur_forward(gates, recurrent, start)[0]


def _recur_forward(gates: jax.Array, recurrent: jax.Array, start: Any) -> Any:
    def step(carry: Any, gate: jax.Array) -> Any:
        h, c = carry
        z = gate + jnp.dot(h, recurrent, preferred_element_type=c.dtype)
        i, f, g, o = _open(z)
        c = f * c + i * g
        h = (o * jnp.tanh(c)).astype(gates.dtype)
        return (h, c), (h, c.astype(gates.dtype), z.astype(gates.dtype))

    end, (hidden, cells, opened) = jax.lax.scan(step, start, gates, unroll=_unroll(gates))
    return (hidden, end), (hidden, cells, opened, recurrent, start)


def _recur_backward(kept: Any, cotangents: Any) -> Any:
    hidden, cells, opened, recurrent, (h_start, c_start) = kept
    d_hidden, (dh_end, dc_end) = cotangents
    dtype, wide = hidden.dtype, c_start.dtype

    def step(carry: Any, now: Any) -> Any:
        dh, dc = carry
        d_out, z, cell, cell_before = (a.astype(wide) for a in now)
        i, f, g, o = _open(z)
        dh = dh + d_out
        squashed = jnp.tanh(cell)
        dc = dc + dh * o * (1 - squashed**2)
        d_gates = (
            dc * g * i * (1 - i),
            dc * cell_before * f * (1 - f),
            dc * i * (1 - g**2),
            dh * squashed * o * (1 - o),
        )
        dz = jnp.concatenate(d_gates, axis=-1).astype(dtype)
        dh = jnp.dot(dz, recurrent.T, preferred_element_type=wide)
        return (dh, dc * f), dz

    cells_before = jnp.concatenate([c_start[None].astype(dtype), cells[:-1]])
    hidden_before = jnp.concatenate([h_start[None], hidden[:-1]])
    (dh, dc), d_gates = jax.lax.scan(
        step,
        (dh_end.astype(wide), dc_end),
        (d_hidden, opened, cells, cells_before),
        reverse=True,
        unroll=_unroll(opened),
    )
    d_recurrent = jnp.einsum("tbu,tbk->uk", hidden_before, d_gates).astype(recurrent.dtype)
    return d_gates, d_recurrent, (dh.astype(dtype), dc)


recur.defvjp(_recur_forward, _recur_backward)


def _open(z: jax.Array) -> Any:
    """The gates i, f, o, and the candidate g."""
    i, f, g, o = jnp.split(z, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)


def _unroll(steps: jax.Array) -> int:
    """Steps of time in one turn of a loop: on a GPU, launches are what is waited for."""
    return 1 if jax.default_backend() == "cpu" else min(BLOCK, steps.shape[0])

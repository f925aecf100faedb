"""LSTMs: a loop over time with a gradient written by hand; two at the same time on a GPU."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from taciturn.models.networks import Dense, glorot

BLOCK = 16  # steps of time in a block


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

    def gates(self, x: jax.Array) -> jax.Array:
        """The inputs' share of all gates, one product for all times: (…, 4 · units)."""
        return x @ self.kernel + self.bias


def two_layers(first: LSTM, second: LSTM, x: jax.Array) -> jax.Array:
    """Hidden states of the second of two LSTMs; time is the first axis of inputs and outputs.

    On a GPU, where a step of time waits for the one before, the layers run at the same time: time
    is cut into blocks, and while the first layer is at one block, the second is at the one before.
    """
    gates = first.gates(x)
    zero = jnp.zeros((x.shape[1], first.recurrent.shape[0]), gates.dtype)
    start = (zero, zero.astype(jnp.promote_types(gates.dtype, jnp.float32)))
    blocks = x.shape[0] // BLOCK
    if jax.default_backend() == "cpu" or blocks < 2 or x.shape[0] % BLOCK:
        hidden, _ = recur(gates, first.recurrent, start)
        return recur(second.gates(hidden), second.recurrent, start)[0]
    recurrent = jnp.stack([first.recurrent, second.recurrent])

    def both(carry: Any, gates: jax.Array) -> Any:
        ahead, state_ahead, state_behind = carry
        hidden, states = jax.vmap(recur)(
            jnp.stack([gates, second.gates(ahead)]),
            recurrent,
            jax.tree.map(lambda *layers: jnp.stack(layers), state_ahead, state_behind),
        )
        state_ahead, state_behind = zip(*states, strict=True)
        return (hidden[0], state_ahead, state_behind), hidden[1]

    cut = gates.reshape(blocks, BLOCK, *gates.shape[1:])
    ahead, state = recur(cut[0], first.recurrent, start)
    (ahead, _, state), done = jax.lax.scan(both, (ahead, state, start), cut[1:])
    last, _ = recur(second.gates(ahead), second.recurrent, state)
    return jnp.concatenate([done.reshape(-1, *last.shape[1:]), last])


@jax.custom_vjp
def recur(gates: jax.Array, recurrent: jax.Array, start: Any) -> tuple[jax.Array, Any]:
    """The loop over time of an LSTM: all hidden states, and hidden state and cell after the last.

    Its gradient is written out because that of a `scan` adds to the gradient of `recurrent` in
    every step, reading and writing a whole matrix each time; here it is one product at the end.

    Args:
      gates: the inputs' share of the gates i, f, g, o; (time, batch, 4 · units).
      recurrent: (units, 4 · units).
      start: hidden state and cell before the first step, (batch, units) each; the cell is at least
        float32.
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
        hidden = two_layers(self.lstm1, self.lstm2, self.embedding[tokens.T])
        return self.dense(jnp.swapaxes(hidden, 0, 1))

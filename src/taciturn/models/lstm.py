"""LSTMs, two of which run at the same time on a GPU."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from taciturn.models.dense import Dense, glorot
from taciturn.models.recurrence import BLOCK, recur


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

"""A million clients that are a function, and a Flax model: nothing is stored.

python examples/flax_task.py
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import taciturn


def rows(client, data):
    """Between 10 and 59 examples."""
    return 10 + client % 50


def example(client, index, data):
    """Which side of a wave a point lies on; every client looks at a place of its own."""
    key = jax.random.fold_in(jax.random.key(0), client)
    centre = jax.random.uniform(key, (2,), minval=-2, maxval=2)
    x = centre + 0.5 * jax.random.normal(jax.random.fold_in(key, index), (2,))
    return {"x": x, "y": (x[1] > jnp.sin(2 * x[0])).astype(jnp.int32)}


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(32)(x))
        return nn.Dense(2)(nn.tanh(nn.Dense(32)(x)))


network = Network()
loss, metrics = taciturn.classification(lambda params, x, key: network.apply(params, x))
task = taciturn.Task("wave", taciturn.Generated(1_000_000, 59, rows, example),
                     lambda key: network.init(key, jnp.zeros((1, 2))), loss, metrics,
                     batch=10, lr=0.3)  # fmt: skip

taciturn.prepare()  # every core a device
arms = {name: name for name in ("full", "adaptive,k=0+ou")}
for name, history in taciturn.compare(task, arms, rounds=200, cohort=10).items():
    summary = history.summary()
    print(f"{name:16} {summary['accuracy_mean']:5.1f} % right, "
          f"{summary['upload_share']:5.1f} % of the uploads")  # fmt: skip

"""Your own data and an Equinox model: arrays, how many examples each client has, and a network.

python examples/equinox_task.py
"""

import equinox as eqx
import jax
import numpy as np

import taciturn

# Points on a spiral of three arms, split over 30 clients of different sizes.
rng = np.random.default_rng(0)
rows = rng.integers(5, 80, 30)
arm = rng.integers(0, 3, rows.sum())
radius = rng.uniform(0.1, 1, rows.sum())
angle = 4 * radius + arm * 2 * np.pi / 3 + rng.normal(0, 0.1, rows.sum())
points = (radius * np.stack([np.cos(angle), np.sin(angle)])).T.astype(np.float32)
clients = taciturn.Stored.of({"x": points, "y": arm.astype(np.int32)}, rows)


def make(key):
    return eqx.nn.MLP(in_size=2, out_size=3, width_size=32, depth=2, key=key)


# Weights are what is trained; the rest of the model, such as its activation, stays here.
rest = eqx.partition(make(jax.random.key(0)), eqx.is_inexact_array)[1]


def logits(weights, x, key):
    return jax.vmap(eqx.combine(weights, rest))(x)


loss, metrics = taciturn.classification(logits)
task = taciturn.Task("spiral", clients, lambda key: eqx.filter(make(key), eqx.is_inexact_array),
                     loss, metrics, batch=10, lr=0.3)  # fmt: skip

taciturn.prepare()  # every core a device
arms = {name: name for name in ("full", "adaptive,k=0+ou")}
for name, history in taciturn.compare(task, arms, rounds=200, cohort=10).items():
    summary = history.summary()
    print(f"{name:16} {summary['accuracy_mean']:5.1f} % right, "
          f"{summary['upload_share']:5.1f} % of the uploads")  # fmt: skip

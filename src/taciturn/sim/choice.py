"""Power of choice: more clients are asked for their loss than train, and the largest losses do.

    candidates: `choice` clients, drawn without replacement with p_k = n_k / Σ n
    loss_k: of the current weights over all rows of candidate k, dropout off
    cohort: the candidates with the largest loss; they count alike in the mean

It is π_pow-d of the paper, d the candidates and m the cohort; in the plain loop `Trainer.cohort`.

References:
  Cho, Wang, Joshi. Client Selection in Federated Learning: Convergence Analysis and
  Power-of-Choice Selection Strategies, 2020.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from taciturn.sim.local import Model
from taciturn.tasks.clients import Clients
from taciturn.tasks.task import Task


def make_loss_sums(task: Task, model: Model, batch: int) -> Callable[..., Any]:
    """`(weights, candidates, clients, start, stride) -> (sums of losses, sums of their weights)`.

    One sum per candidate. All their rows are laid end to end and go through the model in batches,
    of which those at `start`, `start + stride` … are taken: memory does not grow with candidates,
    and nothing is padded but the last batch.
    """

    def loss_sums(
        weights: jax.Array, candidates: jax.Array, clients: Clients, start: jax.Array, stride: int
    ) -> Any:
        params = model.unravel(weights)
        rows = clients.rows_of(candidates)
        ends = jnp.cumsum(rows)

        def one(carry: Any) -> Any:
            start, sums = carry
            place = start + jnp.arange(batch, dtype=ends.dtype)
            inside, place = place < ends[-1], jnp.minimum(place, ends[-1] - 1)
            whose = jnp.searchsorted(ends, place, side="right")
            index = place - (ends - rows)[whose]
            part = jax.vmap(lambda k, i: clients.batch(k, i[None]))(candidates[whose], index)
            pair = task.metrics(params, jax.tree.map(lambda array: array[:, 0], part))["loss"]
            own = inside[None] & (whose[None] == jnp.arange(len(candidates))[:, None])
            found = [jnp.sum(jnp.where(own, each[None], 0), axis=1, dtype=weights.dtype)
                     for each in pair]  # fmt: skip
            return start + stride, jax.tree.map(jnp.add, sums, found)

        nothing = jnp.zeros(candidates.shape, weights.dtype)
        carry = (start, [nothing, nothing])
        return jax.lax.while_loop(lambda carry: carry[0] < ends[-1], one, carry)[1]

    return loss_sums

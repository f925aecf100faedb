"""Residuals: what clients keep of what a codec with feedback left out.

The engine has a table, (keeping, population, size), one row for each run whose clients keep
something. Lanes get the part of those who are asked in a round, (keeping, cohort, size), and give
back what was left out of those who spoke. Where no run keeps anything, all of it is None.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core.policy import Policy


def keeping(policies: tuple[Policy, ...], seeds: int) -> np.ndarray:
    """The runs whose clients keep something; run r is arm r // seeds with seed r % seeds."""
    codecs = [policy.codec for policy in policies]
    return np.flatnonzero(np.repeat([c.feedback and c.error > 0 for c in codecs], seeds))


def places(keeping: np.ndarray, clients: jax.Array) -> tuple[Any, Any]:
    """Where those who are asked, (seeds, cohort), are in the table."""
    return np.arange(len(keeping))[:, None], clients[keeping % len(clients)]


def kept(residuals: Any, keeping: np.ndarray, of: Any) -> Any:
    """What clients with a `run` and a `slot` kept, (lanes, size); 0 in runs that keep nothing."""
    if residuals is None:
        return None
    return residuals.at[_rows(keeping, of.run), of.slot].get(mode="fill", fill_value=0)


def keep(left: Any, rest: Any, keeping: np.ndarray, of: Any, which: jax.Array) -> Any:
    """What was left out, with the rest, (lanes, size), of the chosen clients."""
    if left is None:
        return None
    rows = jnp.where(which, _rows(keeping, of.run), len(left))  # out of bounds, and dropped
    return left.at[rows, of.slot].set(rest, mode="drop")


def _rows(keeping: np.ndarray, run: jax.Array) -> jax.Array:
    """The rows of these runs; out of bounds for those that keep nothing."""
    row = jnp.searchsorted(jnp.asarray(keeping), run)
    found = jnp.asarray(keeping)[jnp.minimum(row, len(keeping) - 1)] == run
    return jnp.where(found, row, len(keeping))

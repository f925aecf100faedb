"""Tables with an update for every client: what codecs left out of it, and what it said last.

A table, (runs, population, size), has a row for each run that needs it: those of the first kind,
residuals, are what clients keep under a codec with feedback, those of the second what the server
keeps for the stand-in `own`. Of both, lanes give back what is new of those who spoke, (runs,
cohort, size). Where no run needs a table, all of it is None.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.core.policy import Policy


def keeping(policies: tuple[Policy, ...], seeds: int, size: int) -> np.ndarray:
    """The runs whose clients keep something; run r is arm r // seeds with seed r % seeds."""
    codecs = [policy.codec for policy in policies]
    return np.flatnonzero(np.repeat([c.feedback and c.error(size) > 0 for c in codecs], seeds))


def repeating(policies: tuple[Policy, ...], seeds: int) -> np.ndarray:
    """The runs whose silent clients are stood in for by what they said last."""
    return np.flatnonzero(np.repeat([policy.stand_in.own for policy in policies], seeds))


def empty(rows: np.ndarray, population: int, size: int, dtype: Any) -> Any:
    """A table before the first round, for these runs."""
    return jnp.zeros((len(rows), population, size), dtype) if len(rows) else None


def rows_of(table: Any, runs: np.ndarray, clients: jax.Array) -> Any:
    """The part of those who are asked, (seeds, cohort), in the table of these runs."""
    return None if table is None else table[_places(runs, clients)]


def put(table: Any, runs: np.ndarray, clients: jax.Array, said: jax.Array, new: Any) -> Any:
    """The table with what is new, (runs, cohort, size), of those of all runs who spoke."""
    if table is None:
        return None
    place = _places(runs, clients)
    return table.at[place].set(jnp.where(said[runs][..., None], new, table[place]))


def _places(runs: np.ndarray, clients: jax.Array) -> tuple[Any, Any]:
    return np.arange(len(runs))[:, None], clients[runs % len(clients)]


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

"""Tables with an update for every client: what its codec left out, and what it said last.

A table, (rows, population, size), has a row for each of the `runs` that need it, and is None where
none does. Clients keep the first kind, residuals, under a codec with feedback; the server keeps the
second for the stand-in `own`. Lanes fill in what a round changes, (rows, cohort, size).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def empty(runs: np.ndarray, clients: int, size: int, dtype: Any) -> Any:
    """Zeros for so many clients of each of the runs."""
    return jnp.zeros((len(runs), clients, size), dtype) if len(runs) else None


def rows_of(table: Any, runs: np.ndarray, clients: jax.Array) -> Any:
    """The part of the clients that are asked, (seeds, cohort)."""
    return None if table is None else table[_places(runs, clients)]


def put(table: Any, runs: np.ndarray, clients: jax.Array, said: jax.Array, new: Any) -> Any:
    """The table with `new` for the cohorts' clients that spoke, (all runs, cohort)."""
    if table is None:
        return None
    place = _places(runs, clients)
    return table.at[place].set(jnp.where(said[runs][..., None], new, table[place]))


def _places(runs: np.ndarray, clients: jax.Array) -> tuple[Any, Any]:
    return np.arange(len(runs))[:, None], clients[runs % len(clients)]


def read(rows: Any, runs: np.ndarray, of: Any) -> Any:
    """The updates, (lanes, size), of clients with a `run` and a `slot`; 0 in runs without a row."""
    return rows.at[_row(runs, of.run), of.slot].get(mode="fill", fill_value=0)


def write(rows: Any, runs: np.ndarray, of: Any, updates: jax.Array, which: jax.Array) -> Any:
    """The cohorts' rows with the updates, (lanes, size), of the chosen lanes."""
    if rows is None:
        return None
    row = jnp.where(which, _row(runs, of.run), len(rows))  # out of bounds, and dropped
    return rows.at[row, of.slot].set(updates, mode="drop")


def _row(runs: np.ndarray, run: jax.Array) -> jax.Array:
    """The rows of these runs; out of bounds for those that have none."""
    row = jnp.searchsorted(jnp.asarray(runs), run)
    found = jnp.asarray(runs)[jnp.minimum(row, len(runs) - 1)] == run
    return jnp.where(found, row, len(runs))

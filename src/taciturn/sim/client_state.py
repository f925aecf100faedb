"""Tables with an update for every client: what its codec left out, and what it said last.

Clients keep the first kind, residuals, under a codec with feedback; the server keeps the second for
the stand-in `own`. Lanes fill in what a round changes, (rows, cohort, size).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class ClientTable:
    """The way into a table, (rows, population, size), which is None where no run needs it.

    Attributes:
      runs: those that need it, each with a row.
      rows: the row of every run; out of bounds where it has none: nothing is written, 0 is read.
    """

    def __init__(self, needed: np.ndarray) -> None:
        self.runs = np.flatnonzero(needed)
        self.rows = np.where(needed, np.cumsum(needed) - 1, len(self.runs))

    def empty(self, clients: int, size: int, dtype: Any) -> Any:
        """Zeros for so many clients."""
        return jnp.zeros((len(self.runs), clients, size), dtype) if len(self.runs) else None

    def of(self, table: Any, clients: jax.Array) -> Any:
        """The part of the clients that are asked, (seeds, cohort)."""
        return None if table is None else table[self._places(clients)]

    def put(self, table: Any, clients: jax.Array, said: jax.Array, new: Any) -> Any:
        """The table with `new` for the cohorts' clients that spoke, (all runs, cohort)."""
        if table is None:
            return None
        place = self._places(clients)
        return table.at[place].set(jnp.where(said[self.runs][..., None], new, table[place]))

    def _places(self, clients: jax.Array) -> tuple[Any, Any]:
        return np.arange(len(self.runs))[:, None], clients[self.runs % len(clients)]

    def read(self, part: Any, item: Any) -> Any:
        """The updates, (lanes, size), of items, from the part of the clients that are asked."""
        row = jnp.asarray(self.rows)[item.run]
        return part.at[row, item.slot].get(mode="fill", fill_value=0)

    def write(self, part: Any, item: Any, updates: jax.Array, which: jax.Array) -> Any:
        """The part with the updates, (lanes, size), of the items in the chosen lanes."""
        if part is None:
            return None
        row = jnp.where(which, jnp.asarray(self.rows)[item.run], len(self.runs))
        return part.at[row, item.slot].set(updates, mode="drop")

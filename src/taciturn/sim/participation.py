"""How often each client was asked, spoke, and was silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

NO_ANSWER, SILENT, SPOKE = 0, 1, 2  # what came from a client; none counts if it was rejected


class Participation(NamedTuple):
    """Counts of the rounds of some runs, a row per seed and client that was asked.

    Attributes:
      seed, client: whose row it is.
      examples: n_k; 0 where the client never answered.
      asked: how often.
      spoke, silent: how often, (rows,) or (arms, rows). Where neither, no answer came, or it was
        rejected.
    """

    seed: np.ndarray
    client: np.ndarray
    examples: np.ndarray
    asked: np.ndarray
    spoke: np.ndarray
    silent: np.ndarray

    def of_arm(self, arm: int | slice) -> Participation:
        """The rows of one of the arms, or of some."""
        return self._replace(spoke=self.spoke[arm], silent=self.silent[arm])

    def silent_share(self, third: int) -> float | None:
        """How many of their answers the clients of a third were silent in, in %.

        Third 0 has the fewest examples, third 2 the most, of the clients that answered in any of
        the runs; where examples are equal, the client with the lower number comes first.
        """
        heard = self.spoke + self.silent
        sizes: dict[int, float] = dict(
            zip(self.client[heard > 0].tolist(), self.examples[heard > 0].tolist(), strict=True)
        )
        order = sorted(sizes, key=lambda client: (sizes[client], client))
        chosen = order[third * len(order) // 3 : (third + 1) * len(order) // 3]
        own = np.isin(self.client, chosen)
        answers = heard[own].sum()
        return float(100 * self.silent[own].sum() / answers) if answers else None


def count(
    seeds: Sequence[int], clients: np.ndarray, examples: np.ndarray, answers: np.ndarray
) -> Participation:
    """The counts of some rounds.

    `clients` were asked and weigh `examples`, (seeds, rounds, cohort) each; the answers are
    `NO_ANSWER`, `SILENT` or `SPOKE`, (arms, seeds, rounds, cohort).
    """
    rows = np.asarray(clients).reshape(-1)
    answers = np.asarray(answers).reshape(len(answers), -1)
    raw = Participation(
        np.repeat(np.array(seeds, np.int64), rows.size // len(seeds)),
        rows.astype(np.int64),
        np.asarray(examples, np.float64).reshape(-1),
        np.ones(rows.size, np.int32),
        (answers == SPOKE).astype(np.int32),
        (answers == SILENT).astype(np.int32),
    )
    return merge([raw])


def merge(parts: Sequence[Participation]) -> Participation:
    """The counts of all of these, which have as many arms, by seed and client."""
    joined = Participation(
        *(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
    )
    # Seeds are below 2³², clients below 2³¹.
    keys, rows = np.unique((joined.seed << 31) | joined.client, return_inverse=True)
    examples = np.zeros(len(keys))
    np.maximum.at(examples, rows, joined.examples)

    def total(counts: np.ndarray) -> np.ndarray:
        return np.bincount(rows, counts, len(keys)).astype(np.int32)

    return Participation(
        keys >> 31,
        keys & (2**31 - 1),
        examples,
        total(joined.asked),
        np.stack([total(arm) for arm in joined.spoke]),
        np.stack([total(arm) for arm in joined.silent]),
    )


def table(
    arms: Mapping[str, Participation], names: Sequence[str] = ()
) -> tuple[list[str], list[np.ndarray]]:
    """The rows of all arms below each other, headings and columns, with clients' names if any."""
    found = Participation(*map(np.concatenate, zip(*arms.values(), strict=True)))
    labels = {"arm": np.repeat(list(arms), [len(one.client) for one in arms.values()])}
    if names:
        labels["name"] = np.array(names)[found.client]
    return [*labels, *found._fields], [*labels.values(), *found]

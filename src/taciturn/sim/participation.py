"""How often each client was asked, spoke, and was silent."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

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

    def of_arm(self, arm: int | slice) -> Self:
        """The rows of one of the arms, or of some."""
        return self._replace(spoke=self.spoke[arm], silent=self.silent[arm])

    def silent_share(self, third: int) -> float | None:
        """How many of their answers the clients of a third were silent in, in %.

        Third 0 has the fewest examples, third 2 the most, of the clients that answered in any of
        the runs; where examples are equal, the client with the lower number comes first.
        """
        heard = self.spoke + self.silent
        clients = np.unique(np.stack([self.examples, self.client])[:, heard > 0], axis=1)[1]
        chosen = clients[third * len(clients) // 3 : (third + 1) * len(clients) // 3]
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
    rows = np.asarray(clients, np.int64).reshape(-1)
    answers = np.asarray(answers).reshape(len(answers), -1)
    raw = Participation(
        np.repeat(np.array(seeds, np.int64), rows.size // len(seeds)),
        rows,
        np.asarray(examples, np.float64).reshape(-1),
        np.ones_like(rows),
        answers == SPOKE,
        answers == SILENT,
    )
    return merge([raw])


def merge(parts: Sequence[Participation]) -> Participation:
    """The counts of all of these, which have as many arms, by seed and client."""
    columns = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
    seed, client, examples, asked, spoke, silent = columns
    # Seeds are below 2³², clients below 2³¹.
    keys, rows = np.unique((seed << 31) | client, return_inverse=True)
    most = np.zeros(len(keys))
    np.maximum.at(most, rows, examples)
    asked, *counts = (
        np.bincount(rows, count, len(keys)).astype(np.int32) for count in (asked, *spoke, *silent)
    )
    spoke, silent = np.split(np.stack(counts), 2)
    return Participation(keys >> 31, keys & (2**31 - 1), most, asked, spoke, silent)


def table(
    arms: Mapping[str, Participation], names: Sequence[str] = ()
) -> tuple[list[str], list[np.ndarray]]:
    """The rows of all arms below each other, headings and columns, with clients' names if any."""
    found = Participation(*map(np.concatenate, zip(*arms.values(), strict=True)))
    labels = {"arm": np.repeat(list(arms), [len(one.client) for one in arms.values()])}
    if names:
        labels["name"] = np.array(names)[found.client]
    return [*labels, *found._fields], [*labels.values(), *found]

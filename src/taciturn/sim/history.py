"""What a simulation leaves behind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from taciturn.core import downlink, tally
from taciturn.core.policy import Policy, spell
from taciturn.errors import InputError, require
from taciturn.progress import Chunk
from taciturn.settings import Settings
from taciturn.summary import summarise
from taciturn.tasks.check import metric_names
from taciturn.tasks.task import Task

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


@dataclass(frozen=True)
class History:
    """All rounds of all seeds of one policy. Arrays have the shape (seeds, rounds).

    Attributes:
      policy: what was simulated.
      seeds: one number per run.
      cohort: how many clients were asked in a round.
      size: how many weights the model has.
      choice: how many were asked for their loss before; 0 where nobody was.
      spoke, rejected, missing: how many clients spoke, how many replies were no good, and how many
        clients never answered.
      bytes_down: bytes that the server sent: the weights, or with a codec for the way down what
        each client lacked. Who is asked for its loss has the weights when it is asked to train.
      bytes_down_silos: the same if all who were asked had been told every round before, as silos
        are.
      threshold: the one that held; NaN where the rule has none.
      norm_mean, norm_std: of the clients' update norms.
      bytes_up: bytes of updates that clients uploaded.
      accuracy, loss: on the test set, in [0, 1] and nats; NaN where it was not tested.
      worst_tenth: the mean accuracy of the tenth of clients that fares worst, of those that have
        test examples; NaN also where the test set does not say whose its examples are.
      weights: the final weights, (seeds, size). With a codec for the way down, these and what was
        tested are the public model, which is what clients would get next.
      metrics: the task's own metrics, beside accuracy and loss, (seeds, rounds) each; NaN where it
        was not tested.
      seconds: wall time of each round of all that ran side by side, compilation left out,
        (rounds,).
      participation: how often each client was asked, spoke and was silent, a row per seed and
        client that was asked; see `Participation`.
    """

    policy: Policy
    seeds: tuple[int, ...]
    cohort: int
    size: int
    spoke: np.ndarray
    rejected: np.ndarray
    missing: np.ndarray
    bytes_down: np.ndarray
    bytes_down_silos: np.ndarray
    threshold: np.ndarray
    norm_mean: np.ndarray
    norm_std: np.ndarray
    bytes_up: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    worst_tenth: np.ndarray
    weights: np.ndarray
    seconds: np.ndarray
    participation: Participation
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict)
    choice: int = 0

    @property
    def rounds(self) -> int:
        return self.spoke.shape[1]

    def __repr__(self) -> str:
        """Short, as people want to see it; `summary` has the figures."""
        seeds, found = len(self.seeds), self.summary()
        accuracy = found["accuracy_mean"]
        told = "" if accuracy is None else f", accuracy {accuracy:.2f} %"
        return (
            f"<History of {str(self.policy)!r}: {self.rounds} rounds, {seeds} "
            f"seed{'s' * (seeds > 1)}{told}, {found['upload_share']:.3g} % of the upload>"
        )

    @property
    def overhead_up(self) -> np.ndarray:
        """Bytes around the updates: a header from every client, silent or not, and for a loss."""
        return self.columns()["overhead_up"]

    @property
    def overhead_down(self) -> np.ndarray:
        """Bytes around the weights: a header with the context."""
        return self.columns()["overhead_down"]

    @property
    def bytes_both(self) -> np.ndarray:
        """All bytes of both ways, headers too."""
        return self.bytes_up + self.overhead_up + self.bytes_down + self.overhead_down

    def columns(self) -> dict[str, np.ndarray]:
        """All that was recorded or counted of every round, (seeds, rounds) each."""
        found = vars(self) | traffic(self.cohort, self.size, self.missing, self.choice)
        return {name: found[name] for name in COLUMNS} | dict(self.metrics)

    def summary(self) -> dict[str, Any]:
        """The figures that a comparison needs; percentages are of 100.

        `silent_small` and `silent_large` are how often the third of clients with the fewest and
        with the most examples was silent, where they answered.
        """
        metrics = {name: column[:, -1].tolist() for name, column in self.metrics.items()}
        return {
            "rule": spell(self.policy.rule),
            "stand_in": spell(self.policy.stand_in),
            "codec": spell(self.policy.codec),
            "down": spell(self.policy.down, without="feedback"),
            "rounds": self.rounds,
            "cohort": self.cohort,
            **({"choice": self.choice} if self.choice else {}),
            "seeds": list(self.seeds),
            **summarise(self.columns()),
            "silent_small": self.participation.silent_share(0),
            "silent_large": self.participation.silent_share(2),
            "seconds_per_round": float(self.seconds.mean()),
            **({"metrics": metrics} if metrics else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per seed and round, counted from 1; accuracies in %, as in `summary`."""
        _, *names = table = self._table()
        rows = zip(*(table[name].tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def to_pandas(self) -> Any:
        """The `rows` as a pandas DataFrame."""
        return require("pandas", "frames").DataFrame(self._table())

    def to_polars(self) -> Any:
        """The `rows` as a Polars DataFrame; NaN is null there."""
        return require("polars", "frames").DataFrame(self._table(), nan_to_null=True)

    def _table(self) -> dict[str, Any]:
        """The columns, all runs below each other, behind arm, seed and round."""
        labels = {
            "arm": [str(self.policy)] * self.spoke.size,
            "seed": np.repeat(np.array(self.seeds), self.rounds),
            "round": np.tile(np.arange(1, self.rounds + 1), len(self.seeds)),
        }
        table = {name: column.reshape(-1) for name, column in self.columns().items()}
        return labels | table | {name: 100 * table[name] for name in ("accuracy", "worst_tenth")}


BYTES = ("bytes_up", "bytes_down", "bytes_down_silos")
MEASURED = ("spoke", "rejected", "missing", "threshold", "norm_mean", "norm_std", *BYTES)
COUNTED = ("asked", "overhead_up", "bytes_up_full", "overhead_down", "bytes_down_full")
TESTED = ("accuracy", "loss", "worst_tenth")
COLUMNS = (*MEASURED, *COUNTED, *TESTED)
_TAKEN = ("arm", "seed", "round", "worst_tenth", *MEASURED, *COUNTED)  # for a task's metrics
_WHOLE: dict[str, Any] = dict.fromkeys(("spoke", "rejected", "missing"), np.int32)
_WHOLE |= dict.fromkeys(BYTES, np.int64)


def tested_columns(task: Task) -> tuple[str, ...]:
    """The columns that a test fills in, with the task's own metrics behind the others."""
    names = metric_names(task)
    for name in names:
        if name in _TAKEN:
            own = f"A metric of task `{task.name}` must have a name of its own"
            raise InputError(f"{own}, `{name}` is taken.")
    return tuple(dict.fromkeys((*TESTED, *names)))


def traffic(cohort: int, size: int, missing: np.ndarray, choice: int = 0) -> dict[str, np.ndarray]:
    """Bytes around weights and updates, where so many are missing.

    `bytes_up_full` is all that would have come up if everyone who answered had spoken, in float32,
    and `bytes_down_full` all that would have gone down to those who were asked. A client that is
    asked for its loss gets a message and answers with one; another one asks it to train.
    """
    asked = np.full(missing.shape, cohort, np.int64)
    answered = asked - missing
    up, down = (answered + choice) * tally.OVERHEAD, (asked + choice) * tally.OVERHEAD
    return {
        "asked": asked,
        "overhead_up": up,
        "bytes_up_full": answered * 4 * size + up,
        "overhead_down": down,
        "bytes_down_full": np.maximum(asked, choice) * 4 * size + down,
    }


def recorded(
    policies: Iterable[Policy], size: int, seen: Mapping[str, Any], missed: np.ndarray, first: int,
    kept: int | None, tested: Iterable[str],
) -> dict[str, np.ndarray]:  # fmt: skip
    """The columns of the rounds from `first` on, (arms, seeds, rounds) each, not tested yet.

    Args:
      policies, size: one per arm, and how many weights the model has.
      seen: the figures of `RoundInfo`, and how many are `missing`.
      missed: how many messages each client lacked that downloads, (seeds, rounds, clients).
      kept: how many messages the server keeps.
      tested: the columns that a test fills in.
    """
    # Silos are told of every round; before the first there is nothing to tell.
    last = np.minimum(first + np.arange(missed.shape[1]), 1)[:, None]
    told = np.broadcast_to(last, missed.shape)
    counted = []
    for policy, spoke, nbytes in zip(policies, seen["spoke"], seen["nbytes"], strict=True):
        own = policy.rule.nbytes is not None  # else all codes have one length
        up = nbytes if own else np.asarray(spoke, np.int64) * policy.codec.nbytes(size)
        down = (downlink.download_bytes(policy.down, lacked, size, kept).sum(-1)
                for lacked in (missed, told))  # fmt: skip
        counted.append((up, *down))
    columns = {name: seen[name] for name in MEASURED if name in seen}
    columns |= dict(zip(BYTES, zip(*counted, strict=True), strict=True))
    untested = np.full(np.shape(seen["spoke"]), np.nan)
    return as_recorded(columns | dict.fromkeys(tested, untested))


def as_recorded(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns in the types that come back from `metrics.csv`."""
    return {name: np.array(own, _WHOLE.get(name, np.float64)) for name, own in columns.items()}


def gather(
    policies: Mapping[str, Policy], settings: Settings, chunks: Sequence[Chunk]
) -> dict[str, History]:
    """The histories that the chunks of a whole simulation tell."""
    whole, found = joined(chunks), {}
    for arm, policy in policies.items():
        # Groups of the same arm have different seeds and ran one after another.
        own = [(chunk, chunk.group.arms.index(arm)) for chunk in whole if arm in chunk.group.arms]
        columns: dict[str, Any] = {
            name: np.concatenate([chunk.columns[name][a] for chunk, a in own])
            for name in chunks[0].columns
        }
        counts = [chunk.participation.of_arm(slice(a, a + 1)) for chunk, a in own]
        weights = np.concatenate([np.asarray(chunk.weights)[a] for chunk, a in own])
        found[arm] = History(
            policy,
            tuple(seed for chunk, _ in own for seed in chunk.group.seeds),
            settings.cohort,
            weights.shape[1],
            **{name: columns.pop(name) for name in (*MEASURED, *TESTED)},
            weights=weights,
            seconds=np.sum([chunk.seconds for chunk, _ in own], axis=0),
            participation=merge(counts).of_arm(0),
            metrics=columns,
            choice=settings.choice or 0,
        )
    return found


def joined(chunks: Iterable[Chunk]) -> list[Chunk]:
    """All rounds of each group in one chunk."""
    groups: dict[Any, list[Chunk]] = {}
    for chunk in chunks:
        groups.setdefault(chunk.group[:2], []).append(chunk)
    return [
        own[-1]._replace(
            columns={
                name: np.concatenate([chunk.columns[name] for chunk in own], axis=-1)
                for name in own[0].columns
            },
            seconds=np.concatenate([chunk.seconds for chunk in own]),
            participation=merge([chunk.participation for chunk in own]),
        )
        for own in groups.values()
    ]


def participation_of(
    seeds: Sequence[int], clients: np.ndarray, examples: np.ndarray, answers: np.ndarray
) -> Participation:
    """Who took part in some rounds, and how.

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


def participation_table(
    arms: Mapping[str, Participation], names: Sequence[str] = ()
) -> tuple[list[str], list[np.ndarray]]:
    """The rows of all arms below each other, headings and columns, with clients' names if any."""
    found = Participation(*map(np.concatenate, zip(*arms.values(), strict=True)))
    labels = {"arm": np.repeat(list(arms), [len(one.client) for one in arms.values()])}
    if names:
        labels["name"] = np.array(names)[found.client]
    return [*labels, *found._fields], [*labels.values(), *found]

"""What a simulation leaves behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taciturn.core import messages
from taciturn.core.policy import Policy, spell
from taciturn.errors import require
from taciturn.progress import Chunk
from taciturn.settings import Settings
from taciturn.summary import summarise


@dataclass(frozen=True)
class History:
    """All rounds of all seeds of one policy. Arrays have the shape (seeds, rounds).

    Attributes:
      policy: what was simulated.
      seeds: one number per run.
      cohort: how many clients were asked in a round.
      size: how many weights the model has.
      spoke, rejected, missing: how many clients spoke, how many replies were no good, and how many
        clients never answered.
      threshold: the one that held; NaN where the rule has none.
      norm_mean, norm_std: of the clients' update norms.
      bytes_up: bytes of updates that clients uploaded.
      accuracy, loss: on the test set, in [0, 1] and nats; NaN where it was not tested.
      weights: the final weights, (seeds, size).
      metrics: the task's own metrics of the final weights, beside accuracy and loss, (seeds,) each.
      seconds: wall time of each round of all that ran side by side, compilation left out,
        (rounds,).
    """

    policy: Policy
    seeds: tuple[int, ...]
    cohort: int
    size: int
    spoke: np.ndarray
    rejected: np.ndarray
    missing: np.ndarray
    threshold: np.ndarray
    norm_mean: np.ndarray
    norm_std: np.ndarray
    bytes_up: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    weights: np.ndarray
    seconds: np.ndarray
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return self.spoke.shape[1]

    @property
    def overhead_up(self) -> np.ndarray:
        """Bytes around the updates: a header from every client, silent or not."""
        return self._traffic("overhead_up")

    @property
    def bytes_down(self) -> np.ndarray:
        """Bytes of weights that the server sent, as float32."""
        return self._traffic("bytes_down")

    @property
    def overhead_down(self) -> np.ndarray:
        """Bytes around the weights: a header with the context."""
        return self._traffic("overhead_down")

    def _traffic(self, name: str) -> np.ndarray:
        return traffic(self.cohort, self.size, self.missing)[name]

    def columns(self) -> dict[str, np.ndarray]:
        """All that was recorded or counted of every round, (seeds, rounds) each."""
        measured = {name: getattr(self, name) for name in (*MEASURED, *TESTED)}
        found = measured | traffic(self.cohort, self.size, self.missing)
        return {name: found[name] for name in COLUMNS}

    def summary(self) -> dict[str, Any]:
        """The figures that a comparison needs; percentages are of 100."""
        return {
            "rule": spell(self.policy.rule),
            "stand_in": spell(self.policy.stand_in),
            "codec": spell(self.policy.codec),
            "rounds": self.rounds,
            "cohort": self.cohort,
            "seeds": list(self.seeds),
            **summarise(self.columns()),
            "seconds_per_round": float(self.seconds.mean()),
            **(
                {"metrics": {k: v.tolist() for k, v in self.metrics.items()}}
                if self.metrics
                else {}
            ),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per seed and round, counted from 1, for a table."""
        columns = self.columns()
        return [
            {"seed": seed, "round": t + 1}
            | {name: array[i, t].item() for name, array in columns.items()}
            for i, seed in enumerate(self.seeds)
            for t in range(self.rounds)
        ]

    def to_pandas(self) -> Any:
        """One row per seed and round, as a pandas DataFrame."""
        return require("pandas", "frames").DataFrame(self._table())

    def to_polars(self) -> Any:
        """One row per seed and round, as a Polars DataFrame; NaN is null there."""
        return require("polars", "frames").DataFrame(self._table(), nan_to_null=True)

    def _table(self) -> dict[str, Any]:
        """The columns of `rows`, all runs below each other."""
        count = len(self.seeds) * self.rounds
        labels = {
            "arm": [str(self.policy)] * count,
            "seed": np.repeat(np.array(self.seeds), self.rounds),
            "round": np.tile(np.arange(1, self.rounds + 1), len(self.seeds)),
        }
        return labels | {name: column.reshape(-1) for name, column in self.columns().items()}


MEASURED = ("spoke", "rejected", "missing", "threshold", "norm_mean", "norm_std", "bytes_up")
COUNTED = ("asked", "overhead_up", "bytes_up_full", "bytes_down", "overhead_down")
TESTED = ("accuracy", "loss")
COLUMNS = (*MEASURED, *COUNTED, *TESTED)
_WHOLE = {"spoke": np.int32, "rejected": np.int32, "missing": np.int32, "bytes_up": np.int64}


def bytes_up(policy: Policy, size: int, rungs: np.ndarray) -> np.ndarray:
    """Bytes of updates, where so many spoke on each rung of the codec, (…, rungs, rounds)."""
    each = [codec.nbytes(size) for codec in policy.codec.rungs or (policy.codec,)]
    return np.einsum("r,...rt->...t", np.array(each, np.int64), rungs[..., : len(each), :])


def traffic(cohort: int, size: int, missing: np.ndarray) -> dict[str, np.ndarray]:
    """Bytes of weights, and of what is around them and the updates, where so many are missing.

    `bytes_up_full` is all that would have come up if everyone who answered had spoken, in float32.
    """
    asked = np.full(missing.shape, cohort, np.int64)
    overhead, weights = asked * messages.OVERHEAD, asked * 4 * size
    answered = asked - missing
    headers = answered * messages.OVERHEAD
    return {
        "asked": asked,
        "overhead_up": headers,
        "bytes_up_full": answered * 4 * size + headers,
        "bytes_down": weights,
        "overhead_down": overhead,
    }


def as_recorded(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns in the types that come back from `metrics.csv`."""
    return {
        name: np.array(column, _WHOLE.get(name, np.float64)) for name, column in columns.items()
    }


def gather(
    policies: Mapping[str, Policy], settings: Settings, chunks: Sequence[Chunk]
) -> dict[str, History]:
    """The histories that the chunks of a whole simulation tell."""
    groups: dict[Any, list[Chunk]] = {}
    for chunk in chunks:
        groups.setdefault(chunk.group[:2], []).append(chunk)
    parts: dict[str, list[tuple[Any, ...]]] = {name: [] for name in policies}
    for (arms, seeds), own in groups.items():
        columns = {
            name: np.concatenate([chunk.columns[name] for chunk in own], axis=-1)
            for name in (*MEASURED, *TESTED)
        }
        assert own[-1].weights is not None
        columns["weights"] = own[-1].weights
        seconds = np.concatenate([chunk.seconds for chunk in own])
        for a, arm in enumerate(arms):
            parts[arm].append((seeds, seconds, {name: c[a] for name, c in columns.items()}))
    found = {}
    for arm, policy in policies.items():
        # Groups of the same arm have different seeds and ran one after another.
        seeds, times, several = zip(*parts[arm], strict=True)
        joined: dict[str, Any] = {
            name: np.concatenate([part[name] for part in several]) for name in several[0]
        }
        found[arm] = History(
            policy=policy,
            seeds=tuple(seed for some in seeds for seed in some),
            cohort=settings.cohort,
            size=chunks[0].size,
            seconds=np.sum(times, axis=0),
            **joined,
        )
    return found

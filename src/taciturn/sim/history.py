"""What a simulation leaves behind."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taciturn.core import messages
from taciturn.core.policy import Policy, spell


@dataclass(frozen=True)
class History:
    """All rounds of all seeds of one policy. Arrays have the shape (seeds, rounds).

    Attributes:
      policy: what was simulated.
      seeds: one number per run.
      cohort: how many clients were asked in a round.
      size: how many weights the model has.
      spoke, rejected: how many clients spoke and how many were dropped.
      threshold: the one that held; NaN where the rule has none.
      norm_mean, norm_std: of the clients' update norms.
      accuracy, loss: on the test set, in [0, 1] and nats; NaN where it was not tested.
      weights: the final weights, (seeds, size).
      seconds: wall time of each round, compilation left out, (rounds,).
    """

    policy: Policy
    seeds: tuple[int, ...]
    cohort: int
    size: int
    spoke: np.ndarray
    rejected: np.ndarray
    threshold: np.ndarray
    norm_mean: np.ndarray
    norm_std: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    weights: np.ndarray
    seconds: np.ndarray

    @property
    def rounds(self) -> int:
        return self.spoke.shape[1]

    @property
    def bytes_up(self) -> np.ndarray:
        """Bytes of updates that clients uploaded."""
        return self.spoke.astype(np.int64) * self.policy.codec.nbytes(self.size)

    @property
    def overhead_up(self) -> np.ndarray:
        """Bytes around the updates: a header from every client, silent or not."""
        return np.full(self.spoke.shape, self.cohort * messages.OVERHEAD, np.int64)

    @property
    def bytes_down(self) -> np.ndarray:
        """Bytes of weights that the server sent, as float32."""
        return np.full(self.spoke.shape, self.cohort * 4 * self.size, np.int64)

    @property
    def overhead_down(self) -> np.ndarray:
        """Bytes around the weights: a header with the context."""
        return np.full(self.spoke.shape, self.cohort * messages.OVERHEAD, np.int64)

    def summary(self) -> dict[str, Any]:
        """The figures that a comparison needs; percentages are of 100."""
        accuracy = 100 * self.accuracy[:, -1]
        sent = self.bytes_up.sum(1).mean()
        everything = self.rounds * self.cohort * 4 * self.size
        thresholds = self.threshold[np.isfinite(self.threshold)]
        return {
            "rule": spell(self.policy.rule),
            "stand_in": spell(self.policy.stand_in),
            "codec": spell(self.policy.codec),
            "rounds": self.rounds,
            "cohort": self.cohort,
            "seeds": list(self.seeds),
            "accuracy": [float(a) for a in accuracy],
            "accuracy_mean": float(accuracy.mean()),
            "accuracy_std": float(accuracy.std()),
            "loss_mean": float(self.loss[:, -1].mean()),
            "spoke_share": float(100 * self.spoke.mean() / self.cohort),
            "rejected_share": float(100 * self.rejected.mean() / self.cohort),
            "upload_bytes": float(sent),
            "upload_overhead_bytes": float(self.overhead_up.sum(1).mean()),
            "upload_share": float(100 * sent / everything),
            "threshold_mean": float(thresholds.mean()) if thresholds.size else None,
            "seconds_per_round": float(self.seconds.mean()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per seed and round, for a table."""
        columns = {name: getattr(self, name) for name in (*_MEASURED, *_COUNTED, *_TESTED)}
        return [
            {"seed": seed, "round": t}
            | {name: array[i, t].item() for name, array in columns.items()}
            for i, seed in enumerate(self.seeds)
            for t in range(self.rounds)
        ]


_MEASURED = ("spoke", "rejected", "threshold", "norm_mean", "norm_std")
_COUNTED = ("bytes_up", "overhead_up", "bytes_down", "overhead_down")
_TESTED = ("accuracy", "loss")


def join(parts: Sequence[History]) -> History:
    """Histories of the same policy with different seeds as one."""
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (*_MEASURED, *_TESTED, "weights")
    }
    seeds = tuple(seed for part in parts for seed in part.seeds)
    seconds = np.sum([part.seconds for part in parts], axis=0)
    return replace(parts[0], seeds=seeds, seconds=seconds, **joined)

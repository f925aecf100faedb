"""What a run comes to, worked out in one place for simulations, comparisons, reports and Flower.

Bytes of updates are the *payload*, bytes around them the *overhead*. A share of the upload is that
of all bytes, payload and overhead, which full communication in float32 would have had. Accuracies
are those of the last test, in %, and their ± is the sample standard deviation over seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

FULL, RECOMMENDED = "full", "budget"  # what all are compared with; the policy to begin with
MARGIN = 0.5  # points of accuracy within which two arms count as level


def summarise(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures of an arm; None is what cannot be known.

    Args:
      columns: those of `metrics.csv`, (seeds, rounds) each; a federation has no `worst_tenth`.
    """
    accuracy, loss = 100 * _last(columns["accuracy"]), _last(columns["loss"])
    worst = _last(columns.get("worst_tenth", np.full_like(columns["loss"], np.nan)))
    payload, overhead = columns["bytes_up"].sum(1), columns["overhead_up"].sum(1)
    down = (columns["bytes_down"] + columns["overhead_down"]).sum(1)
    up_full, down_full = columns["bytes_up_full"], columns["bytes_down_full"]
    thresholds = columns["threshold"][np.isfinite(columns["threshold"])]
    return {
        "accuracy": accuracy.tolist(),
        "accuracy_mean": _mean(accuracy),
        "accuracy_std": float(accuracy.std(ddof=1)) if len(accuracy) > 1 else None,
        "worst_tenth": _mean(100 * worst),
        "loss_mean": _mean(loss),
        "spoke_share": _share(columns["spoke"], columns["asked"]),
        "rejected_share": _share(columns["rejected"], columns["asked"]),
        "upload_bytes": float(payload.mean()),
        "upload_overhead_bytes": float(overhead.mean()),
        "upload_share": _share(payload + overhead, up_full),
        "download_share": _share(down, down_full),
        "traffic_bytes": float((payload + overhead + down).mean()),
        "traffic_share": _share(payload + overhead + down, up_full + down_full),
        "threshold_mean": _mean(thresholds),
    }


class Difference(NamedTuple):
    """Of two arms, over seeds: its mean and half the width of its 95 % interval."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + f" ± {self.half:.2f}" * bool(np.isfinite(self.half))


def difference(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray
) -> Difference:
    """first − second, seed by seed: both arms have the same clients and batches."""
    from scipy import stats  # which neither a report nor Flower needs

    apart = np.subtract(first, second)
    count = len(apart)
    if count < 2:
        return Difference(float(apart.mean()), np.inf)
    half = stats.t.ppf(0.975, count - 1) * apart.std(ddof=1) / np.sqrt(count)
    return Difference(float(apart.mean()), float(half))


def noise_floor(accuracy: Sequence[float], nudged: Sequence[float]) -> dict[str, float]:
    """How far accuracies of the same seeds lie apart, in points, where nothing but rounding
    differs: on average, and at the most."""
    apart = np.abs(np.subtract(accuracy, nudged))
    return {"mean": float(apart.mean()), "most": float(apart.max())}


def _last(scores: np.ndarray) -> np.ndarray:
    """The score of every seed's last test; empty if a seed has none."""
    last = [row[~np.isnan(row)][-1:] for row in scores]
    return np.concatenate(last) if all(map(len, last)) else np.array([])


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _share(part: np.ndarray, whole: np.ndarray) -> float | None:
    return float(100 * part.sum() / whole.sum()) if whole.sum() > 0 else None

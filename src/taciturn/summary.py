"""What a run comes to, worked out in one place for simulations, comparisons, reports and Flower.

Bytes of updates are the *payload*, bytes around them the *overhead*. A share of the upload is that
of all bytes, payload and overhead, which full communication in float32 would have had. Accuracies
are those of the last test, in %, and their ± is the sample standard deviation over seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def summarise(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures of an arm; None is what cannot be known.

    Args:
      columns: those of `metrics.csv`, (seeds, rounds) each: `spoke`, `threshold`, `bytes_up`,
        `overhead_up`, `accuracy`; and `asked`, `bytes_up_full`, `bytes_down`, `overhead_down`,
        `bytes_down_full`, `rejected`, `worst_tenth` and `loss`, which some folders lack.
    """
    accuracy = 100 * _last(columns["accuracy"])
    worst, loss = _last(columns.get("worst_tenth")), _last(columns.get("loss"))
    payload, overhead = columns["bytes_up"].sum(1), columns["overhead_up"].sum(1)
    down = _sum(columns, "bytes_down", "overhead_down")
    both = _sum(columns, "bytes_up", "overhead_up", "bytes_down", "overhead_down")
    full = _sum(columns, "bytes_up_full", "bytes_down_full")
    thresholds = columns["threshold"][np.isfinite(columns["threshold"])]
    return {
        "accuracy": accuracy.tolist(),
        "accuracy_mean": _mean(accuracy),
        "accuracy_std": float(accuracy.std(ddof=1)) if len(accuracy) > 1 else None,
        "worst_tenth": _mean(100 * worst),
        "loss_mean": _mean(loss),
        "spoke_share": _share(columns["spoke"], columns.get("asked")),
        "rejected_share": _share(columns.get("rejected"), columns.get("asked")),
        "upload_bytes": float(payload.mean()),
        "upload_overhead_bytes": float(overhead.mean()),
        "upload_share": _share(payload + overhead, columns.get("bytes_up_full")),
        "download_share": _share(down, columns.get("bytes_down_full")),
        "traffic_bytes": None if both is None else float(both.sum(1).mean()),
        "traffic_share": _share(both, full),
        "threshold_mean": _mean(thresholds),
    }


def noise_floor(accuracy: Sequence[float], nudged: Sequence[float]) -> dict[str, float]:
    """How far accuracies of the same seeds lie apart, in points, where nothing but rounding
    differs: on average, and at the most."""
    apart = np.abs(np.subtract(accuracy, nudged))
    return {"mean": float(apart.mean()), "most": float(apart.max())}


def _sum(columns: Mapping[str, np.ndarray], *names: str) -> np.ndarray | None:
    """The sum of these columns; None where one is missing."""
    found = [columns[name] for name in names if name in columns]
    return np.sum(found, axis=0) if len(found) == len(names) else None


def _last(scores: np.ndarray | None) -> np.ndarray:
    """The score of every seed's last test; empty if a seed has none."""
    last = [] if scores is None else [row[~np.isnan(row)][-1:] for row in scores]
    return np.concatenate(last) if last and all(map(len, last)) else np.array([])


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _share(part: np.ndarray | None, whole: np.ndarray | None) -> float | None:
    if part is None or whole is None or not whole.sum() > 0:
        return None
    return float(100 * part.sum() / whole.sum())

"""What each precision costs: EMNIST with full communication, 100 rounds, several seeds.

    TACITURN_DATA=DIR python benchmarks/precision.py [--seeds 5] [--json FILE]

All seeds of a precision run side by side.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import numpy as np

import taciturn
from taciturn.report.versions import versions
from taciturn.sim.defaults import PRECISIONS
from taciturn.tasks import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="emnist")
    parser.add_argument("--batch", type=int, help="examples in a local batch")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", default="benchmarks/results/precision.json")
    args = parser.parse_args()
    taciturn.prepare()
    task = load(args.task)
    rows: list[dict[str, object]] = []
    result = {"task": args.task, "rounds": args.rounds, "cohort": 10, "policy": "full",
              "batch": args.batch or task.batch, "seeds": list(range(args.seeds)),
              "versions": versions(), "rows": rows}  # fmt: skip
    for precision in args.precisions:
        began = time.perf_counter()
        history = taciturn.simulate(
            task, "full", rounds=args.rounds, cohort=10, seeds=args.seeds, batch=args.batch,
            precision=precision,
        )  # fmt: skip
        accuracy = 100 * history.accuracy[:, -1]
        rows.append(
            {
                "precision": precision,
                "accuracy": accuracy.tolist(),
                "accuracy_mean": float(accuracy.mean()),
                "accuracy_std": float(accuracy.std(ddof=1)) if args.seeds > 1 else 0.0,
                "loss_mean": float(history.loss[:, -1].mean()),
                "seconds_per_round": float(np.median(history.seconds)),
                "seconds_in_all": time.perf_counter() - began,
            }
        )
        jax.clear_caches()
        row = rows[-1]
        print(
            f"{precision:9} {row['accuracy_mean']:.2f} ± {row['accuracy_std']:.2f} %"
            f"  loss {row['loss_mean']:.4f}  {1000 * row['seconds_per_round']:.1f} ms a round"
            f"  {row['seconds_in_all']:.1f} s in all",
            flush=True,
        )
        with open(args.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()

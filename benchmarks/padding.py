"""What packing saves: a cohort whose clients have 1 to 1,000 batches.

    python benchmarks/padding.py [--lanes 1 4 20] [--rounds 5] [--repeats 5] [--json FILE]

The engine packs clients behind one another into lanes. A simulator that pads trains every client as
long as the longest; that is simulated by giving every client the longest one's examples. Both run
with the same number of lanes, in turns, and medians are compared. Packed work is also compared with
what there is to do: the batches of all clients, and not one more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import taciturn
from taciturn.core.hashing import bits, fold
from taciturn.models import MLP
from taciturn.report.versions import versions
from taciturn.sim import plan

RESULTS = Path(__file__).parent / "results" / "padding.json"
COHORT, BATCH = 20, 10
# Evenly spread on a logarithmic scale, as clients are; the last batch of each is not full.
BATCHES = np.geomspace(1, 1000, COHORT).round().astype(int)


def example(client: Any, index: Any, sizes: Any) -> dict[str, jax.Array]:
    noise = bits(fold(fold(jax.random.key(0), client), index), (65,))
    return {
        "x": noise[1:].astype(jnp.float32) / 2.0**32 - 0.5,
        "y": (noise[0] % 10).astype(jnp.int32),
    }


def make(batches: np.ndarray) -> taciturn.Task:
    """Clients that have so many batches; all of them are asked in every round."""
    sizes = (BATCH * batches - 3).astype(np.int32)
    clients = taciturn.Generated(
        COHORT, int(sizes.max()), lambda client, sizes: sizes[client], example, sizes
    )
    loss, metrics = taciturn.classification(lambda model, x, key: model(x))
    ask = jax.vmap(lambda i: example(10**8, i, None))
    return taciturn.Task(
        "spread", clients, lambda key: MLP(key, 64, 64), loss, metrics,
        test=jax.tree.map(np.asarray, ask(jnp.arange(100))), batch=BATCH,
    )  # fmt: skip


def seconds_per_round(task: taciturn.Task, lanes: int, rounds: int) -> float:
    history = taciturn.simulate(
        task, "full", rounds=rounds, cohort=COHORT, lanes=lanes, evaluate_every=rounds
    )
    return float(np.median(history.seconds))


def measure(lanes: int, rounds: int, repeats: int) -> dict[str, Any]:
    count = lanes * len(jax.devices())
    batches = {"packed": BATCHES, "padded": np.full(COHORT, BATCHES.max())}
    tasks = {name: make(each) for name, each in batches.items()}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(-1, repeats):
        for name, task in tasks.items():
            took = seconds_per_round(task, lanes, rounds)
            if repeat >= 0:
                seconds[name].append(took)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    # What all lanes do together, whether they have a client or wait for the longest lane.
    steps = {name: count * plan.makespan(each, count) for name, each in batches.items()}
    return {
        "lanes": count,
        "batches": int(BATCHES.sum()),
        "steps": steps,
        "seconds_per_round": median,
        "seconds_of_runs": seconds,
        "saved_steps": steps["padded"] / steps["packed"],
        "saved_seconds": median["padded"] / median["packed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 4, COHORT])
    parser.add_argument("--rounds", type=int, default=5, help="rounds in a run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each that count")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()
    taciturn.prepare()

    rows = [measure(lanes, options.rounds, options.repeats) for lanes in options.lanes]
    print(f"{COHORT} clients of {BATCHES.min()} to {BATCHES.max():,} batches, "
          f"{BATCHES.sum():,} in all")  # fmt: skip
    print(f"{'lanes':>6}{'steps, packed':>15}{'padded':>9}{'ratio':>7}"
          f"{'a round, packed':>18}{'padded':>10}{'ratio':>7}")  # fmt: skip
    for row in rows:
        steps, seconds = row["steps"], row["seconds_per_round"]
        print(f"{row['lanes']:6}{steps['packed']:15,}{steps['padded']:9,}{row['saved_steps']:7.2f}"
              f"{seconds['packed']:16.3f} s{seconds['padded']:8.3f} s"
              f"{row['saved_seconds']:7.2f}")  # fmt: skip
    result = {"cohort": COHORT, "batch": BATCH, "batches": BATCHES.tolist(), "rows": rows,
              "versions": versions()}  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    # With one lane there is nothing to wait for: packed work is the batches that there are.
    sys.exit(0 if all(r["steps"]["packed"] == r["batches"] for r in rows if r["lanes"] == 1) else 1)


if __name__ == "__main__":
    main()

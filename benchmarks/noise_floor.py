"""How far the same seed ends apart when nothing but rounding differs: the noise floor.

    python benchmarks/noise_floor.py [--task glyphs] [--rounds 100] [--seeds 5] [--json FILE]

A sum over clients is added up in another order on another number of devices, and a program with
other arms beside is compiled in another way. What differs in the last bit moves a client across a
threshold now and then, and from there on two runs of one seed are two runs. Each policy is run
alone and beside others, on one device and on all; what is told is how far the ends of one seed lie
apart, beside how far seeds lie apart. A difference between policies below this floor is none.
Beside it is what `taciturn compare --noise-floor` would say: the same program once more, with a
learning rate that is changed in its last bit.
"""

import argparse
import itertools
from pathlib import Path

import jax
import numpy as np

import taciturn
from taciturn import runs
from taciturn.report.versions import versions
from taciturn.studies import nudged_rate
from taciturn.summary import noise_floor

POLICIES = ("full", "adaptive+ou", "adaptive+ignore+eden:0.5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="glyphs")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taciturn.prepare()
    task = taciturn.load(options.task)
    settings = {"rounds": options.rounds, "seeds": options.seeds, "evaluate_every": options.rounds}
    ends: dict[str, list[np.ndarray]] = {policy: [] for policy in POLICIES}
    spoke: dict[str, list[np.ndarray]] = {policy: [] for policy in POLICIES}
    for devices in sorted({1, len(jax.devices())}):
        groups = [POLICIES, *((policy,) for policy in POLICIES)]
        for group in groups:
            arms = {policy: policy for policy in group}
            for policy, history in taciturn.compare(
                task, arms, devices=devices, **settings
            ).items():
                ends[policy].append(100 * history.accuracy[:, -1])
                spoke[policy].append(history.spoke)
    arms = {policy: policy for policy in POLICIES}
    one, nudged = (
        {policy: 100 * history.accuracy[:, -1] for policy, history in found.items()}
        for found in (
            taciturn.compare(task, arms, lr=lr, **settings)
            for lr in (task.lr, nudged_rate(task.lr))
        )
    )
    rows = {}
    for policy in POLICIES:
        found = np.array(ends[policy])
        pairs = [np.abs(a - b) for a, b in itertools.combinations(found, 2)]
        rows[policy] = {
            "pair_mean": float(np.mean(pairs)),
            "nudged": noise_floor(one[policy], nudged[policy]),
            "ways": len(found),
            "apart": float(np.ptp(found, axis=0).max()),
            "apart_mean": float(np.ptp(found, axis=0).mean()),
            "seeds_deviation": float(found.mean(0).std(ddof=1)),
            "rounds_that_differ": int((np.ptp(np.array(spoke[policy]), axis=0) > 0).sum()),
        }
        row = rows[policy]
        print(f"{policy:<28}two ends of one seed lie {row['pair_mean']:.3f} points apart, "
              f"{row['apart']:.3f} at the most; nudged {row['nudged']['mean']:.3f}, "
              f"{row['nudged']['most']:.3f} at the most; seeds deviate by "
              f"{row['seeds_deviation']:.3f}")  # fmt: skip
    if options.json:
        result = {"task": options.task, "rounds": options.rounds, "seeds": options.seeds,
                  "policies": rows, "versions": versions()}  # fmt: skip
        runs.write_json(options.json, result)


if __name__ == "__main__":
    main()

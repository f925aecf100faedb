"""A real table, from file to comparison, beside a plain fit of the same model to all rows.

    python benchmarks/real_table.py parkinsons_updrs.tsv --json benchmarks/results/real_table.json

Voice recordings of 42 people with Parkinson's disease (Tsanas et al., 2009; UCI): the score of
movement from 18 numbers. The plain fit is one client that has everyone's rows, with the same model,
learning rate, batches and test rows, and as many passes over the data. Between the two lies what it
costs that people differ: with the same rows dealt to 42 clients at random, the same training shows
how much of it is federated averaging itself.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import taciturn
from taciturn import runs
from taciturn.report.versions import versions
from taciturn.tasks.task import Stored, Task, with_test

ARMS = ("full", "adaptive+ou", "budget", "budget:2%")


def pooled(task: Task) -> Task:
    """The same task with one client that has all rows."""
    clients, test = with_test(task)
    everyone = Stored.of(clients.arrays, [int(clients.rows.sum())])
    return replace(task, clients=everyone, test=test.examples)


def dealt(task: Task) -> Task:
    """The same task with its rows dealt to as many clients at random."""
    clients, test = with_test(task)
    order = np.random.default_rng(0).permutation(int(clients.rows.sum()))
    arrays = {key: array[order] for key, array in clients.arrays.items()}
    return replace(task, clients=Stored.of(arrays, clients.rows), test=test.examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taciturn.prepare()
    began = time.perf_counter()
    task = taciturn.table(
        options.file, client="subject#", label="motor_UPDRS", standardise=True,
        leave_out=("total_UPDRS", "test_time"),
    )  # fmt: skip
    cohort, people = 10, task.clients.population
    settings = {"rounds": options.rounds, "seeds": options.seeds, "evaluate_every": options.rounds}
    found = taciturn.compare(task, {arm: arm for arm in ARMS}, cohort=cohort, **settings)
    seconds = time.perf_counter() - began
    found["dealt at random"] = taciturn.simulate(dealt(task), "full", cohort=cohort, **settings)
    settings["rounds"] = settings["evaluate_every"] = round(options.rounds * cohort / people)
    found["pooled"] = taciturn.simulate(pooled(task), "full", cohort=1, **settings)
    rows = {
        name: {
            "loss": history.loss[:, -1].tolist(),
            "upload_bytes": int(history.bytes_up.sum(1).mean()) if name != "pooled" else 0,
        }
        for name, history in found.items()
    }
    for name, row in rows.items():
        print(f"{name:<28}{sum(row['loss']) / len(row['loss']):.4f}  {row['upload_bytes']:,} bytes")
    print(f"{seconds:.1f} s from file to comparison")
    if options.json:
        result = {"rounds": options.rounds, "cohort": cohort, "people": people,
                  "seconds": round(seconds, 1), "arms": rows, "versions": versions()}  # fmt: skip
        runs.write_json(options.json, result)


if __name__ == "__main__":
    main()

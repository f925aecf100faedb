"""Speed of the simulator by itself: the paper's two models, one run and 35 side by side.

    python benchmarks/simulator.py [--json FILE] [--only cnn,lstm] [--precision tf32,float32]

Data are made up: 40 clients of 200 images, batch 20; and 100 clients of 1 to 128 sequences of 80
tokens, batch 4. Times leave compilation out.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import numpy as np

import taciturn
from taciturn.models import CharLSTM, EmnistCNN
from taciturn.report.versions import versions
from taciturn.sim import compare
from taciturn.tasks import Stored, Task, classification

ARMS = ["full", *(f"{r}+{s}" for r in ("adaptive", "random:0.5") for s in ("ou", "zero", "ignore"))]


def cnn() -> Task:
    rng = np.random.default_rng(0)
    x = rng.random((8_000, 28, 28), np.float32)
    y = rng.integers(0, 62, 8_000).astype(np.int32)
    loss, metrics = classification(lambda model, x, key: model(x, key))
    test = {"x": x[:512], "y": y[:512]}
    return Task("cnn", Stored.of({"x": x, "y": y}, [200] * 40), EmnistCNN, loss, metrics, test)


def lstm() -> Task:
    rng = np.random.default_rng(0)
    sizes = np.minimum(1 + rng.lognormal(3, 1.3, 100), 128).astype(int)
    x = rng.integers(0, 90, (sizes.sum(), 80)).astype(np.int32)
    _, metrics = classification(lambda model, x, key: model(x, key))
    per_token, _ = classification(lambda model, x, key: model(x, key))

    def loss(model, batch, key):  # type: ignore[no-untyped-def]
        return per_token(model, batch, key).mean(-1)

    def summed(model, batch):  # type: ignore[no-untyped-def]
        found = metrics(model, batch)
        return {name: (value.sum(-1), weight.sum(-1)) for name, (value, weight) in found.items()}

    test = {"x": x[:64], "y": x[:64]}
    return Task("lstm", Stored.of({"x": x, "y": x}, sizes), CharLSTM, loss, summed, test, batch=4)


def measure(task: Task, arms: list[str], seeds: int, rounds: int, **settings: object) -> dict:
    began = time.perf_counter()
    found = compare(
        task,
        {arm: arm for arm in arms},
        seeds=seeds,
        rounds=rounds,
        evaluate_every=rounds,
        **settings,
    )
    history = next(iter(found.values()))
    seconds = float(np.median(history.seconds[rounds // 3 :]))
    return {
        "task": task.name,
        "runs": len(arms) * seeds,
        **settings,
        "seconds_per_round": seconds,
        "seconds_per_run_and_round": seconds / (len(arms) * seeds),
        "seconds_in_all": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--only", default="cnn,lstm")
    parser.add_argument("--precision", default="float32,tf32,bfloat16")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runs", default="1,35")
    parser.add_argument("--lanes", type=int)
    args = parser.parse_args()
    taciturn.prepare()
    rows = []
    for name in args.only.split(","):
        task = {"cnn": cnn, "lstm": lstm}[name]()
        for precision in args.precision.split(","):
            for runs in args.runs.split(","):
                arms, seeds = (["full"], 1) if runs == "1" else (ARMS, 5)
                row = measure(task, arms, seeds, args.rounds, precision=precision, lanes=args.lanes)
                rows.append(row)
                jax.clear_caches()
                print(
                    f"{name:5} {row['runs']:3} runs {precision:9}"
                    f" {1000 * row['seconds_per_round']:9.2f} ms a round"
                    f" {1000 * row['seconds_per_run_and_round']:8.3f} ms a run and round"
                    f" {row['seconds_in_all']:6.1f} s in all",
                    flush=True,
                )
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": versions(), "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()

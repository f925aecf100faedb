"""What a round costs with a thousand clients and with a million: the same.

    python benchmarks/population.py [--rounds 100] [--repeats 31] [--json FILE]

The clients are generated: nothing is stored of them, so what differs could only be the drawing of
cohorts and what is kept of clients. Runs of both populations take turns, and the ratio is the
median over turns: what else the machine does changes more slowly than that. A run is all that
`simulate` does after its program was compiled, cohorts and a test included. Peak memory is that of
a process of its own for each. Exits with 1 where a million costs over 10 % more than a thousand.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import taciturn
from taciturn.core.hashing import bits, fold
from taciturn.models import MLP
from taciturn.report.versions import versions
from taciturn.sim import devices, engine

RESULTS = Path(__file__).parent / "results" / "population.json"
POPULATIONS = (1_000, 1_000_000)
COHORT, EXAMPLES, LIMIT = 10, 100, 1.10


def example(client: Any, index: Any, data: Any) -> dict[str, jax.Array]:
    """A class and its noisy prototype; every client has noise of its own."""
    key = fold(fold(jax.random.key(0), client), index)
    noise = bits(key, (65,))
    label = noise[0] % 10
    return {
        "x": data[label] + noise[1:].astype(jnp.float32) / 2.0**32 - 0.5,
        "y": label.astype(jnp.int32),
    }


def make(population: int) -> taciturn.Task:
    prototypes = np.random.default_rng(0).normal(0, 0.1, (10, 64)).astype(np.float32)
    clients = taciturn.Generated(
        population, EXAMPLES, lambda c, data: EXAMPLES, example, prototypes
    )
    loss, metrics = taciturn.classification(lambda model, x, key: model(x))
    ask = jax.vmap(lambda i: example(10**8, i, jnp.asarray(prototypes)))
    test = jax.tree.map(np.asarray, ask(jnp.arange(1000)))
    return taciturn.Task(
        f"{population:,} clients", clients, lambda key: MLP(key, 64, 64), loss, metrics, test
    )


def play(task: taciturn.Task, rounds: int) -> float:
    """Seconds a round, and a check that something was learned."""
    began = time.perf_counter()
    history = taciturn.simulate(
        task, "adaptive,k=0+ou", rounds=rounds, cohort=COHORT, evaluate_every=rounds
    )
    assert np.isfinite(history.loss[0, -1])
    return (time.perf_counter() - began) / rounds


def memory(population: int, rounds: int) -> dict[str, int]:
    """What a process with this population needs: measured there, see `--only`."""
    command = [sys.executable, __file__, "--only", str(population), "--rounds", str(rounds)]
    return json.loads(subprocess.run(command, check=True, text=True, capture_output=True).stdout)


def only(population: int, rounds: int) -> dict[str, int]:
    programs: list[engine.Program] = []
    original = engine.Program.run
    engine.Program.run = lambda self, *args: (programs.append(self), original(self, *args))[1]  # type: ignore[method-assign]
    play(make(population), rounds)
    return {"program_bytes": devices.bytes_needed(programs[0]._chunk), "process_bytes": peak()}


def peak() -> int:
    """The most memory that this process had; `getrusage` would count its parent's before `exec`."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="rounds in a run")
    parser.add_argument("--repeats", type=int, default=31, help="runs of each that count")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--only", type=int, help="one population, in this process: its memory")
    options = parser.parse_args()
    taciturn.prepare()
    if options.only:
        print(json.dumps(only(options.only, options.rounds)))
        return

    tasks = {population: make(population) for population in POPULATIONS}
    seconds: dict[int, list[float]] = {population: [] for population in POPULATIONS}
    for repeat in range(-2, options.repeats):
        # Which goes first changes from turn to turn.
        for population, task in sorted(tasks.items(), reverse=bool(repeat % 2)):
            took = play(task, options.rounds)
            if repeat >= 0:
                seconds[population].append(took)
    rows = [
        {
            "population": population,
            "seconds_per_round": statistics.median(seconds[population]),
            "seconds_of_runs": seconds[population],
            **memory(population, options.rounds),
        }
        for population in POPULATIONS
    ]
    measures = ("seconds_per_round", "program_bytes", "process_bytes")
    ratios = {name: rows[1][name] / rows[0][name] for name in measures}
    turns = zip(*seconds.values(), strict=True)
    ratios["seconds_per_round"] = statistics.median(million / few for few, million in turns)

    print(f"cohort {COHORT}, {EXAMPLES} examples each, median of {options.repeats} runs "
          f"of {options.rounds} rounds")  # fmt: skip
    print(f"{'clients':>12}{'a round':>12}{'program':>12}{'process, peak':>16}")
    for row in rows:
        print(f"{row['population']:12,}{1000 * row['seconds_per_round']:9.3f} ms"
              f"{row['program_bytes'] / 2**20:8.2f} MiB"
              f"{row['process_bytes'] / 2**20:12.1f} MiB")  # fmt: skip
    print(f"{'ratio':>12}" + "".join(
        f"{ratios[name]:{width}.3f}" for name, width in zip(measures, (12, 12, 16), strict=True)
    ))  # fmt: skip
    result = {"cohort": COHORT, "examples": EXAMPLES, "rounds": options.rounds, "rows": rows,
              "ratios": ratios, "limit": LIMIT, "versions": versions()}  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if all(ratio <= LIMIT for ratio in ratios.values()) else 1)


if __name__ == "__main__":
    main()

"""What cohorts of ten to ten thousand clients cost in memory, with one arm and with twenty.

    python benchmarks/cohort_memory.py [--cohorts 10 100 …] [--arms 1 20] [--json FILE]

The model has four weights and the clients are generated, so that what grows is what the engine
keeps of a cohort: who is asked, and which lane trains whom. Each case runs in a process of its own,
whose peak is compared with that of a process that has only imported the package and started JAX.
Beside it stand the bytes of the arguments that a chunk of rounds is given, of the schedule among
them, and of all that the compiled program uses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import taciturn
from taciturn.core.hashing import bits, fold
from taciturn.report.versions import versions
from taciturn.sim import devices, engine

RESULTS = Path(__file__).parent / "results" / "cohort_memory.json"
COHORTS, ARMS = (10, 100, 1_000, 10_000), (1, 20)
POPULATION, ROWS, ROUNDS, SEED = 1_000_000, 20, 3, 0


def key(client: Any) -> jax.Array:
    return fold(jnp.array([1, 2], jnp.uint32), client)


def example(client: Any, index: Any, data: Any) -> dict[str, jax.Array]:
    drawn = bits(fold(key(client), index), (4,)).astype(jnp.float32) / 2.0**32 - 0.5
    label = drawn @ jnp.array([1.0, -2.0, 0.5, 0.5]) > 0
    return {"x": drawn[:3], "y": label.astype(jnp.int32)}


def make() -> taciturn.Task:
    """Clients of 1 to 20 rows, and logistic regression."""
    clients = taciturn.Generated(
        POPULATION, ROWS, lambda client, data: 1 + key(client)[0] % ROWS, example
    )
    loss, metrics = taciturn.classification(lambda p, x, key: x @ p["w"] + p["b"])
    ask = jax.vmap(lambda i: example(POPULATION, i, ()))
    return taciturn.Task(
        "generated", clients, lambda key: {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}, loss,
        metrics, jax.tree.map(np.asarray, ask(jnp.arange(100))), batch=4,
    )  # fmt: skip


def only(cohort: int, arms: int) -> dict[str, Any]:
    """One case, in this process; a cohort of 0 is what there is before anything runs."""
    if not cohort:
        jax.block_until_ready(jnp.zeros(1) + 1)
        return {"process_bytes": peak()}
    programs: list[engine.Program] = []
    schedules: list[Any] = []
    run, schedule = engine.Program.run, getattr(engine.Program, "_schedule", None)
    engine.Program.run = lambda self, *args: (programs.append(self), run(self, *args))[1]  # type: ignore[method-assign]
    if schedule is not None:
        # A private name, which may go: then its bytes are not told.
        def spy(self: engine.Program, *args: Any) -> Any:
            found = schedule(self, *args)
            schedules.append(sum(a.nbytes for a in jax.tree.leaves(found)))
            return found

        engine.Program._schedule = spy  # type: ignore[method-assign]
    histories = taciturn.compare(
        make(), {f"arm {a}": f"adaptive,k={a / 10}+zero" for a in range(arms)}, rounds=ROUNDS,
        cohort=cohort, seeds=(SEED,), evaluate_every=ROUNDS,
    )  # fmt: skip
    for history in histories.values():
        assert history.spoke[0, 0] == cohort
        assert history.rejected.sum() == 0
    compiled = programs[0]._chunk
    return {
        "lanes": programs[0].lanes,
        "schedule_bytes": max(schedules, default=None),
        "argument_bytes": int(compiled.memory_analysis().argument_size_in_bytes),
        "program_bytes": devices.bytes_needed(compiled),
        "seconds_per_round": float(np.median(histories["arm 0"].seconds)),
        "process_bytes": peak(),
    }


def peak() -> int:
    """The most memory that this process had; `getrusage` would count its parent's before `exec`."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def measure(cohort: int, arms: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", str(cohort), str(arms)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        # As after the kernel ended it for want of memory: the other cases go on.
        lines = done.stderr.strip().splitlines()
        return {"failed": done.returncode, "message": lines[-1] if lines else ""}
    return json.loads(done.stdout)


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cohorts", type=int, nargs="+", default=COHORTS)
    parser.add_argument("--arms", type=int, nargs="+", default=ARMS)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--only", type=int, nargs=2, metavar=("COHORT", "ARMS"),
                        help="one case, in this process")  # fmt: skip
    options = parser.parse_args()
    if options.only:
        print(json.dumps(only(*options.only)))
        return

    empty = measure(0, 0)["process_bytes"]
    rows = []
    for arms in options.arms:
        for cohort in options.cohorts:
            found = measure(cohort, arms)
            if "failed" not in found:
                found["grown_bytes"] = found["process_bytes"] - empty
            rows.append({"arms": arms, "cohort": cohort, **found})
            print(f"{arms} arms, cohort {cohort:,}: done", file=sys.stderr)
    result = {
        "population": POPULATION, "rows_at_most": ROWS, "rounds": ROUNDS, "seeds": [SEED],
        "empty_process_bytes": empty, "rows": rows, "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"MiB; a process that runs nothing has {mebibytes(empty)}")
    heads = {"arms": 5, "cohort": 8, "lanes": 7, "schedule": 10, "program": 9, "process grew": 14}
    print("".join(f"{head:>{width}}" for head, width in heads.items()))
    for row in rows:
        if "failed" in row:
            print(f"{row['arms']:5}{row['cohort']:8,}  failed with {row['failed']}")
            continue
        print(f"{row['arms']:5}{row['cohort']:8,}{row['lanes']:7,}"
              f"{mebibytes(row['schedule_bytes']):>10}{mebibytes(row['program_bytes']):>9}"
              f"{mebibytes(row['grown_bytes']):>14}")  # fmt: skip
    sys.exit(1 if any("failed" in row for row in rows) else 0)


if __name__ == "__main__":
    main()

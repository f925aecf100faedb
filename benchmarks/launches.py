"""What a round launches on a GPU, counted in programs compiled for an H200 that need not be there.

    pip install "jax[cuda12]"                        # XLA's compiler for NVIDIA's GPUs
    python benchmarks/launches.py                    # the rounds of the peers benchmark
    python benchmarks/launches.py --source DIR       # those of another checkout of Taciturn

Small models wait for launches. Kernels, copies and calls of libraries are counted in each loop of
the program: per round, per end (when a client has finished, and its update is heard) and per local
step, which all lanes take together. Nothing runs, so this tells no times: it shows what a change
adds to a round or takes from it. Kernels are not tuned, as they are where there is a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "launches_nvidia_h200.json"
# What XLA wants to know of a GPU, as NVIDIA has it in the H200's data sheet.
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448  core_count: 132  fpus_per_core: 128
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  clock_rate_ghz: 1.98
  device_memory_size: 151397597184  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
}
platform_name: "CUDA"  dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""
PROGRAMS = ("cnn:1", "cnn:35", "lstm:1", "lstm:35")
LOOPS = ("round", "end", "step")  # from the outermost to the innermost that is not part of a step
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}  # launch nothing


class Compiled(Exception):
    """Carries a program out of the simulation that would have run it."""


def main() -> int:
    options = _arguments()
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    source = options.source.resolve()
    sys.path[:0] = [str(source / "src"), str(source / "benchmarks" / "peers")]
    found = {}
    for name in options.programs:
        task, runs = name.split(":")
        text, lanes = compiled(task, int(runs), options.precision)
        found[name] = one = count(text) | {"lanes": lanes}
        launches = ", ".join(f"{one[loop]} per {loop}" for loop in LOOPS)
        print(f"{name}, {lanes} lanes: {launches}", flush=True)
    from common import versions

    content = {
        "device": "compiled for NVIDIA H200",
        "versions": versions("jax", "jaxlib", "jax-cuda12-plugin", "optax", "equinox", "numpy"),
        "precision": options.precision,
        "programs": found,
    }
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def compiled(task: str, runs: int, precision: str) -> tuple[str, int]:
    """The rounds of a task of the peers benchmark as XLA's text, and the number of lanes."""
    import common
    import jax
    import taciturn_side as side
    from jax.experimental import topologies

    import taciturn
    from taciturn.sim import devices, engine

    gpu = topologies.get_topology_desc("", "cuda", topology="1x1x1", target_config=H200)
    mesh = jax.sharding.Mesh(np.array(gpu.devices), ("lanes",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def on_gpu(self: Any) -> Any:
        """The program's rounds: of the program itself in checkouts before `sim/rounds.py`."""
        rounds = getattr(self, "rounds", self)
        rounds.on_cpu = False
        return rounds

    def choose_lanes(self: Any, *arguments: Any) -> int:
        on_gpu(self)
        return chosen(self, *arguments)

    def compile_only(self: Any, arguments: Any, *_: Any) -> None:
        rounds = on_gpu(self)
        rounds.mesh = mesh
        forms = jax.tree.map(
            lambda a: (
                jax.ShapeDtypeStruct(np.shape(a), np.result_type(a), sharding=everywhere)
                if not isinstance(a, jax.Array)
                else jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere)
            ),
            arguments,
        )
        train = getattr(rounds, "train", None) or rounds._rounds
        program = jax.jit(train, donate_argnums=0, out_shardings=everywhere).lower(*forms).compile()
        raise Compiled(program.as_text(), self.lanes)

    jax.devices()  # the CPU, before models are told that there is a GPU
    chosen = engine.Program._choose_lanes
    engine.Program._choose_lanes = choose_lanes
    engine.Program._compile = compile_only
    jax.default_backend, devices.memory = lambda: "gpu", lambda: 139 * 2**30
    folder = ROOT / ".peers" / "data"
    if not (folder / f"{task}.npz").exists():
        common.make_data(folder, os.environ.get("TACITURN_DATA"))
    arms = side.ARMS[: max(1, runs // side.SEEDS)]
    seeds = range(runs // len(arms))
    try:
        taciturn.compare(
            side.make_task(task, common.load_data(folder, task), True),
            {arm: arm for arm in arms},
            rounds=50, evaluate_every=50, seeds=seeds, cohort=common.COHORT,
            precision=precision,
        )  # fmt: skip
    except Compiled as found:
        return found.args[0], found.args[1]
    finally:
        engine.Program._choose_lanes = chosen
    raise SystemExit("nothing was compiled")


def count(text: str) -> dict[str, int]:
    """Launches of each of `LOOPS`; those of loops inside a step count as often as these turn."""
    bodies = dict(_computations(text))
    found, inner = {}, _loops(bodies["ENTRY"])
    for loop in LOOPS:
        (body, _), = inner  # fmt: skip
        inner = _loops(bodies[body])
        found[loop] = _launches(bodies[body])
    found["step"] += sum(turns * _launches(bodies[body]) for body, turns in inner)
    return found


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
    """The computations of a program by name, the one that is called as ENTRY."""
    for head, lines in re.findall(r"^(ENTRY |%[\w.\-]+)[^\n]*\{\n(.*?)^\}", text, re.M | re.S):
        yield head.strip().lstrip("%"), lines.splitlines()


def _launches(lines: list[str]) -> int:
    """How many instructions of a computation are work of their own."""
    operations = [
        re.match(r"\s*(?:ROOT )?%\S+ = (?:\(.*?\)|\S+) ([\w\-]+)\(", each) for each in lines
    ]
    return sum(found is not None and found[1] not in FREE | {"while"} for found in operations)


def _loops(lines: list[str]) -> list[tuple[str, int]]:
    """The bodies of a computation's loops, and how often each turns; 0 where that depends."""
    loops = []
    for line in lines:
        if found := re.search(r" while\(.*body=%([\w.\-]+)", line):
            turns = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            loops.append((found[1], int(turns[1]) if turns else 0))
    return loops


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS, metavar="TASK:RUNS",
        help=f"of {', '.join(PROGRAMS)}; all by default",
    )  # fmt: skip
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--source", type=Path, default=ROOT, help="another checkout of Taciturn")
    parser.add_argument("--json", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""What wrapper and mod cost beside plain FedAvg, in Flower's in-process path.

    python benchmarks/flower_overhead.py [--weights 50e6] [--nodes 10] [--rounds 5] [--json FILE]

Both strategies get the replies of the same synthetic clients, in the same process, turn by turn.
A round's server time is `configure_train` + `aggregate_train`; its median over rounds is shown.
Memory is what a process holds at its peak, replies included, each strategy in one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity

from laconic.flower import Laconic, speak

FLOWER_LOGGER.setLevel("ERROR")
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
LAYERS = 24  # as many arrays of equal size; the time hardly depends on it


class Nodes:
    """The part of a Grid that a strategy needs to sample."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_node_ids(self) -> list[int]:
        return list(range(self.count))


class Federation:
    """A model and nodes that move it, every second one by little."""

    def __init__(self, weights: int, nodes: int) -> None:
        draws = np.random.default_rng(0)
        sizes = [weights // LAYERS + (i < weights % LAYERS) for i in range(LAYERS)]
        layers = [Array(draws.standard_normal(size, np.float32)) for size in sizes]
        self.arrays = ArrayRecord({f"layer{i}": x for i, x in enumerate(layers)})
        self.grid = Nodes(nodes)
        # Between the norms of those that move little and the others.
        self.threshold = float(0.035 * np.sqrt(weights))

    def strategy(self, name: str) -> FedAvg | Laconic:
        inner = FedAvg(fraction_evaluate=0.0)
        policies = {"all speak": "full+ou", "half silent": f"fixed:{self.threshold:g}+ou"}
        return inner if name == "FedAvg" else Laconic(inner, policies[name])

    def train(self, message: Message, _: Context | None) -> Message:
        k = message.metadata.dst_node_id
        step = np.float32(0.02 * (1 + k % 2) + 0.001 * k)
        arrays = {name: Array(array.numpy() + step) for name, array in self.arrays.items()}
        metrics = MetricRecord({"num-examples": 100 + k})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    def round(self, strategy: FedAvg | Laconic, t: int) -> tuple[float, float, float, ArrayRecord]:
        """Server seconds, those of processors, a mod's mean seconds and the model of one round."""
        began, burnt = time.perf_counter(), time.process_time()
        messages = list(strategy.configure_train(t, self.arrays, ConfigRecord(), self.grid))
        server, busy = time.perf_counter() - began, time.process_time() - burnt
        mod, replies = 0.0, []
        for message in messages:
            reply = self.train(message, None)
            if isinstance(strategy, Laconic):
                began = time.perf_counter()
                reply = speak()(message, None, lambda *_, reply=reply: reply)
                mod += time.perf_counter() - began
            replies.append(reply)
        del reply
        began, burnt = time.perf_counter(), time.process_time()
        arrays, _ = strategy.aggregate_train(t, replies)
        server += time.perf_counter() - began
        busy += time.process_time() - burnt
        return server, busy, mod / len(messages), arrays


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def peak(name: str, weights: int, nodes: int) -> int:
    """Bytes that the process holds at its peak over three rounds, beyond the first model."""
    federation = Federation(weights, nodes)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
    strategy = federation.strategy(name)
    for t in range(1, 4):
        federation.round(strategy, t)
    return status("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=float, default=50e6)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    weights, nodes = int(options.weights), options.nodes
    if options.peak:
        print(peak(options.peak, weights, nodes))
        return
    names = ("FedAvg", "all speak", "half silent")
    peaks = {}
    for name in names:
        command = [sys.executable, __file__, "--peak", name, "--weights", str(weights),
                   "--nodes", str(nodes)]  # fmt: skip
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    federation = Federation(weights, nodes)
    strategies = {name: federation.strategy(name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    mods: dict[str, list[float]] = {name: [] for name in names}
    for t in range(1, options.rounds + 2):
        models = {}
        for name, strategy in strategies.items():
            server, cpu, mod, models[name] = federation.round(strategy, t)
            if t > 1:  # the first round warms up
                times[name].append(server)
                busy[name].append(cpu)
                mods[name].append(mod)
        for layer, array in models["FedAvg"].items():  # both sides must give the same answer
            np.testing.assert_allclose(
                models["all speak"][layer].numpy(), array.numpy(), rtol=0, atol=1e-6
            )
    rows = []
    for name in names:
        server, base = statistics.median(times[name]), statistics.median(times["FedAvg"])
        rows.append({
            "strategy": name if name == "FedAvg" else f"Laconic(FedAvg), {name}",
            "server_s": server, "overhead_share": server / base - 1,
            "processor_s": statistics.median(busy[name]),
            "mod_s": statistics.median(mods[name]),
            "peak_bytes": peaks[name],
            "extra_models": (peaks[name] - peaks["FedAvg"]) / (4 * weights),
        })  # fmt: skip
    load = os.getloadavg()[0]
    print(f"{nodes} nodes, {weights:,} weights, median of {options.rounds} rounds, "
          f"{os.cpu_count()} cores, load {load:.1f}\n")  # fmt: skip
    print(
        f"{'strategy':<32}{'server':>10}{'overhead':>10}{'processors':>12}{'mod':>9}{'memory':>12}{'extra':>15}"
    )
    for row in rows:
        print(f"{row['strategy']:<32}{row['server_s']:>8.2f} s{row['overhead_share']:>+10.1%}"
              f"{row['processor_s']:>10.2f} s"
              f"{row['mod_s']:>7.3f} s{row['peak_bytes'] / 2**20:>8.0f} MiB"
              f"{row['extra_models']:>+8.2f} models")  # fmt: skip
    if options.json:
        versions = {name: version(name) for name in ("flwr", "laconic", "numpy")}
        about = {"device": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                 "load": load,
                 "python": platform.python_version(), "versions": versions,
                 "weights": weights, "nodes": nodes, "rounds": options.rounds,
                 "rows": rows}  # fmt: skip
        options.json.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()

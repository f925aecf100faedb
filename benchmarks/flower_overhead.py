"""What wrapper and mod cost beside plain FedAvg, in Flower's in-process path.

    python benchmarks/flower_overhead.py [--weights 50e6] [--nodes 10] [--rounds 5] [--turns 3]
                                         [--wire] [--json FILE]
    python benchmarks/flower_overhead.py --sizing    # the table in docs/operations.md; 8 GiB

Every strategy has a process of its own that plays its rounds one after another, as servers do: in
one, each would find the memory as the others left it. Strategies take turns, with the replies of
the same synthetic clients, and the median over all rounds is shown.

A round's server time is `configure_train` + `aggregate_train`: in process, as in Flower's
simulation, messages are handed over as objects and a server does no more. `aggregate_train`
includes reading the arrays from their bytes and writing the new model's. The time ends when the
replies' memory is given back: FedAvg leaves that to its caller, which does it before the next
round, and Taciturn does it itself, to need less.

With `--wire` a round's server time also has what a ServerApp does around these two calls when its
clients are elsewhere, in `HttpGrid`'s own steps: the instructions are hashed and written as
protobuf, each array once, and the replies read from theirs. Hashing and writing of replies, which
clients do, is not timed, and there is no network. It is the same code for all strategies, but a
silent reply has little to read.

ServerMemory is what a process holds at its peak, replies included.
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
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import PullObjectResponse, PushObjectRequest
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import RESULTS, ROOT, put

from taciturn.files import atomic_write
from taciturn.flower import Taciturn, speak
from taciturn.report.versions import versions

FLOWER_LOGGER.setLevel("ERROR")
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
LAYERS = 24  # as many arrays of equal size; the time hardly depends on it
# Silent is whose update has at most this length a weight.
SILENT = {"all speak": None, "one silent": 0.021, "half silent": 0.035}
NAMES = ("FedAvg", *SILENT, "default")
SIZES = (1_000_000, 22_600_000, 138_000_000)
SIZED = {"FedAvg": "FedAvg", "default": "default", "half silent": "half silent, `ou`"}


class Nodes:
    """The part of a Grid that a strategy needs to sample."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_node_ids(self) -> list[int]:
        return list(range(self.count))


class Clock:
    """Wall and processor seconds of all that was done `with` it."""

    def __init__(self) -> None:
        self.wall = self.busy = 0.0

    def __enter__(self) -> None:
        self.wall -= time.perf_counter()
        self.busy -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter()
        self.busy += time.process_time()


class Federation:
    """A model and nodes that move it, every second one by little."""

    def __init__(self, weights: int, nodes: int, wire: bool) -> None:
        draws = np.random.default_rng(0)
        sizes = [weights // LAYERS + (i < weights % LAYERS) for i in range(LAYERS)]
        layers = [Array(draws.standard_normal(size, np.float32)) for size in sizes]
        self.arrays = ArrayRecord({f"layer{i}": x for i, x in enumerate(layers)})
        self.grid = Nodes(nodes)
        self.weights, self.wire = weights, wire

    def strategy(self, name: str) -> FedAvg | Taciturn:
        inner = FedAvg(fraction_evaluate=0.0)
        if name == "FedAvg":
            return inner
        if name == "default":
            return Taciturn(inner)
        step = SILENT[name]
        rule = "full" if step is None else f"fixed:{step * np.sqrt(self.weights):g}"
        return Taciturn(inner, f"{rule}+ou")

    def train(self, message: Message, _: Context | None) -> Message:
        k = message.metadata.dst_node_id
        step = np.float32(0.02 * (1 + k % 2) + 0.001 * k)
        arrays = {name: Array(array.numpy() + step) for name, array in self.arrays.items()}
        metrics = MetricRecord({"num-examples": 100 + k})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    def check(self, arrays: ArrayRecord) -> None:
        """Raises unless the model is the mean of what all nodes made of it."""
        examples = np.array([100 + k for k in self.grid.get_node_ids()])
        steps = np.array([0.02 * (1 + k % 2) + 0.001 * k for k in self.grid.get_node_ids()])
        step = np.float32(examples @ steps / examples.sum())
        for name, array in self.arrays.items():
            np.testing.assert_allclose(arrays[name].numpy(), array.numpy() + step, atol=2e-6)

    def round(self, strategy: FedAvg | Taciturn, t: int) -> tuple[Clock, Clock, ArrayRecord]:
        """What a round took the server and all mods, and the model that came of it."""
        server, mod = Clock(), Clock()
        # Arrays that were written once know their hashes: each round sends new ones.
        sent = ArrayRecord({name: copy(array) for name, array in self.arrays.items()})
        with server:
            messages = list(strategy.configure_train(t, sent, ConfigRecord(), self.grid))
            if self.wire:
                write(messages)
        replies = []
        for message in messages:
            reply = self.train(message, None)
            if isinstance(strategy, Taciturn):
                with mod:
                    reply = speak()(message, None, lambda *_, reply=reply: reply)
            if self.wire:
                name, came = reply.object_id, written(reply)
                del reply
                with server:
                    reply = read(name, came)
                del came
            replies.append(reply)
            del reply
        with server:
            arrays, _ = strategy.aggregate_train(t, replies)
            del replies
        return server, mod, arrays


def copy(array: Array) -> Array:
    """The same bytes in another object."""
    return Array(array.dtype, array.shape, array.stype, array.data)


def write(messages: list[Message]) -> None:
    """What `HttpGrid.push_messages` does before it sends."""
    objects: dict[str, Any] = {}
    with no_object_id_recompute():
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            objects.update(get_all_nested_objects(message))
            get_object_tree(message).SerializeToString()
        while objects:  # all have the same arrays, which are sent once
            name, item = objects.popitem()
            PushObjectRequest(object_id=name, object_content=item.deflate()).SerializeToString()


def written(reply: Message) -> dict[str, bytes]:
    """What `HttpGrid` is sent for a reply."""
    with no_object_id_recompute():
        return {
            name: PullObjectResponse(
                object_found=True, object_available=True, object_content=item.deflate()
            ).SerializeToString()
            for name, item in get_all_nested_objects(reply).items()
        }


def read(name: str, came: dict[str, bytes]) -> Message:
    """What `HttpGrid.pull_messages` does with it."""
    contents = {
        key: PullObjectResponse.FromString(came.pop(key)).object_content for key in list(came)
    }
    reply = inflate_object_from_contents(name, contents)
    assert isinstance(reply, Message)
    return reply


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def play(name: str, federation: Federation, rounds: int) -> None:
    """Rounds of one strategy; a line with its clocks and the peak of memory for each.

    The peak is what the process holds beyond the first model.
    """
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
    strategy = federation.strategy(name)
    for t in range(1, rounds + 2):
        server, mod, arrays = federation.round(strategy, t)
        if name in ("FedAvg", "all speak"):  # both sides must give the same answer
            federation.check(arrays)
        found = {"wall": server.wall, "busy": server.busy, "mod": mod.wall,
                 "peak": status("VmHWM") - before}  # fmt: skip
        print(json.dumps(found), flush=True)


def measure(
    weights: int, nodes: int, wire: bool, rounds: int, turns: int, names: Sequence[str] = NAMES
) -> dict[str, list[dict[str, Any]]]:
    """What `play` says of every round of every strategy but the first ones, which warm up."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(turns):
        for name in names:
            command = [sys.executable, __file__, "--play", name, "--weights", str(weights),
                       "--nodes", str(nodes), "--rounds", str(rounds),
                       *(["--wire"] if wire else [])]  # fmt: skip
            played = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[name] += [json.loads(line) for line in played.stdout.splitlines()][1:]
    return found


def sizing(nodes: int, rounds: int, turns: int) -> None:
    """Measures what a server needs for models of three sizes, and writes the table."""
    found = []
    for weights in SIZES:
        for name, seen in measure(weights, nodes, True, rounds, turns, SIZED).items():
            found.append({
                "strategy": name, "weights": weights, "nodes": nodes,
                "server_s": statistics.median(row["wall"] for row in seen),
                "peak_bytes": max(row["peak"] for row in seen),
                "seconds": [row["wall"] for row in seen],
            })  # fmt: skip
    about = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "versions": versions()}
    with atomic_write(RESULTS / "server_sizing.json") as file:
        file.write(json.dumps(about | {"rows": found}, indent=1) + "\n")
    rows = [
        "| weights | server | a round | memory | per node and million weights |",
        "|---" * 5 + "|",
    ]
    for row in found:
        per = row["nodes"] * row["weights"] / 1e6
        rows.append(
            f"| {row['weights'] / 1e6:.3g} million | {SIZED[row['strategy']]} | "
            f"{row['server_s']:.2f} s | {row['peak_bytes'] / 1e9:.2f} GB | "
            f"{1e3 * row['server_s'] / per:.1f} ms, {row['peak_bytes'] / 1e6 / per:.1f} MB |"
        )
    put(ROOT / "docs" / "operations.md", "sizing", "\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=float, default=50e6)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5, help="of a strategy in one turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--wire", action="store_true", help="write and read messages as well")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizing", action="store_true", help="models of three sizes, as messages")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    options = parser.parse_args()
    weights, nodes, wire = int(options.weights), options.nodes, options.wire
    if options.play:
        play(options.play, Federation(weights, nodes, wire), options.rounds)
        return
    if options.sizing:
        sizing(nodes, options.rounds, options.turns)
        return
    load = os.getloadavg()[0]
    found = measure(weights, nodes, wire, options.rounds, options.turns)
    median = {name: {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}
              for name, rounds in found.items()}  # fmt: skip
    base, peak = median["FedAvg"]["wall"], found["FedAvg"][-1]["peak"]
    rows = []
    for name, rounds in found.items():
        rows.append({
            "strategy": name if name == "FedAvg" else f"Taciturn(FedAvg), {name}",
            "server_s": median[name]["wall"],
            "overhead_share": median[name]["wall"] / base - 1,
            "processor_s": median[name]["busy"],
            "mod_s": median[name]["mod"] / nodes,
            "peak_bytes": rounds[-1]["peak"],
            "extra_models": (rounds[-1]["peak"] - peak) / (4 * weights),
            "seconds": [row["wall"] for row in rounds],
        })  # fmt: skip
    print(f"{nodes} nodes, {weights:,} weights, "
          f"median of {options.turns} × {options.rounds} rounds, "
          f"{'messages written and read' if wire else 'in process'}, "
          f"{os.cpu_count()} cores, load {load:.1f}\n")  # fmt: skip
    print(f"{'strategy':<32}{'server':>10}{'overhead':>10}{'processors':>12}{'mod':>9}"
          f"{'memory':>12}{'extra':>15}")  # fmt: skip
    for row in rows:
        print(f"{row['strategy']:<32}{row['server_s']:>8.2f} s{row['overhead_share']:>+10.1%}"
              f"{row['processor_s']:>10.2f} s"
              f"{row['mod_s']:>7.3f} s{row['peak_bytes'] / 2**20:>8.0f} MiB"
              f"{row['extra_models']:>+8.2f} models")  # fmt: skip
    if options.json:
        installed = {name: version(name) for name in ("flwr", "taciturn", "numpy")}
        about = {"device": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                 "load": load,
                 "python": platform.python_version(), "versions": installed,
                 "weights": weights, "nodes": nodes, "rounds": options.rounds,
                 "turns": options.turns, "wire": wire,
                 "rows": rows}  # fmt: skip
        options.json.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""What the limits against bad nodes cost a federation in which all are honest, and unlike.

    python benchmarks/honest_limits.py [--tasks synthetic-niid glyphs] [--nodes 12] [--rounds 30]
                                       [--seeds 3] [--jobs N] [--json FILE]

The clients of a task are the nodes of a federation with Flower's strategies in one process; all are
asked in every round. Every policy is played with the limits on weight and length that are
the default, and without. Counted are replies of honest nodes whose updates were made shorter or
that weighed less, those of the silent too, as shares of all; accuracy is that on the task's test
data, on average over the last five rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import RESULTS, commit

import taciturn
from taciturn.federation import client
from taciturn.flower import Taciturn, speak
from taciturn.flower.strategy import DEFAULT
from taciturn.settings import Settings
from taciturn.sim import draws
from taciturn.sim.defaults import fill_in
from taciturn.sim.model import flat_model
from taciturn.sim.reference import Trainer
from taciturn.tasks.task import with_test

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
FILE = RESULTS / "honest_limits.json"
POLICIES = (
    DEFAULT, "adaptive,robust=true,at_most=10+ou,cap=true",
    "adaptive,k=0,robust=true,at_most=10+ignore", "random:0.5+ignore",
)  # fmt: skip
TASKS = {"synthetic-niid": "clients", "glyphs": "population"}  # and what says how many there are
FREE = {"weight_limit": None, "norm_limit": None}


class Counter(logging.Handler):
    """Counts the lines that say that a reply was limited."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.shortened = self.lightened = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.shortened += "too long beside the upper quartile" in record.msg
        self.lightened += "too much beside the median" in record.msg


class Federation:
    """The nodes of a task."""

    def __init__(self, task: str, nodes: int) -> None:
        self.task, self.nodes = taciturn.load(task, **{TASKS[task]: nodes}), nodes
        self.model = flat_model(self.task)
        self.clients, _ = with_test(self.task)
        settings = fill_in(Settings(cohort=nodes), self.task, plain=True)
        self.trainer = Trainer(self.task, self.model, self.clients, settings)

    def get_node_ids(self) -> list[int]:
        """All that a strategy needs of a Grid to sample."""
        return list(range(self.nodes))

    def train(self, message: Message, t: int, keys: draws.RoundKeys) -> Message:
        k = message.metadata.dst_node_id
        weights = message.content["arrays"]["w"].numpy()
        client = np.array([k], np.int32)
        trained, _ = self.trainer(weights, client[0], k, keys, t)
        examples = float(self.clients.examples_of(client)[0])
        metrics = MetricRecord({"num-examples": examples})
        content = RecordDict({"arrays": _record(trained), "metrics": metrics})
        return Message(content, reply_to=message)

    def play(self, strategy: Taciturn, rounds: int, seed: int) -> tuple[list[float], Counter]:
        """The accuracy after each round, and what was limited."""
        keys, coin, mod = draws.run_keys(seed), np.random.default_rng(seed), speak()
        client._uniform = lambda: float(coin.random())  # of the system's entropy otherwise
        contexts = [Context(0, k, {}, RecordDict(), {}) for k in range(self.nodes)]
        arrays, accuracies = _record(np.asarray(self.model.init(keys.init))), []
        counter = Counter()
        FLOWER_LOGGER.addHandler(counter)
        for t in range(rounds):
            round_keys = draws.round_keys(keys, t)
            asked = strategy.configure_train(t + 1, arrays, ConfigRecord(), self)
            replies = [
                mod(message, contexts[message.metadata.dst_node_id],
                    lambda message, _, t=t, now=round_keys: self.train(message, t, now))
                for message in sorted(asked, key=lambda message: message.metadata.dst_node_id)
            ]  # fmt: skip
            arrays = strategy.aggregate_train(t + 1, replies)[0] or arrays
            accuracies.append(taciturn.evaluate(self.task, arrays["w"].numpy())["accuracy"])
        FLOWER_LOGGER.removeHandler(counter)
        return accuracies, counter


def _record(weights: np.ndarray) -> ArrayRecord:
    return ArrayRecord({"w": Array(weights.astype(np.float32))})


def measure(
    nodes: int, rounds: int, seeds: int, case: tuple[str, str, dict[str, None]]
) -> dict[str, Any]:
    """Accuracy, and shares of all replies, over seeds: of a task, a policy, and limits."""
    FLOWER_LOGGER.handlers[0].setLevel("CRITICAL")
    task, policy, limits = case
    federation = Federation(task, nodes)
    accuracies, counted, spoke = [], np.zeros(2), 0
    for seed in range(seeds):
        inner = FedAvg(fraction_evaluate=0.0)
        strategy = Taciturn(inner, policy, seed=0, **limits)
        found, counter = federation.play(strategy, rounds, seed)
        accuracies.append(float(np.mean(found[-5:])))
        counted += (counter.shortened, counter.lightened)
        spoke += sum(row["spoke"] for row in strategy.history)
    asked = seeds * rounds * federation.nodes
    shortened, lightened = (counted / asked).round(4).tolist()
    return {"accuracy": np.round(accuracies, 4).tolist(), "spoke": round(spoke / asked, 4),
            "shortened": shortened, "lightened": lightened}  # fmt: skip


def table(found: dict[str, Any]) -> str:
    lines = ["| task | policy | spoke | made shorter | weighed less | accuracy | without limits |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in found["rows"]:
        own, free = row["limits"], row["free"]
        lines.append(
            f"| {row['task']} | `{row['policy']}` | {own['spoke']:.0%} | {own['shortened']:.1%} | "
            f"{own['lightened']:.1%} | {np.mean(own['accuracy']):.1%} | "
            f"{np.mean(free['accuracy']):.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", type=Path, default=FILE)
    options = parser.parse_args()
    cases = [*itertools.product(options.tasks, POLICIES, ({}, FREE))]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        found = [*pool.map(partial(measure, options.nodes, options.rounds, options.seeds), cases)]
        both = zip(cases[::2], zip(found[::2], found[1::2], strict=True), strict=True)
        rows = [{"task": task, "policy": policy, "limits": limits, "free": free}
                for (task, policy, _), (limits, free) in both]  # fmt: skip
    found = {"nodes": options.nodes, "rounds": options.rounds, "seeds": options.seeds,
             "commit": commit(),
             "versions": {name: version(name) for name in ("flwr", "jax", "numpy")},
             "machine": platform.machine(), "rows": rows}  # fmt: skip
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()

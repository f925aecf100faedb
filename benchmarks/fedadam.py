"""What a codec's noise in FedAdam's second moments costs, with and without its correction.

    python benchmarks/fedadam.py [--seeds 4 5 6] [--jobs N] [--json FILE]

Eight nodes with handwritten digits (scikit-learn's, 8 × 8), unevenly by label, and a perceptron of
19,000 weights, for 20 rounds of ten local steps: so short a run that steps that are too small show.
Accuracy is the mean of the last five rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # every process has a core of its own

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.task_identity import TaskIdentity
from pages import RESULTS, commit
from sklearn.datasets import load_digits

from taciturn.federation import aggregation
from taciturn.flower import Taciturn, speak

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
NODES, ROUNDS, STEPS, BATCH, RATE, TESTED = 8, 20, 10, 32, np.float32(0.1), 400
SHAPES = ((64, 256), (256,), (256, 10), (10,))
POLICY = "budget:0.3%"
ARMS = {"plain": None, "noise kept": 0.0, "noise left out": aggregation._MOST_NOISE}


class Federation:
    """All nodes, as a Grid that trains them."""

    def __init__(self, quiet: bool, seed: int) -> None:
        self.quiet, self.mod, self.draws = quiet, speak(), np.random.default_rng(seed)
        x, y = load_digits(return_X_y=True)
        order = self.draws.permutation(len(x))
        self.x, self.y = (x[order] / 16).astype("f4"), y[order]
        shares = self.draws.dirichlet(np.full(NODES, 0.5), 10)  # of each label
        draws = self.draws.random(len(x))
        self.owner = (draws[:, None] > shares.cumsum(1)[self.y, :-1]).sum(1)
        self.owner[:TESTED] = -1
        self.contexts = [Context(0, k, {}, RecordDict(), {}) for k in range(NODES)]

    def start(self) -> ArrayRecord:
        """Matrices drawn as He et al. do, and zeros."""
        drawn = [self.draws.standard_normal(shape) * np.sqrt(2 / shape[0]) if len(shape) == 2
                 else np.zeros(shape) for shape in SHAPES]  # fmt: skip
        return _record(drawn)

    def get_node_ids(self) -> list[int]:
        """Those with a batch."""
        return [k for k in range(NODES) if (self.owner == k).sum() >= BATCH]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: Any = None
    ) -> list[Message]:
        return [self._answer(message) for message in
                sorted(messages, key=lambda message: message.metadata.dst_node_id)]  # fmt: skip

    def _answer(self, message: Message) -> Message:
        k = message.metadata.dst_node_id
        if self.quiet:
            return self.mod(message, self.contexts[k], self._train)
        return self._train(message, self.contexts[k])

    def _train(self, message: Message, context: Context) -> Message:
        own = np.flatnonzero(self.owner == message.metadata.dst_node_id)
        weights = _arrays(message.content["arrays"])
        for _ in range(STEPS):
            rows = self.draws.choice(own, BATCH)
            slopes = _slopes(weights, self.x[rows], self.y[rows])
            weights = [w - RATE * slope for w, slope in zip(weights, slopes, strict=True)]
        metrics = MetricRecord({"num-examples": len(own)})
        content = RecordDict({"arrays": _record(weights), "metrics": metrics})
        return Message(content, reply_to=message)

    def accuracy(self, arrays: ArrayRecord) -> float:
        _, logits = _forward(_arrays(arrays), self.x[:TESTED])
        return float((logits.argmax(1) == self.y[:TESTED]).mean())


def _forward(weights: list[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    return hidden, hidden @ weights[2] + weights[3]


def _slopes(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The gradient of the mean cross-entropy."""
    hidden, logits = _forward(weights, x)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ weights[2].T) * (hidden > 0)
    return [x.T @ back, back.sum(0), hidden.T @ p, p.sum(0)]


def _record(weights: list[np.ndarray]) -> ArrayRecord:
    return ArrayRecord({f"{i}": Array(w.astype("f4")) for i, w in enumerate(weights)})


def _arrays(record: ArrayRecord) -> list[np.ndarray]:
    return [array.numpy() for array in record.values()]


def play(case: tuple[float, int, str]) -> float:
    """The accuracy of a rate of the server's, a seed and an arm."""
    (eta, seed, arm), found = case, []
    FLOWER_LOGGER.setLevel("CRITICAL")
    strategy, federation = FedAdam(fraction_evaluate=0.0, eta=eta), Federation(arm != "plain", seed)
    if arm != "plain":
        aggregation._MOST_NOISE = ARMS[arm]
        strategy = Taciturn(strategy, POLICY, seed=seed)

    def evaluate(round: int, arrays: ArrayRecord) -> None:
        found.append(federation.accuracy(arrays))

    strategy.start(federation, federation.start(), num_rounds=ROUNDS, evaluate_fn=evaluate)
    return round(float(np.mean(found[-5:])), 4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[4, 5, 6])
    parser.add_argument("--rates", nargs="*", type=float, default=[0.01, 0.03])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", type=Path, default=RESULTS / "fedadam.json")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = []
        for eta, arm in itertools.product(options.rates, ARMS):
            cases = [(eta, seed, arm) for seed in options.seeds]
            row = {"eta": eta, "arm": arm, "accuracy": [*pool.map(play, cases)]}
            print(json.dumps(row), flush=True)
            rows.append(row)
    found = {"nodes": NODES, "rounds": ROUNDS, "policy": POLICY, "seeds": options.seeds,
             "commit": commit(),
             "versions": {name: version(name) for name in ("flwr", "numpy", "scikit-learn")},
             "rows": rows}  # fmt: skip
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

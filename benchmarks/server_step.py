"""What the estimator costs the server: a round with `ou` beside a round with `zero`.

A round is ten messages that all speak, each checked against its norm and added to the sum, and
the server's step; as in a federation, sum, memory and weights are written over. At 138 million
weights (VGG-16) a round with `ou` may take twice the time of one with `zero`, with four arrays of
the model's size kept.

    python benchmarks/server_step.py                  # 6 GiB of memory, some minutes on two cores
    python benchmarks/server_step.py --size 1000000   # a moment

Rounds of both kinds take turns and medians are compared: on a busy machine only the ratio counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.core import server, tally
from taciturn.core.arrays import BLOCK, add_scaled, norm, zeros
from taciturn.core.codecs import float32
from taciturn.core.policy import Policy, parse
from taciturn.core.tally import Message
from taciturn.files import atomic_write
from taciturn.report.versions import versions

RESULTS = Path(__file__).parent / "results" / "server_step.json"
SIZE, MESSAGES = 138_357_544, 10
LIMIT = 2.0
POLICIES = {name: parse(f"full+{name}") for name in ("zero", "ou")}

Round = Callable[[Any, list[Message]], Any]


def messages(size: int) -> list[Message]:
    """Ten messages from two buffers: memory for ten would only be in the way."""
    rng = np.random.default_rng(0)
    updates = []
    for _ in range(2):
        update = rng.standard_normal(size, dtype=np.float32)
        update *= np.float32(1e-3)
        updates.append(update)
    norms = [float(norm(update)) for update in updates]
    return [Message(20.0 + k, norms[k % 2], updates[k % 2]) for k in range(MESSAGES)]


def numpy_round(policy: Policy) -> Round:
    exact = float32()

    def play(state: Any, heard: list[Message]) -> Any:
        config, total = server.open(policy, state.memory, MESSAGES), zeros(state.weights)
        for message in heard:
            assert tally.fits(exact, np.float64(message.norm), norm(message.update), len(total))
            add_scaled(total, message.examples, message.update, donate=True)
        examples, norms = np.array([message[:2] for message in heard], np.float32).T
        sums = tally.of(total, examples, norms, norms > 0, config)
        mean, memory, info = server.learn(policy, state.memory, sums, donate=True)
        assert info.spoke == MESSAGES
        add_scaled(state.weights, 1.0, mean, donate=True)
        return state._replace(memory=memory)

    return play


def measure(size: int, repeats: int) -> dict[str, Any]:
    """Seconds of every round of both kinds, in turn, after two rounds of each to warm up."""
    heard = messages(size)
    rounds = {name: numpy_round(policy) for name, policy in POLICIES.items()}
    states = {name: server.init(policy, np.zeros(size, np.float32))
              for name, policy in POLICIES.items()}  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for repeat in range(-2, repeats):
        for name, play in rounds.items():
            began = time.perf_counter()
            states[name] = play(states[name], heard)
            if repeat >= 0:
                seconds[name].append(time.perf_counter() - began)
    path = states["ou"].memory.stand_in
    return {
        "seconds": seconds,
        "median": {name: statistics.median(values) for name, values in seconds.items()},
        "arrays_kept": sum(leaf.ndim == 1 and leaf.shape[0] == size for leaf in path),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE, help="weights of the model")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each kind that count")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()

    found = measure(options.size, options.repeats)
    zero, ou = found["median"]["zero"], found["median"]["ou"]
    print(f"{options.size:,} weights, {MESSAGES} messages, median of {options.repeats} rounds")
    print(f"zero {zero:.3f} s, ou {ou:.3f} s: {ou / zero:.2f} times, {LIMIT} at the most")
    figures = {"size": options.size, "messages": MESSAGES, "block": BLOCK, "ratio": ou / zero}
    with atomic_write(options.out) as file:
        file.write(json.dumps(figures | found | {"versions": versions()}, indent=2) + "\n")
    sys.exit(0 if found["arrays_kept"] == 4 and ou / zero <= LIMIT else 1)


if __name__ == "__main__":
    main()

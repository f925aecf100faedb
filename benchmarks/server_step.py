"""What the estimator costs the server: a round with `ou` beside a round with `zero`.

A round is ten messages that all speak, each checked against its norm and added to the tally, and
the server's step. At 138 million weights (VGG-16) a round with `ou` may take twice the time of one
with `zero` in NumPy and 1.5 times in JAX, with four arrays of the model's size kept.

    python benchmarks/server_step.py                  # 6 GiB of memory, some minutes on two cores
    python benchmarks/server_step.py --size 1000000   # a moment

Rounds of both kinds take turns and medians are compared: on a busy machine only the ratio counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax_server
import numpy as np

from taciturn.core import server, tally
from taciturn.core.arrays import BLOCK, norm
from taciturn.core.messages import Message
from taciturn.core.policy import Policy, parse

RESULTS = Path(__file__).parent / "results" / "server_step.json"
SIZE, MESSAGES = 138_357_544, 10
LIMITS = {"numpy": 2.0, "jax": 1.5}
POLICIES = {name: parse(f"full+{name}") for name in ("zero", "ou")}

Round = Callable[[Any, list[Message]], Any]


def messages(size: int, xp: Any) -> list[Message]:
    """Ten messages from two buffers: memory for ten would only be in the way."""
    rng = np.random.default_rng(0)
    updates = []
    for _ in range(2):
        update = rng.standard_normal(size, dtype=np.float32)
        update *= np.float32(1e-3)
        updates.append(xp.asarray(update))
    norms = [float(norm(update)) for update in updates]
    return [Message(20.0 + k, norms[k % 2], updates[k % 2]) for k in range(MESSAGES)]


def numpy_round(policy: Policy) -> Round:
    def play(state: Any, heard: list[Message]) -> Any:
        opening = server.open(policy, state.memory, MESSAGES)
        sums = tally.start(state.weights)
        for message in heard:
            sums = tally.add(sums, message, opening, donate=True)
        state, info = server.close(policy, state, sums, donate=True)
        assert info.spoke == MESSAGES
        return state

    return play


def jax_round(policy: Policy) -> Round:
    """Compiled programs for a message and for the step; what goes in is donated."""
    add = jax.jit(tally.add, donate_argnums=0)
    start = jax.jit(tally.start)

    def play(state: Any, heard: list[Message]) -> Any:
        opening = server.open(policy, state.memory, MESSAGES)
        sums = start(state.weights)
        for message in heard:
            sums = add(sums, message, opening)
        state, info = jax_server.close(policy, state, sums)
        assert int(info.spoke) == MESSAGES
        return jax.block_until_ready(state)

    return play


def measure(size: int, repeats: int, xp: Any, make: Callable[[Policy], Round]) -> dict[str, Any]:
    """Seconds of every round of both kinds, in turn, after two rounds of each to warm up."""
    heard = messages(size, xp)
    rounds = {name: make(policy) for name, policy in POLICIES.items()}
    states = {name: server.init(policy, xp.zeros(size, dtype=xp.float32))
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
        "state": states["ou"],
    }


def disagreement(ours: Any, theirs: Any) -> float:
    """The largest difference of any array of two states, as a share of its largest entry."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        same = a == b  # infinities
        if not same.all():
            worst = max(worst, float(np.max(np.abs(a - b)) / np.max(np.abs(b))))
    return worst


def versions() -> dict[str, Any]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
        if Path("/proc/cpuinfo").exists()
        else (),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "jax_device": f"{jax.devices()[0].platform}: {jax.devices()[0].device_kind}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE, help="weights of the model")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each kind that count")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()

    sides = {"numpy": (np, numpy_round), "jax": (jnp, jax_round)}
    found = {}
    for library, (xp, make) in sides.items():
        found[library] = measure(options.size, options.repeats, xp, make)
    apart = disagreement(*(found[library].pop("state") for library in sides))

    print(f"{options.size:,} weights, {MESSAGES} messages, median of {options.repeats} rounds")
    print(f"{'':8}{'zero':>10}{'ou':>10}{'ratio':>8}{'limit':>8}")
    for library, figures in found.items():
        zero, ou = figures["median"]["zero"], figures["median"]["ou"]
        figures["ratio"], figures["limit"] = ou / zero, LIMITS[library]
        print(f"{library:8}{zero:9.3f}s{ou:9.3f}s{ou / zero:8.2f}{LIMITS[library]:8.1f}")
    print(f"NumPy and JAX differ by {apart:.1e} of the largest entry at most.")

    figures = {"size": options.size, "messages": MESSAGES, "block": BLOCK, "difference": apart}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures | found | {"versions": versions()}, indent=2) + "\n")
    ok = (
        apart < 1e-5
        and all(figures["arrays_kept"] == 4 for figures in found.values())
        and all(figures["ratio"] <= figures["limit"] for figures in found.values())
    )
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()

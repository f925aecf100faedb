"""What a server holds in memory from round to round, in a process of its own.

    python tests/flower/memory.py [--rounds 500] [--json FILE]

Linux alone says how much that is. From round 50 on it must stay within 5 %, or this exits with 1.
"""

import argparse
import json
import logging
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from federation import record, run
from flwr.serverapp import strategy as flower

SIZE, NODES, FIRST, EVERY = 50_000, 5, 50, 10
PAGE = 4096


def measure(rounds: int) -> list[int]:
    """The bytes that this process holds, every tenth round from the fiftieth on."""
    held: list[int] = []
    wanted = (1 + np.random.default_rng(0).standard_normal((NODES, SIZE))).astype("f4")

    def look(round, arrays):
        if round >= FIRST and round % EVERY == 0:
            held.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)

    with tempfile.TemporaryDirectory() as folder:
        start = record(w=np.zeros(SIZE, "f4"))
        run(None, rounds, flower.FedAdam, wanted, start=start, evaluate_fn=look, folder=folder)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel("ERROR")
    held = measure(options.rounds)
    found = {"rounds": options.rounds, "weights": SIZE, "nodes": NODES, "from_round": FIRST,
             "bytes": held[0], "least": min(held) / held[0], "most": max(held) / held[0],
             "flwr": version("flwr")}  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["least"] < 0.95 or found["most"] > 1.05)


if __name__ == "__main__":
    sys.exit(main())

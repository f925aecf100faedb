"""A federation on this machine to which everything happens: nodes and SuperLink die and come back.

    python tests/flower/soak.py [--rounds 150] [--nodes 6] [--seconds 7200] [--json FILE]
    python tests/flower/soak.py --memory [--rounds 500] [--json FILE]

It is no test of pytest's, because it takes its time. SuperNodes are killed and started again at
random, the SuperLink after a third and after two thirds of the rounds; a new `flwr run` then goes
on with the folder. In the end there must be one row per round, and everyone who was asked in a
round must have been counted there once.
"""

import argparse
import json
import logging
import random
import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.serverapp import strategy as flower

sys.path.insert(0, str(Path(__file__).parent))
from federation import record, run
from loopback import Federation, kill_tree, saved

from taciturn import runs

POLICY = "adaptive,robust=true,at_most=10+ou,cap=true+down=eden:1"
HAS = re.compile(r"node \d+ has version (\d+) of the public model, checksum (\d+)")
COUNTED = ("spoke", "silent", "rejected", "errors", "missing")


def soak(home: Path, rounds: int, nodes: int, seconds: float, seed: int) -> dict[str, object]:
    chance, folder = random.Random(seed), home / "run"
    began, kills, starts = time.monotonic(), 0, 0
    settings = {"policy": POLICY, "folder": str(folder),
                "rounds": rounds, "nodes": 3, "timeout": 15.0}  # fmt: skip
    falls = [0, rounds // 3, 2 * rounds // 3]  # the rounds after which a run is started (again)
    with Federation(
        home / "flower", nodes, ["--insecure", "--database", str(home / "superlink.db")],
        environment={"LOOPBACK_OUTPUTS": "50"},
    ) as federation:  # fmt: skip
        federation.start()
        live = dict(enumerate(federation.nodes))
        while not (federation.home / f"soak{starts}.json").exists():
            done = saved(folder)
            if time.monotonic() - began > seconds:
                raise SystemExit(f"not done after {seconds:g} s: {done} rounds")
            if falls and done >= falls[0]:
                if falls.pop(0):
                    federation.kill_server()
                    federation.start_superlink()
                starts += 1
                federation.submit(f"soak{starts}", **settings)
            elif done and chance.random() < 0.3:
                k = chance.randrange(nodes)
                kill_tree(live[k].pid)
                time.sleep(chance.uniform(0, 3))
                federation.start_node(k)
                live[k], kills = federation.nodes[-1], kills + 1
            time.sleep(chance.uniform(1, 5))
    log = "".join(federation.log(f"run-soak{i}") for i in range(1, starts + 1))
    found = {(int(version), checksum) for version, checksum in HAS.findall(log)}
    # What the last round before a fall logged may be lost with the SuperLink.
    assert rounds - starts < len(found) == len(dict(found)) <= rounds, "models differ"
    rows, table = runs.read_csv(folder / "metrics.csv"), runs.read_csv(folder / "nodes.csv")
    assert [int(row["round"]) for row in rows] == list(range(1, rounds + 1)), "rounds are missing"
    for row in rows:
        assert sum(int(row[key]) for key in COUNTED) == int(row["asked"]), f"counted twice: {row}"
    for key in ("asked", "spoke", "silent"):
        assert sum(int(row[key]) for row in table) == sum(int(row[key]) for row in rows), key
    total = {key: sum(int(row[key]) for row in rows) for key in ("asked", *COUNTED)}
    return {"rounds": rounds, "nodes": nodes, "kills_of_nodes": kills, "starts": starts,
            "falls_of_the_superlink": starts - 1, "seconds": round(time.monotonic() - began),
            "total": total, "flwr": version("flwr")}  # fmt: skip


def memory(rounds: int) -> dict[str, object]:
    """What this process, as a server, holds in memory every tenth round from the fiftieth on."""
    size, nodes, first, held = 50_000, 5, 50, []
    wanted = (1 + np.random.default_rng(0).standard_normal((nodes, size))).astype("f4")

    def look(round, arrays):
        if round >= first and round % 10 == 0:
            held.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)

    logging.getLogger("flwr").setLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        start = record(w=np.zeros(size, "f4"))
        run(None, rounds, flower.FedAdam, wanted, start=start, evaluate_fn=look, folder=folder)
    found = {"rounds": rounds, "weights": size, "nodes": nodes, "from_round": first,
             "bytes": held[0], "least": min(held) / held[0], "most": max(held) / held[0],
             "flwr": version("flwr")}  # fmt: skip
    assert 0.95 <= found["least"] <= found["most"] <= 1.05, found
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="150, or 500 with --memory")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.memory:
        found = memory(options.rounds or 500)
    else:
        with tempfile.TemporaryDirectory() as home:
            found = soak(Path(home), options.rounds or 150, options.nodes, options.seconds,
                         options.seed)  # fmt: skip
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

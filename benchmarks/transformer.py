"""A pre-trained transformer, fine-tuned in Flower's simulation: the example `flower-transformer`.

    python benchmarks/transformer.py --policy budget --seed 0
    python benchmarks/transformer.py --policy full --seed 0
    python benchmarks/transformer.py --table
    python benchmarks/transformer.py --wire --rounds 3 --policy budget

With `--wire`, a run is played by a SuperLink and four SuperNodes on this machine, and all bytes are
counted that the nodes upload: Flower's own, too.

Needs what examples/flower-transformer/pyproject.toml names, and Banking77 in
TACITURN_DATA/banking77. Every run is kept in the JSON file when it has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pages import RESULTS, ROOT, put

from taciturn.files import atomic_write
from taciturn.report.versions import versions

sys.path.append(str(ROOT / "tests" / "flower"))
from loopback import Federation

APP = ROOT / "examples" / "flower-transformer"
BIN = Path(sys.executable).parent


@contextlib.contextmanager
def superlink(home: Path) -> Iterator[dict[str, str]]:
    """A SuperLink that simulates, and the environment in which `flwr` finds it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    (home / "config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{address[1]}"\ninsecure = true\n'
    )
    env = os.environ | {
        "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    command = [BIN / "flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1",
               "--port", str(address[1]), "--disable-runtime-dependency-installation"]  # fmt: skip
    with open(home / "superlink.log", "w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(address):
                break
            if server.poll() is not None:
                raise SystemExit((home / "superlink.log").read_text())
            time.sleep(0.5)
        yield env
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """One run, as it is kept."""
    data = Path(os.environ["TACITURN_DATA"], "banking77").resolve()
    with tempfile.TemporaryDirectory() as name, superlink(Path(name)) as env:
        config = {
            "data": str(data), "folder": str(Path(name, "run")), "policy": options.policy,
            "seed": options.seed, "num-server-rounds": options.rounds,
            "lora-rank": options.lora_rank,
        }  # fmt: skip
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        began = time.perf_counter()
        subprocess.run(
            [BIN / "flwr", "run", APP, "here", "--stream", "--run-config", pairs,
             "--federation-config", "num-supernodes=100 client-resources-num-cpus=1"],
            env=env, check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        rows = rows_of(Path(name, "run"), options.rounds)
    tested = {row["round"]: float(row["accuracy"]) for row in rows if row.get("accuracy")}
    own = {name: config[name] for name in ("policy", "seed", "num-server-rounds", "lora-rank")}
    return own | {"accuracy": tested, "seconds": round(seconds), "versions": about()} | sums(rows)


def rows_of(folder: Path, rounds: int) -> list[dict[str, str]]:
    """The history of a run that came to its end."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    if len(rows) != rounds:
        raise SystemExit(f"Only {len(rows)} of {rounds} rounds came to an end.")
    return rows


def sums(rows: list[dict[str, str]]) -> dict[str, int]:
    """The bytes that the history counts."""
    counted = ("bytes_up", "overhead_up", "bytes_up_full")
    return {name: int(sum(float(row[name]) for row in rows)) for name in counted}


def about() -> dict[str, str]:
    return versions() | {name: version(name) for name in ("flwr", "torch", "transformers")}


def wire(policy: str, rounds: int, nodes: int = 4) -> dict[str, Any]:
    """A run of a real federation, and what a proxy before each SuperNode counted of it."""
    data = Path(os.environ["TACITURN_DATA"], "banking77").resolve()
    with tempfile.TemporaryDirectory() as name:
        path = {"PYTHONPATH": str(ROOT / "src")}
        with Federation(Path(name), nodes, environment=path) as federation:
            federation.start()
            began = time.perf_counter()
            running = federation.submit(
                "transformer", APP, data=str(data), folder=str(Path(name, "run")), policy=policy,
                clients=nodes, asked=nodes, **{"num-server-rounds": rounds},
            )  # fmt: skip
            running.wait()
            seconds = time.perf_counter() - began
            up = [proxy.up for proxy in federation.proxies]
            if not Path(name, "run", "metrics.csv").exists():
                raise SystemExit(federation.log("run-transformer"))
            rows = rows_of(Path(name, "run"), rounds)
            if any(int(row["spoke"]) < nodes for row in rows):
                raise SystemExit(federation.log("run-transformer"))
    return {
        "nodes": nodes, "rounds": rounds, "seconds": round(seconds),
        "wire_up": up, "wire_up_per_reply": round(sum(up) / nodes / rounds), **sums(rows),
        "versions": about(),
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> None:
    """Writes accuracy by round into the example's README."""
    rounds = list(runs[0]["accuracy"])[::2]
    rows = [f"| policy | seed | {' | '.join(rounds)} | uploaded |",
            "|---" * (len(rounds) + 3) + "|"]  # fmt: skip
    for row in sorted(runs, key=lambda row: (row["lora-rank"], row["seed"])):
        ends = " | ".join(f"{100 * row['accuracy'][t]:.1f}" for t in rounds)
        sent = (row["bytes_up"] + row["overhead_up"]) / 1e6
        policy = row["policy"] + (f", LoRA {row['lora-rank']}" if row["lora-rank"] else "")
        rows.append(f"| `{policy}` | {row['seed']} | {ends} | {sent:,.1f} MB |")
    put(APP / "README.md", "transformer", "\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--policy", default="budget")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=45)
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS / "transformer.json")
    parser.add_argument("--wire", action="store_true", help="a real federation, all its bytes")
    parser.add_argument("--table", action="store_true", help="only the table")
    options = parser.parse_args()
    if options.wire:
        path = RESULTS / "transformer_wire.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[options.policy] = wire(options.policy, options.rounds)
        with atomic_write(path) as file:
            file.write(json.dumps(kept, indent=1) + "\n")
        if "full" in kept:
            share = kept[options.policy]["wire_up_per_reply"] / kept["full"]["wire_up_per_reply"]
            print(f"{options.policy}: {share:.3%} of plain Flower's upload")
        return
    found = json.loads(options.json.read_text()) if options.json.exists() else []
    if not options.table:
        found.append(run(options))
        with atomic_write(options.json) as file:
            file.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
        print(json.dumps(found[-1], indent=1))
    if options.json == RESULTS / "transformer.json":
        table(found)


if __name__ == "__main__":
    main()

"""Taciturn beside pfl-research, Flower's simulation and PyTorch's LSTM, in one run.

    python benchmarks/peers/run.py                      on the CPU
    python benchmarks/peers/run.py --device cuda        on a GPU
    python benchmarks/peers/run.py --prepare-carry      what a machine without a network needs
    python benchmarks/peers/run.py --no-env --packages .carry --device cuda        and there
    python benchmarks/peers/run.py --before DIR         beside an earlier checkout of Taciturn

Every side trains the same model on the same data from the same weights, with the same clients,
examples and batches in the same rounds, in a process of its own; peers in environments of their
own. Sides take turns, so that a noisy machine is noisy for all: only ratios of one run count.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import BATCH, CLIP, COHORT, EPOCHS, LR, UNIT, make_data, processor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# PyTorch is named first and pinned, so that nothing brings another build of it.
TORCH = "torch==2.13.0"
ENVIRONMENTS = {
    "pfl": (TORCH, "pfl[pytorch]==0.6.0"),
    "flower": (TORCH, "flwr[simulation]==1.41.0"),
}
# Pure Python, for a machine that has PyTorch and JAX but not these and can install nothing.
CARRIED = (
    "pfl==0.6.0",
    "multiprocess",
    "dill",
    "packaging",
    "platformdirs",
    "tyro",
    "docstring-parser",
    "typeguard",
)
# Student's t for a two-sided 99 %, by degrees of freedom.
STUDENT = {1: 63.66, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 9: 3.25}
# How far losses may be apart without dropout, where only rounding differs.
SAME = 1e-3


class Side(NamedTuple):
    """One of the sides: its script, the environment it needs, and what the script is told."""

    name: str
    script: str
    environment: str | None
    tasks: tuple[str, ...]
    options: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    worker_a_thread: bool = False  # as many processes as threads, under `torchrun`


SIDES = {
    side.name: side
    for side in (
        Side("pfl", "pfl_side.py", "pfl", ("cnn",)),
        Side("pfl-workers", "pfl_side.py", "pfl", ("cnn",), (), ("cpu",), worker_a_thread=True),
        Side("flower", "flower_side.py", "flower", ("cnn",), devices=("cpu",)),
        # Plain PyTorch needs nothing that pfl's environment does not have.
        Side("torch-lstm", "torch_lstm_side.py", "pfl", ("lstm",)),
        Side("taciturn", "taciturn_side.py", None, ("cnn", "lstm")),
        Side("taciturn-35", "taciturn_side.py", None, ("cnn", "lstm"), ("--side-by-side",)),
        Side("before", "taciturn_side.py", None, ("cnn", "lstm")),
        Side("before-35", "taciturn_side.py", None, ("cnn", "lstm"), ("--side-by-side",)),
    )
}


def main() -> int:
    options = _arguments()
    peers = ROOT / ".peers"
    carried = options.packages / "data" if options.packages else None
    data = carried if carried and carried.exists() else peers / "data"
    if options.prepare_carry:
        prepare_carry(ROOT / ".carry", options.carry_python)
        return 0
    if not all((data / f"{task}.npz").exists() for task in BATCH):
        make_data(data, os.environ.get("TACITURN_DATA"))

    results: dict[str, Any] = {
        "device": None,
        "cpu": processor(),
        "threads": options.threads,
        # Threads that wait for each other suffer most from other work on the machine.
        "load_before": os.getloadavg()[0],
        "taciturn_settings": options.setting,
        "setting": {"cohort": COHORT, "batch": BATCH, "epochs": EPOCHS, "lr": LR, "clip": CLIP},
        "warmup": options.warmup,
        "rounds": options.rounds,
        "when": time.strftime("%Y-%m-%d"),
        "tasks": {},
    }
    agree = True
    for task in options.tasks:
        sides = [
            side
            for side in (SIDES[name] for name in options.sides)
            if task in side.tasks and options.device in side.devices
        ]
        if not sides:
            continue
        bench = Bench(options, task, sides, data, peers / "plans")
        results["tasks"][task] = found = bench.run()
        results["device"] = results["device"] or found["device"]
        agree = agree and found["agree"] is not False
    text = table(results)
    device = (results["device"] or "cpu").replace(" ", "_").lower()
    path = options.json or ROOT / "benchmarks" / "results" / f"peers_{device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(text)
    return 0 if agree else 1


class Bench:
    """All sides of one task, taking turns."""

    def __init__(
        self, options: argparse.Namespace, task: str, sides: list[Side], data: Path, plans: Path
    ) -> None:
        self.options, self.task, self.sides = options, task, sides
        self.data, self.plans = data, plans
        plans.mkdir(parents=True, exist_ok=True)

    def run(self) -> dict[str, Any]:
        options = self.options
        for side in self.sides:
            if side.environment and not options.no_env:
                make_environment(ROOT / ".peers", side.environment)
        total = options.warmup + max(options.rounds, options.taciturn_rounds or 0)
        for seed in range(options.repeats):
            self.call(SIDES["taciturn"], seed, {"--export": max(total, options.check_rounds)})

        without: dict[str, float] = {}
        single = [side for side in self.sides if not side.name.endswith("-35")]
        if options.check_rounds:
            for side in single:
                rounds = {"--rounds": options.check_rounds, "--warmup": 0}
                without[side.name] = self.call(side, 0, rounds, "--no-dropout")["loss"]
                print(f"  {self.task}, {side.name}, same work: loss {without[side.name]:.5f}")
        reports: dict[str, list[dict[str, Any]]] = {side.name: [] for side in self.sides}
        for repeat in range(options.repeats):
            for side in self.sides:
                told: dict[str, Any] = {"--rounds": options.rounds, "--warmup": options.warmup}
                if side.environment is None:
                    # Where rounds are short there must be more of them to time; the loss is that
                    # after as many rounds as the peers have.
                    told["--rounds"] = options.taciturn_rounds or options.rounds
                    told["--loss-rounds"] = options.warmup + options.rounds
                reports[side.name].append(one := self.call(side, repeat, told))
                print(f"  {self.task}, {side.name}, repeat {repeat + 1}: {_rate(one):,.0f} "
                      f"{UNIT[self.task]}/s")  # fmt: skip
        return summarise(self.task, reports, without)

    def call(self, side: Side, seed: int, told: dict[str, Any], *flags: str) -> dict[str, Any]:
        """Runs a side in a process of its own and reads its report."""
        options = self.options
        python = sys.executable
        if side.environment and not options.no_env:
            python = str(ROOT / ".peers" / side.environment / "bin" / "python")
        environ = os.environ | {
            "OMP_NUM_THREADS": str(options.threads),
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(self.paths(side)),
        }
        if side.environment is None:
            environ["JAX_PLATFORMS"] = "cpu" if options.device == "cpu" else "cuda,cpu"
            flags += ("--task", self.task, *side.options)
            # Whether the work is the same is asked in float32; precision comes on top of it.
            same_work = "--no-dropout" in flags
            flags += tuple(
                f"--setting={text}"
                for text in options.setting
                if not (same_work and text.startswith("precision="))
            )
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "report.json")
            told = told | {"--data": self.data, "--plan": self.plans, "--out": out, "--seed": seed,
                           "--threads": options.threads, "--device": options.device}  # fmt: skip
            words = [python, str(self.scripts(side) / side.script), *flags]
            if side.worker_a_thread:
                launch = ("-m", "torch.distributed.run", "--standalone",
                          f"--nproc-per-node={options.threads}")  # fmt: skip
                words[1:1] = launch
                environ["OMP_NUM_THREADS"] = "1"
            words += [str(word) for pair in told.items() for word in pair]
            done = subprocess.run(
                words, env=environ, capture_output=True, text=True, preexec_fn=self.pin
            )
            # PyTorch's workers now and then abort when they end, with the report written.
            if done.returncode and not (side.worker_a_thread and out.exists()):
                raise SystemExit(f"{side.name} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            return json.loads(out.read_text()) if out.exists() else {}

    def scripts(self, side: Side) -> Path:
        """Where the script of a side is: an earlier Taciturn has its own."""
        if side.name.startswith("before"):
            return Path(self.options.before.resolve(), "benchmarks", "peers")
        return HERE

    def paths(self, side: Side) -> list[str]:
        scripts = self.scripts(side)
        paths = [str(scripts)]
        if side.environment is None:
            paths.append(str(scripts.parent.parent / "src"))
        if self.options.packages and (self.options.no_env or side.environment is None):
            paths.append(str(self.options.packages.resolve()))
        return paths

    def pin(self) -> None:
        """As many cores for every side as it has threads; a GPU's host is left alone."""
        if self.options.device == "cpu" and hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, cores[: self.options.threads])


def summarise(
    task: str, reports: dict[str, list[dict[str, Any]]], without: dict[str, float]
) -> dict[str, Any]:
    """The figures of each side and whether the sides' losses agree.

    Speed is the median over repeats. Losses without dropout must agree to `SAME`. With dropout they
    differ by chance: the mean difference to Taciturn over the repeats, which share seeds, must be
    within Student's 99 % interval around zero.
    """
    sides: dict[str, Any] = {}
    device = None
    for name, runs in reports.items():
        rates = [_rate(one) for one in runs]
        sides[name] = {
            "side": runs[0]["side"],
            "per_second": float(np.median(rates)),
            "per_second_of_each": rates,
            "seconds_per_round": float(np.median([np.mean(one["seconds"]) for one in runs])),
            "runs": runs[0].get("runs", 1),
            "losses": [one["loss"] for one in runs],
            "accuracies": [one["accuracy"] for one in runs],
            "loss_without_dropout": without.get(name),
            "weights": runs[0]["weights"],
            "versions": runs[0]["versions"],
        }
        device = device or runs[0]["device"]
    ours = sides.get("taciturn")
    verdicts = []
    for name, side in sides.items():
        if ours is None or name.startswith("taciturn"):
            continue
        side["taciturn_times_faster"] = ours["per_second"] / side["per_second"]
        if "taciturn-35" in sides:
            many = sides["taciturn-35"]["per_second"] / side["per_second"]
            side["taciturn_35_times_faster"] = many
        if name in without:
            apart = abs(without[name] - without["taciturn"])
            side["apart_without_dropout"] = apart
            verdicts.append(apart <= SAME)
        if None in side["losses"]:  # of 35 runs there is no loss to compare
            continue
        apart = np.subtract(side["losses"], ours["losses"])
        side["apart_with_dropout"] = float(abs(apart.mean()))
        if task == "cnn" and len(apart) > 1:
            error = apart.std(ddof=1) / math.sqrt(len(apart))
            side["tolerance_with_dropout"] = STUDENT.get(len(apart) - 1, 3.2) * float(error)
            verdicts.append(side["apart_with_dropout"] <= side["tolerance_with_dropout"])
    agree = all(verdicts) if verdicts else None
    return {"unit": UNIT[task], "device": device, "agree": agree, "sides": sides}


def table(results: dict[str, Any]) -> str:
    """The report for the terminal."""
    where = results["device"] or f"{results['cpu']}, {results['threads']} threads"
    lines = [f"\n{where}, {results['when']}, load before {results['load_before']:.1f}"]
    for task, found in results["tasks"].items():
        unit = f"{found['unit']}/s"
        lines.append(
            f"\n{task:<12}{unit:>13}{'s/round':>11}{'Taciturn is':>12}{'35 runs':>9}"
            f"{'loss':>9}{'no dropout':>12}  versions"
        )
        for name, side in found["sides"].items():
            losses = [loss for loss in side["losses"] if loss is not None]
            lines.append(
                f"{name:<12}{side['per_second']:>13,.0f}{side['seconds_per_round']:>11.4f}"
                f"{_times(side.get('taciturn_times_faster')):>12}"
                f"{_times(side.get('taciturn_35_times_faster')):>9}"
                f"{_figure(np.mean(losses) if losses else None):>9}"
                f"{_figure(side['loss_without_dropout'], 5):>12}"
                f"  {', '.join(f'{k} {v}' for k, v in list(side['versions'].items())[1:4])}"
            )
        verdict = {True: "agree: the work is the same", False: "DIFFER", None: "were not compared"}
        lines.append(f"losses {verdict[found['agree']]}")
    return "\n".join(lines)


def make_environment(peers: Path, name: str) -> None:
    """A virtual environment with a peer's requirements, made again only when they change."""
    folder, wanted = peers / name, "\n".join(ENVIRONMENTS[name])
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"  making an environment for {name}: {', '.join(ENVIRONMENTS[name])}")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    installed: list[str] = []
    for requirement in ENVIRONMENTS[name]:
        installed.append(requirement)
        subprocess.run([*pip, *installed], check=True)
    stamp.write_text(wanted)


def prepare_carry(folder: Path, python: str) -> None:
    """A folder with pure-Python packages for another Python, and the data files."""
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps",
         "--only-binary=:all:", "--no-compile", "--python-version", python,
         "--target", str(folder), *CARRIED],
        check=True,
    )  # fmt: skip
    make_data(folder / "data", os.environ.get("TACITURN_DATA"))
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB")


def _rate(one: dict[str, Any]) -> float:
    return sum(one["examples"]) / sum(one["seconds"])


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f} ×"


def _figure(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=tuple(BATCH),
        default=None,
        help="cnn alone on a CPU, both on a GPU unless told",
    )
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=tuple(SIDES),
        default=None,
        help="all; 35 runs side by side on a GPU only unless told",
    )
    parser.add_argument("--repeats", type=int, default=3, help="turns of every side")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of a turn")
    parser.add_argument(
        "--taciturn-rounds",
        type=int,
        default=None,
        help="timed rounds of Taciturn: as the peers on a CPU, 50 on a GPU",
    )
    parser.add_argument("--warmup", type=int, default=1, help="rounds before the timed ones")
    parser.add_argument(
        "--check-rounds",
        type=int,
        default=1,
        help="rounds without dropout after which losses are compared, 0 for none; rounding alone "
        "puts two PyTorch programs 2e-4 apart after two",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=None,
        help="threads and cores of every side: 2 on a CPU, all on a GPU's host",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="passed on to `taciturn.compare`, such as precision=tf32",
    )
    parser.add_argument(
        "--before",
        type=Path,
        help="an earlier Taciturn, such as a `git worktree`: it takes turns with this one, instead "
        "of the peers",
    )
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--no-env", action="store_true", help="run all with this interpreter")
    parser.add_argument("--packages", type=Path, help="a folder from --prepare-carry")
    parser.add_argument("--prepare-carry", action="store_true", help="make .carry and stop")
    parser.add_argument("--carry-python", default="3.12", help="the Python that it is for")
    options = parser.parse_args()
    gpu = options.device == "cuda"
    options.tasks = options.tasks or (["cnn", "lstm"] if gpu else ["cnn"])
    if options.sides is None:
        ours = [name for name in SIDES if name.startswith(("taciturn", "before"))]
        peers = [name for name in SIDES if not name.startswith("before")]
        options.sides = [name for name in (ours if options.before else peers)
                         if gpu or not name.endswith("-35")]  # fmt: skip
    if options.before is None and any(name.startswith("before") for name in options.sides):
        parser.error("`before` needs --before DIR.")
    options.threads = options.threads or (os.cpu_count() or 2 if gpu else 2)
    if gpu and options.taciturn_rounds is None:
        options.taciturn_rounds = 50
    if min(options.repeats, options.rounds, options.threads) < 1:
        parser.error("--repeats, --rounds and --threads must be at least 1.")
    return options


if __name__ == "__main__":
    sys.exit(main())

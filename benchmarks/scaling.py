"""How many bytes a round needs: networks of one kind with 13 thousand to 10 million weights, on
`glyphs`, and other tasks, small and large, short and long.

    python benchmarks/scaling.py run --on 13k 85k emnist --arms full "full+eden:0.1" --seeds 0 1 2
    python benchmarks/scaling.py table
    python benchmarks/scaling.py figure

An arm with a codec `NAME@BYTES` has as many bits or as large a share as fit into so many bytes, or
the least that the codec can have. Each run, a network with a policy and a seed, is a row of the
JSON file, written when it ends; what is there is not run again. EMNIST, Shakespeare and
Parkinson's are read from the folder TACITURN_DATA.
"""

import argparse
import json
import math
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import rivals
from matplotlib.figure import Figure
from pages import RESULTS, ROOT, put

import taciturn
from taciturn.core.policy import CODECS
from taciturn.files import atomic_write
from taciturn.models.networks import Conv, Dense
from taciturn.report.figures import write
from taciturn.report.versions import commit, versions
from taciturn.sim.model import flat_model
from taciturn.summary import MARGIN, Difference, difference
from taciturn.tasks import load
from taciturn.tasks.task import with_test

RUNS = RESULTS / "scaling.json"
# Channels of two 5 × 5 convolutions, and the width of the hidden layer.
NETS = {
    "13k": (4, 8, 64),
    "85k": (8, 16, 256),
    "657k": (8, 16, 2048),
    "2.6M": (8, 16, 8192),
    "10M": (8, 16, 32_768),
}
_GLYPHS = {"rounds": 100, "cohort": 10, "batch": 10, "lr": 0.3}  # 0.3: the best rate of `full`
_EMNIST = {"rounds": 100, "cohort": 10, "epochs": 2, "batch": 10, "lr": 0.1, "clip": 1.0}
# As in the experiments of the same names in `experiments/`.
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(NETS, _GLYPHS),
    "glyphs": {"rounds": 100, "cohort": 10},
    "synthetic": {"rounds": 100, "cohort": 10},
    "parkinsons": {"rounds": 500, "cohort": 10},
    "emnist": _EMNIST,
    "emnist-long": _EMNIST | {"rounds": 1500, "epochs": 1, "batch": 20},
    "shakespeare": {
        "rounds": 100, "cohort": 10, "epochs": 1, "batch": 4, "lr": 1.0, "clip": 1.0,
    },
}  # fmt: skip
_OPTIONS: dict[str, dict[str, Any]] = {
    "shakespeare": {"limit": 128, "weigh": "tokens"},
    "parkinsons": {
        "client": "subject#", "label": "motor_UPDRS", "standardise": True,
        "leave_out": ["total_UPDRS", "test_time"],
    },
}  # fmt: skip


class Net(eqx.Module):
    """Two convolutions with pooling and two dense layers."""

    conv1: Conv
    conv2: Conv
    dense1: Dense
    dense2: Dense

    def __init__(self, key: jax.Array, first: int, second: int, hidden: int) -> None:
        keys = jax.random.split(key, 4)
        self.conv1 = Conv(keys[0], 5, 1, first)
        self.conv2 = Conv(keys[1], 5, first, second)
        self.dense1 = Dense(keys[2], 4 * 4 * second, hidden)
        self.dense2 = Dense(keys[3], hidden, 62)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of images (batch, 28, 28)."""
        x = self.conv2.pooled(self.conv1.pooled(x[..., None]))
        return self.dense2(jax.nn.relu(self.dense1(x.reshape(x.shape[0], -1))))


def task_of(name: str) -> Any:
    """The task of this name, or the embedded one with a network of this size."""
    if name in NETS:
        return replace(load("glyphs"), init=lambda key: Net(key, *NETS[name]))
    options = _OPTIONS.get(name, {})
    if name == "parkinsons":
        file = Path(os.environ["TACITURN_DATA"]) / "parkinsons" / "parkinsons_updrs.tsv"
        return load("table", data=file, **options)
    return load(name.removesuffix("-long"), **options)


# The least and the largest argument of codecs that set bytes by it.
ARGUMENTS = {"eden": (0.02, 1.0), "subset": (1e-8, 1.0), "sparse_ternary": (1e-8, 1.0),
             "top_k_2bit": (1e-8, 1.0)}  # fmt: skip


def fitted(arm: str, size: int) -> str:
    """The policy of an arm: `NAME@BYTES` becomes a codec whose code is no longer than that."""
    found = re.search(r"(\w+)@(\d+)", arm)
    if found is None:
        return arm
    name, most = found[1], int(found[2])
    low, high = ARGUMENTS[name]
    for _ in range(40):
        middle = math.sqrt(low * high)
        fits = CODECS[name](middle).nbytes(size) <= most
        low, high = (middle, high) if fits else (low, middle)
    return arm.replace(found[0], f"{name}:{low:.6g}")


def run(options: argparse.Namespace) -> None:
    """Runs what is missing."""
    path: Path = options.json
    found = json.loads(path.read_text()) if path.exists() else {"settings": SETTINGS, "runs": []}
    there = {(row["on"], row["arm"], row["seed"], str(row["own"])) for row in found["runs"]}
    for name in options.on:
        own = dict(_setting(name, pair) for pair in options.setting)
        settings, task = SETTINGS[name] | own, task_of(name)
        size = flat_model(task).size
        # Side by side on a GPU; on two cores one by one, so that little is lost of a stopped run.
        most = 1 if jax.default_backend() == "cpu" else len(options.seeds)
        for arm in options.arms:
            missing = [seed for seed in options.seeds if (name, arm, seed, str(own)) not in there]
            for start in range(0, len(missing), most):
                seeds = missing[start : start + most]
                began = time.perf_counter()
                policy = fitted(arm, size)
                history = taciturn.simulate(
                    task, policy, seeds=seeds, evaluate_every=settings["rounds"], **settings
                )
                seconds = round((time.perf_counter() - began) / len(seeds), 1)
                for i, seed in enumerate(seeds):
                    row = {
                        "on": name, "arm": arm, "policy": policy, "seed": seed, "own": own,
                        "weights": size,
                        "accuracy": round(100 * score(history, i, task), 4),
                        "bytes_up": int(history.bytes_up[i].sum()),
                        "overhead_up": int(history.overhead_up[i].sum()),
                        "bytes_by_round":
                            history.bytes_up[i].tolist() if arm[:4] != "full" else None,
                        "seconds": seconds, "commit": commit(), "versions": versions(),
                    }  # fmt: skip
                    found["runs"].append(row)
                    print(f"{name:11} {arm:40} {seed}  {row['accuracy']:6.2f} %  "
                          f"{row['bytes_up'] / settings['rounds']:12,.0f} bytes a round  "
                          f"{seconds:.0f} s", flush=True)  # fmt: skip
                with atomic_write(path) as file:
                    file.write(json.dumps(found).replace('{"on"', '\n {"on"') + "\n")


def score(history: taciturn.History, run: int, task: Any) -> float:
    """Accuracy on the test set, or the share of the variance that is explained, of numbers."""
    accuracy = float(history.accuracy[run, -1])
    if not math.isnan(accuracy):
        return accuracy
    return 1 - float(history.loss[run, -1]) / float(
        np.var(np.asarray(with_test(task)[1].examples["y"]))
    )


def _setting(on: str, pair: str) -> tuple[str, Any]:
    name, _, value = pair.partition("=")
    return name, type(SETTINGS[on][name])(value)


class Point(NamedTuple):
    """What an arm comes to on a network or task.

    Attributes:
      weights: how many the model has.
      sent: bytes of a round, headers too, the mean over seeds.
      share: of what `full` sends, in %.
      gap: accuracy − that of `full`, seed by seed, in points.
      seeds: how many have both.
    """

    weights: int
    sent: float
    share: float
    gap: Difference
    seeds: int


Key = tuple[str, str, str]  # a task, settings of its own, an arm


def points(runs: list[dict[str, Any]]) -> dict[Key, Point]:
    """By task, by settings of its own and by arm; runs whose seed has no run of `full` are left
    out."""
    full = {(r["on"], str(r["own"]), r["seed"]): r for r in runs if r["arm"] == "full"}
    pairs: dict[tuple[str, str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for r in runs:
        if beside := full.get((r["on"], str(r["own"]), r["seed"])):
            pairs.setdefault((r["on"], str(r["own"]), r["arm"]), []).append((r, beside))
    found = {}
    for (on, own, arm), both in pairs.items():
        first = both[0][0]
        rounds = (SETTINGS[on] | first["own"])["rounds"]
        sent, most = (
            np.mean([pair[i]["bytes_up"] + pair[i]["overhead_up"] for pair in both]) / rounds
            for i in (0, 1)
        )
        accuracies = (np.array([pair[i]["accuracy"] for pair in both]) for i in (0, 1))
        found[on, own, arm] = Point(
            first["weights"], sent, 100 * sent / most, difference(*accuracies), len(both)
        )
    return found


def table(options: argparse.Namespace) -> None:
    """Writes two tables into docs/scaling.md, and one into the README."""
    runs = json.loads(options.json.read_text())["runs"]
    found = points(runs)
    for name, rows in (("amounts", _amounts(found)), ("needed", _needed(found))):
        put(ROOT / "docs" / "scaling.md", name, "\n".join(rows))
    put(ROOT / "README.md", "headline", "\n".join(_headline(found, runs)))


# Tasks with a column each, and arms with a row, of the table of amounts.
_COLUMNS = (*NETS, "emnist")
_ARMS = {f"budget{amount}": f"`budget{amount}`" for amount in ("", ":20kB", ":10kB", ":5kB")} | {
    "full+eden@4000": "EDEN", "full+sparse_ternary@4000,feedback=true": "sparse ternary, feedback"
}  # fmt: skip


def _amounts(found: dict[Key, Point]) -> list[str]:
    """Points to `full` with fewer bytes, and of rivals with as many."""
    rows = [f"| policy | {' | '.join(_COLUMNS)} |", "|---" * (1 + len(_COLUMNS)) + "|"]
    for arm, name in _ARMS.items():
        least = "full+eden:0.02" if arm == "full+eden@4000" else arm  # where 4 kB are too few
        cells = (found.get((on, "{}", arm)) or found.get((on, "{}", least)) for on in _COLUMNS)
        rows.append(f"| {name} | {' | '.join(map(_amount, cells))} |")
    return rows


def _amount(point: Point | None) -> str:
    return "" if point is None else f"{gap(point)}; {size_of(point.sent)}"


def _needed(found: dict[Key, Point]) -> list[str]:
    """The bytes that the figure shows."""
    weights = {on: point.weights for (on, _, _), point in found.items()}
    rows = [f"| | {' | '.join(NETS)} |", "|---" * (1 + len(NETS)) + "|"]
    for family, name in NAMES.items():
        least = needed(found, family)
        cells = (least.get(weights[net]) for net in NETS)
        rows.append(f"| {name} | {' | '.join(size_of(n) if n else '' for n in cells)} |")
    return rows


def _headline(found: dict[Key, Point], runs: list[dict[str, Any]]) -> list[str]:
    rows = ["| | model | upload of a round | accuracy | seeds |", "|---|---|---|---|---|"]
    for what, arm, on, data in HEADLINE:
        point = found[on, "{}", arm]
        own = [r["accuracy"] for r in runs if (r["on"], r["arm"], str(r["own"])) == (on, arm, "{}")]
        accuracy = f"{np.mean(own):.1f} %" + (f", {gap(point)} points" if arm != "full" else "")
        rows.append(f"| {what} | {point.weights:,} weights, {data} | {size_of(point.sent)} | "
                    f"{accuracy} | {point.seeds} |")  # fmt: skip
    return rows


def size_of(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


# What the README's table shows: a name, the arm, what it ran on, and that in words.
HEADLINE = (
    ("FedAvg, float32", "full", "emnist", "EMNIST by writer"),
    ("EDEN", "full+eden@4000", "emnist", "EMNIST by writer"),
    ("**Taciturn's default**", "budget", "emnist", "EMNIST by writer"),
    ("**Taciturn's default**", "budget", "2.6M", "drawn handwriting"),
)


def gap(point: Point) -> str:
    """Points to `full`, with half of the interval where there is more than one seed."""
    return str(point.gap).replace("-", "−")


FAMILIES = {"budget": "#D7263D", "full+eden": "#0072B2", "full+quantize": "#009E73", "full": "#555"}
NAMES = {"budget": "Taciturn: `budget`", "full+eden": "EDEN", "full+quantize": "QSGD",
         "full": "float32"}  # fmt: skip


def needed(found: dict[Key, Point], family: str) -> dict[int, float]:
    """The fewest bytes of a round, by number of weights, from which on a family ends at most the
    margin below `full`."""
    least = {}
    for net in NETS:
        own = [p for (on, own, arm), p in found.items()
               if on == net and own == "{}" and re.split("[:@]", arm)[0] == family]  # fmt: skip
        enough = None
        for point in sorted(own, key=lambda point: -point.sent):
            if point.gap.mean < -MARGIN:
                break
            enough = point
        if enough:
            least[enough.weights] = enough.sent
    return least


def figure(options: argparse.Namespace) -> None:
    """Draws the bytes that a round needs against the number of weights."""
    found = points(json.loads(options.json.read_text())["runs"])
    drawn = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = drawn.subplots()
    axes.set_xlabel("weights of the model")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylabel("upload of ten clients in a round")
    axes.yaxis.set_major_formatter(lambda count, _: size_of(count).replace(".0", ""))
    axes.set_title("What a round needs to end within 0.5 points of full communication", fontsize=11)
    for family, colour in FAMILIES.items():
        least = needed(found, family)
        axes.plot(list(least), list(least.values()), "o-", color=colour, label=NAMES[family])
        if least:
            size, sent = list(least.items())[-1]
            axes.annotate(NAMES[family].replace("`", ""), (size, sent), xytext=(8, 0), va="center",
                          textcoords="offset points", color=colour, fontweight="bold")  # fmt: skip
    axes.set_xlim(8e3, 1.6e8)
    axes.grid(alpha=0.25, which="both")
    for path in write(drawn, options.out, "figure-scaling"):
        print(path)


WHAT = {"run": run, "table": table, "figure": figure}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--on", nargs="+", default=list(NETS), choices=SETTINGS)
    parser.add_argument("--arms", nargs="+", default=["full", "budget"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--setting", nargs="*", default=[], help="such as cohort=50 rounds=60")
    parser.add_argument("--json", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the figure's folder")
    options = parser.parse_args()
    taciturn.prepare()
    rivals.register()
    WHAT[options.what](options)


if __name__ == "__main__":
    main()

"""What codecs cost, and what they lose of real updates.

    python benchmarks/codecs.py cost                       # a round of the CNN with and without
    python benchmarks/codecs.py vector --size 138357544    # beside a float16 cast
    python benchmarks/codecs.py errors --task emnist       # of real updates: eden and peaks
    python benchmarks/codecs.py figure --task glyphs       # one update and what each makes of it

`cost` takes turns with a run without a codec, because on a shared machine only a ratio counts.
`errors` is about updates of full communication, as ten clients make them after a few rounds and
after 40, in the plain loop: EMNIST with E = 2, B = 10, lr 0.1, Shakespeare with B = 4, lr 1,
gradients clipped to 1. Accuracy with codecs is what `scaling.py` measures.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from pages import ROOT

import taciturn
from taciturn.core.codecs import Codec
from taciturn.core.policy import parse
from taciturn.report.figures import write
from taciturn.report.versions import versions
from taciturn.tasks import load

RESULTS = Path(__file__).parent / "results"
SETTINGS: dict[str, dict[str, Any]] = {
    "emnist": {"epochs": 2, "batch": 10, "lr": 0.1, "clip": 1.0},
    "shakespeare": {"epochs": 1, "batch": 4, "lr": 1.0, "clip": 1.0},
    "glyphs": {},
}


def cost(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds per round, without and with a codec, taking turns."""
    task, found = load(options.task), {}
    seconds: dict[str, list[float]] = {}
    arms = {
        codec: {f"{k}": f"adaptive,k={k / 10}+ignore+{codec}" for k in range(options.runs // 5)}
        for codec in ("float32", options.codec)
    }
    for turn in range(options.turns + 1):
        for codec, policies in arms.items():
            histories = taciturn.compare(
                task, policies, rounds=options.rounds, cohort=10, seeds=5,
                evaluate_every=options.rounds, precision=options.precision,
            )  # fmt: skip
            if turn:  # the first compiles
                rounds = next(iter(histories.values())).seconds
                seconds.setdefault(codec, []).append(float(np.median(rounds[1:])))
    for codec, each in seconds.items():
        found[codec] = {"seconds_per_round": statistics.median(each), "of_each_turn": each}
    ratio = found[options.codec]["seconds_per_round"] / found["float32"]["seconds_per_round"]
    print(f"{options.runs} runs: {1000 * found['float32']['seconds_per_round']:.1f} ms without, "
          f"{1000 * found[options.codec]['seconds_per_round']:.1f} ms with {options.codec}: "
          f"{100 * (ratio - 1):+.1f} %")  # fmt: skip
    return {"task": options.task, "runs": options.runs, "precision": options.precision,
            "rounds": options.rounds, "codecs": found, "ratio": ratio}  # fmt: skip


def vector(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds to encode and decode one vector in NumPy and JAX, beside a float16 cast."""
    rng = np.random.default_rng(0)
    update = rng.standard_normal(options.size, dtype=np.float32) * np.float32(1e-3)
    found = {}
    for text in options.codecs:
        found[text] = _times(parse(f"full+{text}").codec, update, options.turns)
        line = ", ".join(f"{name} {1000 * each:.1f} ms" for name, each in found[text].items())
        print(f"{text:16} {line}")
    return {"size": options.size, "turns": options.turns, "codecs": found}


def _times(codec: Codec, update: np.ndarray, turns: int) -> dict[str, float]:
    key, size = np.array([1, 2], np.uint32), len(update)
    encode, decode = jax.jit(codec.encode), jax.jit(codec.decode, static_argnums=2)
    here, words = jax.device_put(update), jax.device_put(key)
    code, coded = codec.encode(update, key), jax.block_until_ready(encode(here, words))
    works = {
        "float16 cast": lambda: update.astype(np.float16),
        "encode": lambda: codec.encode(update, key),
        "decode": lambda: codec.decode(code, key, size),
        "encode, JAX": lambda: jax.block_until_ready(encode(here, words)),
        "decode, JAX": lambda: jax.block_until_ready(decode(coded, words, size)),
    }
    works["decode, JAX"]()  # compiles
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


BITS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of eden, for each weight


def errors(options: argparse.Namespace) -> dict[str, Any]:
    """‖decoded − update‖² / ‖update‖² of eden, and of peaks in as many bytes: the mean over the
    updates of some rounds."""
    updates = _updates(options)
    size = len(updates[0][0])
    rows: list[dict[str, Any]] = []
    for bits in BITS:
        eden = taciturn.eden(bits)
        nbytes = eden.nbytes(size)
        row: dict[str, Any] = {"bits": bits, "bytes": nbytes}
        for codec in (eden, taciturn.peaks(f"{nbytes}B")):
            each = [[_error(codec, update) for update in of] for of in updates]
            row[codec.name] = np.mean(each, 1).tolist()
        rows.append(row)
        print(f"{bits:5g} bits, {nbytes:9,} bytes  " + "  ".join(
            f"{name} " + " ".join(f"{error:7.2f}" for error in row[name])
            for name in ("eden", "peaks")))  # fmt: skip
    return {"task": options.task, "settings": SETTINGS[options.task], "rounds": list(AFTER),
            "updates": [len(of) for of in updates], "size": size, "rows": rows}  # fmt: skip


AFTER = (2, 15, 40)  # rounds


def _updates(options: argparse.Namespace) -> list[list[np.ndarray]]:
    """What the clients of some rounds say: a codec that writes float32 keeps them."""
    exact, said = parse("full").codec, []

    def encode(update: Any, key: Any) -> Any:
        if isinstance(update, np.ndarray):  # and not what stands for one when shapes are checked
            said.append(update.astype(np.float32))
        return exact.encode(update, key)

    policy = taciturn.Policy(
        rule=taciturn.full(), codec=dataclasses.replace(exact, name="kept", encode=encode)
    )
    taciturn.simulate(
        options.task, policy, plain=True, rounds=AFTER[-1] + 1, cohort=10, seeds=1,
        evaluate_every=AFTER[-1] + 1, **SETTINGS[options.task],
    )  # fmt: skip
    return [said[10 * t : 10 * (t + 1)] for t in AFTER]


def _error(codec: Codec, update: np.ndarray) -> float:
    key = np.array([7, len(update)], np.uint32)
    read = codec.decode(codec.encode(update, key), key, len(update))
    return float(np.sum((read - update) ** 2) / np.sum(update**2))


# Of each codec, one whose code of a model of 19,358 weights is about 4 kB long, or the shortest.
DRAWN = ("peaks:4kB", "eden:1", "quantize:1", "top_k:0.027", "sparse_ternary:0.12", "float16")


def figure(options: argparse.Namespace) -> dict[str, Any]:
    """Draws what each codec makes of one client's update: each dot is a weight."""
    update = _updates(options)[1][0]
    some = np.random.default_rng(0).choice(len(update), 3000, replace=False)
    key, most = np.array([7, 1], np.uint32), 1.05 * float(np.abs(update).max())
    drawn = Figure(figsize=(5, 6.6), layout="constrained")  # as wide as a phone can show
    axes = drawn.subplots(3, 2, sharex=True, sharey=True)
    rows = {}
    for one, text in zip(axes.flat, DRAWN, strict=True):
        codec = parse(f"full+{text}").codec
        read = np.asarray(codec.decode(codec.encode(update, key), key, len(update)))
        rows[text] = {"bytes": codec.nbytes(len(update)), "error": _error(codec, update)}
        one.plot([-most, most], [-most, most], color="#999", linewidth=0.8)
        one.plot(update[some], read[some], ".", markersize=2, alpha=0.5, color="#D7263D",
                 rasterized=True)  # fmt: skip
        one.set_title(f"{text}: {rows[text]['bytes'] / 1000:.1f} kB", fontsize=10)
        one.text(0.04, 0.94, f"error {rows[text]['error']:.2g}", transform=one.transAxes,
                 va="top", fontsize=9)  # fmt: skip
    # What is read as longer than the largest weight is cut off.
    axes[0, 0].set_xlim(-most, most)
    axes[0, 0].set_ylim(-1.3 * most, 1.3 * most)
    drawn.supxlabel("a weight of the update", fontsize=10)
    drawn.supylabel("what the server reads", fontsize=10)
    write(drawn, ROOT / "docs", "figure-codecs")
    return {"task": options.task, "weights": len(update), "after": AFTER[1], "codecs": rows}


WHAT = {"figure": figure, "cost": cost, "vector": vector, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--task", default="emnist", choices=SETTINGS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--codec", default="eden:0.1")
    parser.add_argument("--codecs", nargs="+", default=["eden:0.1", "peaks:4kB"])
    parser.add_argument("--runs", type=int, default=35, help="of `cost`, side by side")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", type=int, default=138_357_544)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taciturn.prepare()
    found = WHAT[options.what](options)
    name = options.what if options.what == "vector" else f"{options.what}_{options.task}"
    path = options.json or RESULTS / f"codecs_{name}.json"
    path.write_text(json.dumps(found | {"versions": versions()}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()

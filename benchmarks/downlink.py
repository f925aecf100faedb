"""Both ways: accuracy against all traffic, upload and download.

    python benchmarks/downlink.py --task emnist --seeds 5
    python benchmarks/downlink.py --task shakespeare --seeds 5 --down eden:1 sparse_ternary:0.05
    python benchmarks/downlink.py --table        writes the tables of docs/scaling.md

EMNIST has E = 2, B = 10, lr 0.1 and Shakespeare B = 4, lr 1; gradients are clipped to 1, and ten
clients are asked in a round. Shares are of all bytes that full communication in float32 has in both
directions: *drawn* for clients that are drawn from all and download what they missed, or the model
where that is shorter; *silos* for clients that are told every round. Differences to `full` are
paired by seed. What is tested is the public model, which is what clients have.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from pages import RESULTS, ROOT, put

import taciturn
from taciturn.report.versions import versions
from taciturn.summary import difference
from taciturn.tasks import load

SCALING = ROOT / "docs" / "scaling.md"
TITLES = {"emnist": "EMNIST", "shakespeare": "Shakespeare"}
SETTINGS: dict[str, dict[str, Any]] = {
    "emnist": {"epochs": 2, "batch": 10, "lr": 0.1, "clip": 1.0},
    "shakespeare": {"epochs": 1, "batch": 4, "lr": 1.0, "clip": 1.0},
    "glyphs": {},
}
DOWN = ("eden:1", "eden:0.5", "eden:0.25", "sparse_ternary:0.1", "sparse_ternary:0.05",
        "sparse_ternary:0.02", "sparse_ternary:0.01")  # fmt: skip


def measure(options: argparse.Namespace) -> dict[str, Any]:
    arms = ["full", *options.up, *(f"{up}+down={down}" for up in options.up
                                   for down in options.down)]  # fmt: skip
    others = dict(text.split("=") for text in options.setting)
    settings = SETTINGS[options.task] | {name: json.loads(value) for name, value in others.items()}
    began = time.perf_counter()
    histories = taciturn.compare(
        load(options.task), {arm: arm for arm in arms}, rounds=options.rounds,
        seeds=options.seeds, evaluate_every=max(1, options.rounds // 10),
        **{"cohort": 10, "precision": options.precision} | settings,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    full = 100 * histories["full"].accuracy[:, -1]
    rows = {}
    print(f"{'':52} accuracy    difference   up      drawn   silos   (% of full, both ways)")
    for arm, history in histories.items():
        found, shares = 100 * history.accuracy[:, -1], history.summary()
        columns = history.columns()
        silos = history.bytes_both - history.bytes_down + history.bytes_down_silos
        whole = (columns["bytes_up_full"] + columns["bytes_down_full"]).sum()
        rows[arm] = {
            "accuracy": found.tolist(),
            "mean": float(found.mean()),
            "deviation": float(found.std(ddof=1)) if len(found) > 1 else None,
            "difference_to_full": float((found - full).mean()),
            "by_round": (100 * history.accuracy.mean(0)[~_untested(history)]).tolist(),
            "upload_share": shares["upload_share"],
            "download_share": shares["download_share"],
            "traffic_share_drawn": shares["traffic_share"],
            "traffic_share_silos": float(100 * silos.sum() / whole),
        }
        row = rows[arm]
        print(f"{arm:52} {row['mean']:6.2f} {row['difference_to_full']:+11.2f}  "
              f"{row['upload_share']:8.3f} {row['traffic_share_drawn']:8.3f} "
              f"{row['traffic_share_silos']:7.3f}", flush=True)  # fmt: skip
    return {"task": options.task, "rounds": options.rounds, "seeds": options.seeds,
            "settings": settings, "precision": options.precision, "seconds": seconds,
            "arms": rows}  # fmt: skip


def table() -> str:
    """What was measured, as a table in Markdown."""
    files = [json.loads((RESULTS / f"downlink_{task}.json").read_text()) for task in TITLES]
    columns = [f"{title}: points to `full` | drawn | silos" for title in TITLES.values()]
    lines = [f"| way down | {' | '.join(columns)} |", "|---" * (1 + 3 * len(columns)) + "|"]
    for arm in dict.fromkeys(itertools.chain(*(found["arms"] for found in files))):
        if arm != "full":
            cells = [_cells(found["arms"], arm) for found in files]
            down = arm.partition("+down=")[2]
            lines.append(f"| {f'`{down}`' if down else 'float32'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(arms: dict[str, Any], arm: str) -> str:
    """Points to `full`, seed by seed, and the shares of all bytes."""
    if arm not in arms:
        return " |  | "
    row, full = arms[arm], arms["full"]
    points = difference(np.array(row["accuracy"]), np.array(full["accuracy"]))
    gap = str(points).replace("-", "−")
    return f"{gap} | {row['traffic_share_drawn']:.3g} % | {row['traffic_share_silos']:.3g} %"


def _untested(history: taciturn.History) -> Any:
    """The rounds that were not tested."""
    return (history.accuracy != history.accuracy).all(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", default="emnist", choices=SETTINGS)
    parser.add_argument("--up", nargs="+", default=["budget"])
    parser.add_argument("--down", nargs="+", default=list(DOWN))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--setting", nargs="*", default=[], help="such as epochs=3 batch=20")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", action="store_true", help="writes docs/scaling.md from JSON")
    options = parser.parse_args()
    if options.table:
        put(SCALING, "downlink", table())
        return
    taciturn.prepare()
    found = measure(options)
    path = options.json or RESULTS / f"downlink_{options.task}.json"
    path.write_text(json.dumps(found | {"versions": versions()}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()

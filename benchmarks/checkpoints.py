"""What metrics on disk and checkpoints cost: the paper's EMNIST CNN, with a folder and without.

    python benchmarks/checkpoints.py [--rounds 60] [--turns 3] [--seeds 1] [--precision float32]

Data are made up. Runs with and without a folder take turns, and each begins compiled. On a shared
machine two runs differ by more than a folder costs: what counts is `share`, the time inside the
journal (rows written, states brought to the host, checksums, files brought onto the disk) as a
share of the run's. Rounds are enough when there are several checkpoints in a run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from simulator import cnn

import taciturn
from taciturn.report.versions import versions
from taciturn.sim.checkpoint import Checkpoints

ARMS = ("full", "adaptive+ou", "budget")  # those of `taciturn run`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    taciturn.prepare()
    task = cnn()
    spent, saved = [0.0], [0]
    add, save = Checkpoints.add, Checkpoints._save

    def timed_add(self: Checkpoints, *arguments: Any, **others: Any) -> None:
        began = time.perf_counter()
        add(self, *arguments, **others)
        spent[0] += time.perf_counter() - began

    def counted_save(self: Checkpoints, *arguments: Any) -> None:
        saved[0] += 1
        save(self, *arguments)

    Checkpoints.add, Checkpoints._save = timed_add, counted_save  # type: ignore[method-assign]

    def run(folder: Path | None, rounds: int) -> float:
        began = time.perf_counter()
        taciturn.compare(
            task, {arm: arm for arm in ARMS}, rounds=rounds, cohort=10, seeds=options.seeds,
            precision=options.precision, folder=folder,
        )  # fmt: skip
        return time.perf_counter() - began

    run(None, 1)
    rows = []
    for turn in range(options.turns):
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        spent[0], saved[0] = 0.0, 0
        sides = {"without": lambda: run(None, options.rounds),
                 "with": lambda folder=folder: run(folder, options.rounds)}  # fmt: skip
        order = list(sides) if turn % 2 else list(sides)[::-1]
        seconds = {side: sides[side]() for side in order}
        largest = max(path.stat().st_size for path in folder.glob("checkpoint-*"))
        shutil.rmtree(folder)
        rows.append(
            {
                "seconds": seconds,
                "in_journal": spent[0],
                "share": spent[0] / seconds["with"],
                "checkpoints": saved[0],
                "largest_checkpoint": largest,
            }
        )
        print(f"{seconds['without']:7.2f} s without, {seconds['with']:7.2f} s with a folder: "
              f"{100 * rows[-1]['share']:.2f} % in the journal, {saved[0]} checkpoints "
              f"of up to {largest / 2**20:.0f} MiB", flush=True)  # fmt: skip
    share = statistics.median(row["share"] for row in rows)
    ratio = statistics.median(row["seconds"]["with"] / row["seconds"]["without"] for row in rows)
    print(f"In the middle: {100 * share:.2f} % in the journal, {ratio:.3f} times as long.")
    if options.json:
        content = {"versions": versions(), "arms": ARMS, "rounds": options.rounds,
                   "seeds": options.seeds, "precision": options.precision, "share": share,
                   "ratio": ratio, "turns": rows}  # fmt: skip
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()

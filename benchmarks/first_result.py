"""How long `taciturn run` takes until it shows a first accuracy, with no program compiled before.

    python benchmarks/first_result.py [--repeats 3] [--json FILE]

Each repeat has an empty cache folder: the first run compiles everything, the second finds it there.
The clock starts with the process and stops when its terminal shows an accuracy; then the run is
ended. Exits with 1 where the median is beyond 20 s with an empty cache, or 5 s with a full one.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from taciturn.report.versions import versions

RESULTS = Path(__file__).parent / "results" / "first_result.json"
LIMITS = {"empty": 20.0, "full": 5.0}  # seconds


def first_accuracy(folder: Path) -> float:
    """Seconds from the start of `taciturn run` to the first accuracy on its terminal."""
    ours, theirs = pty.openpty()
    environ = os.environ | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    environ |= {"COLUMNS": "120", "TERM": "xterm"}
    began = time.perf_counter()
    run = subprocess.Popen(
        [sys.executable, "-m", "taciturn", "run"],
        cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while not re.search(rb"\d\.\d %", seen):  # shares of clients have no decimals
            seen += os.read(ours, 1 << 16)
        return time.perf_counter() - began
    finally:
        run.kill()
        run.wait()
        os.close(ours)


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {
        cache: {"seconds": [], "processor_seconds": []} for cache in LIMITS
    }
    load = os.getloadavg()[0]
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            for cache, figures in found.items():
                used = processor_seconds()
                figures["seconds"].append(first_accuracy(Path(folder)))
                figures["processor_seconds"].append(processor_seconds() - used)
                print(f"{cache} cache: {figures['seconds'][-1]:.1f} s, of processors "
                      f"{figures['processor_seconds'][-1]:.1f} s")  # fmt: skip
    medians = {cache: statistics.median(figures["seconds"]) for cache, figures in found.items()}
    result = {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "versions": versions(),
        "limits": LIMITS,
        "median_seconds": medians,
        "runs": found,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(medians[cache] > limit for cache, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())

"""How long the report of a large run takes to write, and its page to open in headless Chromium.

    python benchmarks/report.py [--rounds 10000] [--arms 50] [--repeats 3] [--json FILE]

The folder is made up: as many rounds and arms as asked for, tested every fifth round. Writing is
timed from the start of `taciturn report` to its end, opening until all figures are drawn. Exits
with 1 where a median, or the page's size, is beyond its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from taciturn import runs
from taciturn.report.versions import versions

RESULTS = Path(__file__).parent / "results" / "report.json"
LIMITS = {"write": 5.0, "open": 2.0}  # seconds
LARGEST = 2_500_000  # bytes of the page
DRAWN = (
    "[...document.querySelectorAll('.plot')].filter(one => one.querySelector('.js-line')).length"
)


def make(folder: Path, rounds: int, arms: int) -> None:
    """A run folder like those of `taciturn run`."""
    random = np.random.default_rng(0)
    rows = []
    for arm in range(arms):
        name = f"adaptive,k={arm / 10}+ou,cap=true" if arm % 2 else f"random:{arm / arms}+ignore"
        spoke = random.integers(1, 10, rounds)
        noise = random.normal(0, 0.01, (rounds, 3))
        for t in range(rounds):
            accuracy = 0.9 - 0.8 * np.exp(-5 * t / rounds) + noise[t, 0]
            rows.append(
                {"arm": name, "seed": 0, "round": t + 1, "spoke": spoke[t], "rejected": 0,
                 "threshold": 0.5 + noise[t, 1] if arm % 2 else np.nan,
                 "norm_mean": 1 + noise[t, 2], "norm_std": 0.1 + noise[t, 1] ** 2,
                 "bytes_up": 4000 * spoke[t], "overhead_up": 240,
                 "asked": 10, "bytes_up_full": 40240, "bytes_down": 40000, "overhead_down": 160,
                 "bytes_down_full": 40160,
                 "accuracy": accuracy if t % 5 == 4 else np.nan,
                 "loss": 2 - accuracy if t % 5 == 4 else np.nan}
            )  # fmt: skip
    runs.write_csv(folder / "metrics.csv", rows)


def write(folder: Path) -> float:
    """Seconds that `taciturn report` takes."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "taciturn", "report", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def open_page(path: Path) -> float:
    """Seconds until a browser that has been started shows all figures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(path.as_uri())
        while page.evaluate(DRAWN) < page.locator(".plot").count():
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        browser.close()
        return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--arms", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.rounds, options.arms)
        writing = [write(folder) for _ in range(options.repeats)]
        opening = [open_page(folder / "report.html") for _ in range(options.repeats)]
        metrics, page = ((folder / file).stat().st_size for file in ("metrics.csv", "report.html"))
    seconds = {"write": writing, "open": opening}
    median = {what: statistics.median(times) for what, times in seconds.items()}
    result: dict[str, Any] = {
        "rounds": options.rounds, "arms": options.arms, "metrics_bytes": metrics,
        "page_bytes": page, "cores": os.cpu_count(), "load_before": load, "versions": versions(),
        "limits": LIMITS, "median_seconds": median, "seconds": seconds,
    }  # fmt: skip
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return int(any(median[what] > limit for what, limit in LIMITS.items()) or page > LARGEST)


if __name__ == "__main__":
    sys.exit(main())

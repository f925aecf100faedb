"""Writes the table of the peers from the JSON of `benchmarks/peers/run.py`.

python benchmarks/table.py          puts it between the marks in docs/performance.md
"""

from __future__ import annotations

import json
from pathlib import Path

from pages import RESULTS, ROOT, put

NAMES = {
    "pfl": "pfl-research, client by client",
    "pfl-workers": "pfl-research, a process per core",
    "flower": "Flower's simulation",
    "torch-lstm": "PyTorch, client by client",
    "taciturn": "**Taciturn, one run**",
    "taciturn-35": "**Taciturn, 35 runs side by side**",
}
TASKS = {"cnn": "EMNIST CNN", "lstm": "Shakespeare LSTM"}


def table(results: Path = RESULTS) -> str:
    lines = [
        "| on | model | | examples/s | Taciturn is faster by | with 35 runs |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(results.glob("peers_*.json")):
        found = json.loads(path.read_text())
        where = found["device"] or f"{found['threads']} cores, {found['cpu']}"
        settings = dict(text.split("=") for text in found.get("taciturn_settings", []))
        if "precision" in settings:
            where += f", {settings['precision']}"
        for task, result in found["tasks"].items():
            for name, side in result["sides"].items():
                factors = (side.get("taciturn_times_faster"), side.get("taciturn_35_times_faster"))
                cells = [f"{factor:.1f} ×" if factor else "" for factor in factors]
                lines.append(
                    f"| {where} | {TASKS[task]} | {NAMES[name]} | {side['per_second']:,.0f} |"
                    f" {cells[0]} | {cells[1]} |"
                )
    return "\n".join(lines)


def main() -> None:
    put(ROOT / "docs" / "performance.md", "peers", table())


if __name__ == "__main__":
    main()

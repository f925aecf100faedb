"""Writes the table of the peers from the JSON of `benchmarks/peers/run.py`.

python benchmarks/table.py          puts it between the marks in docs/performance.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import RESULTS, ROOT, put

RIVALS = {
    "pfl": "pfl-research, client by client",
    "pfl-workers": "pfl-research, a process per core",
    "flower": "Flower's simulation",
    "torch-lstm": "PyTorch, client by client",
}
TASKS = {"cnn": "EMNIST CNN", "lstm": "Shakespeare LSTM"}


def table(results: Path = RESULTS) -> str:
    lines = [
        "| on | model | rival | its examples/s | Taciturn's | | with 35 runs | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(results.glob("peers_*.json")):
        found = json.loads(path.read_text())
        where = found["device"] or f"{found['threads']} cores, {found['cpu'].partition(',')[0]}"
        settings = dict(text.split("=") for text in found.get("taciturn_settings", []))
        if "precision" in settings:
            where += f", {settings['precision']}"
        for task, result in found["tasks"].items():
            sides = result["sides"]
            for name, rival in RIVALS.items():
                if name in sides:
                    cells = [where, TASKS[task], rival, f"{sides[name]['per_second']:,.0f}"]
                    cells += _ours(sides, name, "taciturn")
                    cells += _ours(sides, name, "taciturn-35")
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ours(sides: dict[str, Any], rival: str, side: str) -> list[str]:
    """Examples per second of a side of ours, and how many times the rival's they are."""
    if side not in sides:
        return ["", ""]
    times = sides[rival][f"{side.replace('-', '_')}_times_faster"]
    return [f"{sides[side]['per_second']:,.0f}", f"{times:.1f} ×"]


def main() -> None:
    put(ROOT / "docs" / "performance.md", "peers", table())


if __name__ == "__main__":
    main()

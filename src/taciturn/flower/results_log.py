"""What Flower's `Result` has of every round, a line each, found again by the next start."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord

from taciturn import runs

Results = Mapping[str, Mapping[int, MetricRecord]]  # by attribute of `Result`, and round


class ResultsLog:
    """The file `results.jsonl` of a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, round: int, kind: str, metrics: Mapping[str, Any]) -> None:
        """Appends what `Result` has of a round; of two for the same, the later one counts."""
        line = {"round": round, "kind": kind, "metrics": dict(metrics)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def load(self, last: int) -> Results:
        """What was appended up to the last round; the rest is cut off."""
        found: dict[str, dict[int, MetricRecord]] = defaultdict(dict)
        if not self.path.exists():  # a folder of earlier versions
            return found
        kept, there = "", self.path.read_text("utf-8")
        for text in there.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break  # it was being written
            if line["round"] <= last:
                found[line["kind"]][line["round"]] = MetricRecord(line["metrics"])
                kept += text + "\n"
        if kept != there:
            runs.write_text(self.path, kept)
        return found

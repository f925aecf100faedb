"""What a server must not lose of every round, a line each, found again by the next start."""

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taciturn import runs

ROW = "row"  # the kind of a round's row in the history; others are attributes of Flower's `Result`
Results = Mapping[str, dict[int, dict[str, Any]]]  # by kind and round


class ResultsLog:
    """The file `results.jsonl` of a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, round: int, kind: str, figures: Mapping[str, Any]) -> None:
        """Appends figures of a round; of two lines of the same kind, the later one counts."""
        line = {"round": round, "kind": kind, "metrics": dict(figures)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def load(self, last: int) -> Results:
        """The figures up to the round `last`; later lines are cut off."""
        found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        if not self.path.exists():
            return found
        kept, there = "", self.path.read_text("utf-8")
        for text in there.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break  # the server died while it wrote this line
            if line["round"] <= last:
                found[line["kind"]][line["round"]] = line["metrics"]
                kept += text + "\n"
        if kept != there:
            runs.write_text(self.path, kept)
        return found

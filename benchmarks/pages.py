"""Tables in pages: each between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SECURITY = ROOT / "docs" / "security.md"
PRODUCTION = ROOT / "docs" / "production.md"


def put(page: Path, name: str, table: str) -> None:
    """Replaces the table of this name."""
    begin, end = f"<!-- table: {name} -->", "<!-- end -->"
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no place between {begin} and {end}.")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", "utf-8")


def commit() -> str | None:
    """The checkout's commit, with `-dirty` where tracked files differ; None outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None

"""Tables in pages: each between two marks, `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SECURITY = ROOT / "docs" / "security.md"


def put(page: Path, name: str, text: str) -> None:
    """Replaces what stands between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no place between {begin} and {end}.")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")

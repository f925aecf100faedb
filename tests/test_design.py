"""docs/design.md is the map: its tree is the folder, and every name in its tables is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "taciturn"
DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")


def tree() -> dict[str, str]:
    """Path -> what is said of it, of the first code block after `## The tree`."""
    block = DESIGN.partition("## The tree")[2].split("```")[1]
    found, folders = {}, []
    for line in block.splitlines():
        name, _, about = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0 or not name:
            continue
        folders = folders[: depth - 1]
        found["".join([*folders, name])] = about.strip()
        if name.endswith("/"):
            folders.append(name)
    return found


def test_the_tree_is_complete() -> None:
    files = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py" or path.parent == SOURCE
    }
    folders = {f"{path.parent.relative_to(SOURCE).as_posix()}/"
               for path in SOURCE.rglob("*.py") if path.parent != SOURCE}  # fmt: skip
    assert set(tree()) == files | folders


def test_every_file_is_described() -> None:
    assert [path for path, about in tree().items() if len(about.split()) < 2] == []


def test_files_that_the_page_names_are_there() -> None:
    named = set(
        re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", DESIGN.partition("## Where a change")[2])
    )
    assert len(named) > 20
    assert [name for name in named if not (SOURCE / name).exists()
            and not (ROOT / name).exists() and not list(SOURCE.rglob(name))] == []  # fmt: skip


def test_symbols_that_the_table_names_are_there() -> None:
    """Such as `sim/rounds.py` `Seen`."""
    table = DESIGN.partition("## Where a change goes")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_/]+\.py)`,? `(\w+)`", table)
    named += [(path, name) for name, path in re.findall(r"`(\w+)` of `([a-z_/]+\.py)`", table)]
    assert len(named) > 4
    for path, name in named:
        assert re.search(rf"\b{name}\b", (SOURCE / path).read_text("utf-8")), (path, name)


def test_no_file_is_too_long_to_read() -> None:
    """Those that stand here are to be cut by what rewrites them."""
    long = {path.name for path in SOURCE.rglob("*.py")
            if len(path.read_text("utf-8").splitlines()) > 400}  # fmt: skip
    assert long <= {"strategy.py"}

"""Examples: each runs as a reader would run it, and learns something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
CHANCE = {"equinox_task": 100 / 3, "flax_task": 50.0}


OWN = ("own_rule", "own_stand_in", "own_codec")


ROOT = EXAMPLES.parent
APPS = sorted([*EXAMPLES.glob("*/pyproject.toml"), *ROOT.glob("tests/*/*/pyproject.toml")])
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *EXAMPLES.glob("*/README.md")])


@pytest.mark.parametrize("path", APPS, ids=lambda path: path.parent.name)
def test_an_app_depends_on_no_name_that_a_stranger_could_take(path: Path) -> None:
    needed = tomllib.loads(path.read_text("utf-8"))["project"]["dependencies"]
    assert not [one for one in needed if one.startswith("taciturn")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_asks_an_index_for_taciturn(path: Path) -> None:
    asked = re.findall(r"pip install [^`\n]*", path.read_text("utf-8"))
    assert not [line for line in asked if re.search(r"""[ '"]taciturn(\[|['" ]|$)""", line)]


def run_example(name: str) -> list[tuple[str, float, float]]:
    """What an example prints: names, accuracies, shares of the upload."""
    source = str(EXAMPLES.parent / "src")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")], text=True,
        capture_output=True, timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": source},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = re.findall(r"^(\S+) +([\d.]+) % right, +([\d.]+) % of the uploads$", result.stdout,
                       re.MULTILINE)  # fmt: skip
    return [(arm, float(accuracy), float(upload)) for arm, accuracy, upload in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_a_part_of_ones_own_runs_and_uploads_less(name: str) -> None:
    (full, accuracy, upload), *others = run_example(name)
    assert (full, upload) == ("full", 100)
    assert len(others) == 2
    assert min(accuracy, *(right for _, right, _ in others)) > 90
    assert all(1 < sent < 80 for *_, sent in others)
    assert others[0][2] != others[1][2]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANCE)
def test_an_example_runs_and_learns(name: str) -> None:
    found = run_example(name)
    assert [row[0] for row in found] == ["full", "adaptive,k=0+ou"]
    (_, full, all_of_it), (_, quiet, part) = found
    assert min(full, quiet) > CHANCE[name] + 20
    assert all_of_it == 100
    assert 10 < part < 90

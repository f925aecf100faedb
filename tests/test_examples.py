"""Examples: each runs as a reader would run it, and learns something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
CHANCE = {"equinox_task": 100 / 3, "flax_task": 50.0}


def test_every_example_is_here() -> None:
    assert {file.stem for file in EXAMPLES.glob("*_task.py")} == set(CHANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANCE)
def test_an_example_runs_and_learns(name: str) -> None:
    source = str(EXAMPLES.parent / "src")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")], text=True,
        capture_output=True, timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": source},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = re.findall(r"^(\S+) +([\d.]+) % right, +([\d.]+) % of the uploads$", result.stdout,
                       re.MULTILINE)  # fmt: skip
    assert [row[0] for row in found] == ["full", "adaptive,k=0+ou"]
    (full, all_of_it), (quiet, part) = ((float(a), float(b)) for _, a, b in found)
    assert min(full, quiet) > CHANCE[name] + 20
    assert all_of_it == 100
    assert 10 < part < 90

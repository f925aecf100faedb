"""A small part of `benchmarks/honest_limits.py`, and what it left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")
pytest.importorskip("jax", reason="the simulator is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import honest_limits
from pages import SECURITY


def test_replies_that_were_limited_are_counted(caplog):
    """Nodes that are unlike: with the tightest limits, most that is above the median is cut."""
    caplog.set_level("INFO", "flwr")
    federation = honest_limits.Federation("synthetic-niid", 6)
    tight = {"weight_limit": 1.0, "norm_limit": 1.0}
    found = honest_limits.measure(federation, "fixed:0+zero", tight, rounds=2, seeds=1)
    cut = [line for line in caplog.messages if line.startswith("Taciturn: the update of node")]
    lighter = [line for line in caplog.messages if "weighs" in line]
    assert found["shortened"] == round(len(cut) / 12, 4) > 0
    assert found["lightened"] == round(len(lighter) / 12, 4) > 0
    assert found["spoke"] == 1.0
    free = honest_limits.measure(federation, "full", honest_limits.FREE, rounds=1, seeds=1)
    assert free["shortened"] == free["lightened"] == 0


def test_the_table_in_the_documentation_is_that_of_the_results():
    found = json.loads(honest_limits.FILE.read_text())
    assert honest_limits.table(found) in SECURITY.read_text()

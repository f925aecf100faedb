"""What codecs lose of real updates is on the page as it was measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("task", ["emnist", "shakespeare", "glyphs"])
def test_the_page_has_what_was_measured(task: str) -> None:
    # By its path: Python itself has a module of that name.
    spec = importlib.util.spec_from_file_location("benchmark", ROOT / "benchmarks" / "codecs.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    assert benchmark.table(task) in (ROOT / "docs" / "policies.md").read_text("utf-8")

"""The tables of the way down are those of the committed files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("task", ["emnist", "shakespeare"])
def test_the_page_has_what_was_measured(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import downlink

    assert downlink.table(task) in downlink.POLICIES.read_text()
    sys.modules.pop("downlink")

"""Budgets that change over time spend what an even one does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from taciturn import compare

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


EARLY = {"even": 1.0, "rising": 0.44, "steep": 0.27, "falling": 1.56}


def test_every_shape_spends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import over_time

    policies = {shape: over_time.spent("4%", shape, 100) for shape in EARLY}
    for shape, history in compare("synthetic-niid", policies, rounds=100, cohort=10).items():
        sent = (history.bytes_up + history.overhead_up)[0]
        target = 0.04 * history.columns()["bytes_up_full"].mean()
        assert sent.sum() == pytest.approx(100 * target, rel=0.05), shape
        assert sent[:30].mean() == pytest.approx(EARLY[shape] * target, rel=0.25), shape
        assert np.isfinite(history.weights[0]).all(), shape
    sys.modules.pop("over_time")

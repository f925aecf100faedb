"""Budgets that change over time spend what an even one does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from taciturn import simulate

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(
    ("shape", "early"), [("even", 1.0), ("rising", 0.44), ("steep", 0.27), ("falling", 1.56)]
)
def test_every_shape_spends_the_same(
    shape: str, early: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import over_time

    policy = over_time.spent("4%", shape, 100)
    history = simulate("synthetic-niid", policy, rounds=100, cohort=10)
    sent = (history.bytes_up + history.overhead_up)[0]
    target = 0.04 * history.columns()["bytes_up_full"].mean()
    assert sent.sum() == pytest.approx(100 * target, rel=0.05)
    assert sent[:30].mean() == pytest.approx(early * target, rel=0.25)
    assert np.isfinite(history.weights[0]).all()
    sys.modules.pop("over_time")

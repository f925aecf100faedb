"""Budgets that change over time spend what an even one does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from taciturn import simulate

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(("first", "early"), [(1.0, 1.0), (0.2, 0.44), (1.8, 1.56)])
def test_the_share_goes_evenly_from_first_to_last(
    first: float, early: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import over_time

    policy = over_time.spent("6%", first, 100)
    history = simulate("synthetic-niid", policy, rounds=100, cohort=10)
    sent = (history.bytes_up + history.overhead_up)[0]
    target = 0.06 * history.columns()["bytes_up_full"].mean()
    assert sent.sum() == pytest.approx(100 * target, rel=0.05)
    assert sent[:30].mean() == pytest.approx(early * target, rel=0.1)
    assert np.isfinite(history.weights[0]).all()
    sys.modules.pop("over_time")

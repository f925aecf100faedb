"""Budgets: the engine is the plain loop, and a run keeps to its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from small_tasks import assert_agree

import taciturn
from taciturn.tasks import load


def test_budgets_are_the_plain_loop() -> None:
    """To the byte, where codes have many lengths, some are silent and some never answer."""
    texts = "budget", "budget:400B+ou", "full+peaks:2", "budget:20%+zero", "budget:3kB,per=run+own"
    found = assert_agree(load("synthetic"), dict(zip(texts, texts, strict=True)), cohort=4,
                         rounds=8, seeds=2, lanes=1, dropout=0.3)  # fmt: skip
    for text in texts:
        if text.startswith("budget:"):
            lengths = found[text].bytes_up / np.maximum(found[text].spoke, 1)
            assert len(np.unique(lengths)) > 3, text
    assert found[texts[-1]].participation.silent.sum() > 0


def test_a_run_keeps_to_its_budget() -> None:
    """With headers; of 1,000 clients that are asked."""
    text = "budget:100B,per=client"
    found = taciturn.simulate("synthetic", text, rounds=100, cohort=10)
    np.testing.assert_allclose((found.bytes_up + found.overhead_up).sum(1), 100_000, rtol=0.1)


def test_a_budget_that_cannot_be_kept_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    arms = {text: text for text in ("full", "budget:2%", "budget:12%")}
    taciturn.compare("synthetic", arms, rounds=1, cohort=2, plain=True)
    (told,) = (r.getMessage() for r in caplog.records if r.name == "taciturn")
    assert told.startswith("budget:2%: ")
    assert "101 weights" in told

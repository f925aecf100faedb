"""Rules learn in every round: no threshold stays above all norms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import taciturn
from taciturn.tasks import load


def longest(silent: np.ndarray) -> int:
    """The most rounds running."""
    return max((len(list(run)) for one, run in itertools.groupby(silent) if one), default=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "stand_ins"),
    [("synthetic", ("ignore", "zero", "ou")), ("synthetic-niid", ("ignore", "zero", "ou")),
     ("glyphs", ("ignore",))],
)  # fmt: skip
def test_nobody_is_silent_for_long(task: str, stand_ins: tuple[str, ...]) -> None:
    arms = {text: text for text in (f"adaptive,k={k}+{s}" for k in (0, 1) for s in stand_ins)}
    found = taciturn.compare(load(task), arms, rounds=60, cohort=10, seeds=1)
    for text, history in found.items():
        assert max(longest(seed[10:] == 0) for seed in history.spoke) <= 3, text


def test_rounds_running_are_counted() -> None:
    assert longest(np.array([1, 0, 1, 1, 0]) == 1) == 2
    assert longest(np.zeros(3, bool)) == 0

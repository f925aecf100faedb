"""What has to hold on the paper's synthetic task: 100 rounds, cohort 10, five seeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import taciturn

ARMS = ("full", "adaptive+ou", "adaptive+zero", "random:0.5+ou,mode=paper", "random:0.5+ou")


@pytest.fixture(scope="module")
def histories() -> Mapping[str, taciturn.History]:
    return taciturn.compare(
        "synthetic", {arm: arm for arm in ARMS}, rounds=100, cohort=10, seeds=5, evaluate_every=100
    )


def accuracy(history: taciturn.History) -> np.ndarray:
    return 100 * history.accuracy[:, -1]


@pytest.mark.slow
def test_adaptive_with_ou_keeps_the_accuracy_of_full_communication(
    histories: Mapping[str, taciturn.History],
) -> None:
    ours = accuracy(histories["adaptive+ou"]).mean()
    assert ours >= accuracy(histories["full"]).mean() - 0.3
    assert ours >= accuracy(histories["adaptive+zero"]).mean()
    assert histories["adaptive+ou"].summary()["upload_share"] < 90


@pytest.mark.slow
def test_random_with_the_unbounded_fit_is_unstable(
    histories: Mapping[str, taciturn.History],
) -> None:
    """The paper's own table: with random clients its estimator explodes; bounds prevent it."""
    unbounded = accuracy(histories["random:0.5+ou,mode=paper"])
    assert unbounded.std() > 5 or not np.isfinite(unbounded).all()
    assert accuracy(histories["random:0.5+ou"]).std() < 1

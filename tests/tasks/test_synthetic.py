"""What has to hold on the paper's synthetic task: 100 rounds, cohort 10, five seeds."""

import numpy as np
import pytest

import taciturn

ARMS = ("full", "adaptive+ou", "adaptive+zero", "random:0.5+ou,mode=paper", "random:0.5+ou")


@pytest.mark.slow
def test_what_the_paper_says_of_its_synthetic_task():
    histories = taciturn.compare(
        "synthetic", {arm: arm for arm in ARMS}, rounds=100, cohort=10, seeds=5, evaluate_every=100
    )
    accuracy = {arm: 100 * history.accuracy[:, -1] for arm, history in histories.items()}
    # The adaptive rule with OU keeps the accuracy of full communication.
    ours = accuracy["adaptive+ou"].mean()
    assert ours >= accuracy["full"].mean() - 0.3
    assert ours >= accuracy["adaptive+zero"].mean()
    assert histories["adaptive+ou"].summary()["upload_share"] < 90
    # With random clients the paper's estimator explodes, as in its own table; bounds prevent it.
    unbounded = accuracy["random:0.5+ou,mode=paper"]
    assert unbounded.std() > 5 or not np.isfinite(unbounded).all()
    assert accuracy["random:0.5+ou"].std() < 1

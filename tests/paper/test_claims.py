"""Verdicts follow from the numbers."""

import numpy as np
import pytest

from taciturn.paper import claims
from taciturn.paper.experiments import (
    BY_COHORT,
    EMNIST,
    EXPERIMENTS,
    FIXED,
    SHAKESPEARE,
    THRESHOLDS,
)
from taciturn.studies.results import Arm, Results

TESTED = np.arange(5, 101, 5)
SIZE = 1000
MEASURED = {
    "increments_normal_share": 95.0,
    "increments_of_ten_steps_normal_share": 95.0,
    "increments_kurtosis_median": 0.1,
    "unit_root_rejected_share": 95.0,
    "unit_root_rejected_in_last_epoch_share": 95.0,
    "steps": 3000,
}


def arm(final, rate=1.0, threshold=0.5, spread=0.01, swing=0.01, policy=""):
    rng = np.random.default_rng(0)
    seeds = 5
    accuracy = np.full((seeds, len(TESTED)), float(final)) + swing * rng.normal(size=(seeds, 20))
    accuracy[:, -1] = final + 0.01 * np.arange(seeds)
    path = threshold + spread * rng.normal(size=(seeds, 100))
    uploaded = np.tile(TESTED * 10 * rate * (4 * SIZE + 24), (seeds, 1))
    spoke = np.full((seeds, 100), 10 * rate)
    return Arm(policy, tuple(range(seeds)), TESTED, accuracy, uploaded, spoke, path)


def results(experiment, arms, cohort=10):
    return Results(experiment, 100, cohort, SIZE, arms, (), {}, {})


def as_the_paper_says():
    """Numbers with which every claim of the paper holds."""
    main = {"full": arm(80)}
    for rule, worse in (("adaptive", 0), ("random", 10)):
        main |= {
            f"{rule} ou": arm(80 - worse, 0.5),
            f"{rule} ou constrained": arm(80 - worse, 0.5),
            f"{rule} zero": arm(70 - worse, 0.5),
            f"{rule} ignore": arm(75 - worse, 0.5, threshold=0.6, spread=0.2, swing=5),
        }
    fixed = {
        f"{threshold} {name}": arm(80 - 20 * i, 1 - i / 4)
        for i, threshold in enumerate(THRESHOLDS)
        for name in ("ou", "ou constrained", "zero", "ignore")
    }
    found = {name: results(EXPERIMENTS[name], main) for name in (EMNIST.name, SHAKESPEARE.name)}
    for i, (cohort, experiment) in enumerate(BY_COHORT.items()):
        better = {name: a._replace(accuracy=a.accuracy + i) for name, a in main.items()}
        found[experiment.name] = results(experiment, better, cohort)
    return found | {FIXED.name: results(FIXED, fixed)}


def test_all_hold_with_numbers_as_the_paper_has_them():
    found = claims.claims(as_the_paper_says(), MEASURED)
    assert len(found) > 5
    for claim in found:
        assert claim.verdict == claims.HOLDS, claim


def changed(found, experiment, **arms):
    result = found[experiment.name]
    renamed = {name.replace("_", " "): value for name, value in arms.items()}
    return found | {experiment.name: result._replace(arms=result.arms | renamed)}


@pytest.mark.parametrize(
    ("text", "arms", "verdict"),
    [
        ("`ou` beats", {"adaptive_ou": arm(72, 0.5)}, claims.IN_PART),
        ("adaptive beats random", {"random_zero": arm(90, 0.5)}, claims.IN_PART),
        ("`ou` is stable", {"adaptive_ou": arm(80, 0.5, spread=0.5, swing=9)}, claims.IN_PART),
    ],
)
def test_one_data_set_that_differs_makes_it_hold_in_part(text, arms, verdict):
    found = changed(as_the_paper_says(), EMNIST, **arms)
    (claim,) = [c for c in claims.claims(found, MEASURED) if c.text.startswith(text)]
    assert claim.verdict == verdict


def test_savings_at_lower_accuracy_do_not_count():
    found = as_the_paper_says()
    for experiment in (EMNIST, SHAKESPEARE):
        found = changed(found, experiment, adaptive_ou=arm(70, 0.5))
    (claim,) = [c for c in claims.claims(found, MEASURED) if c.text.startswith("`ou` saves")]
    assert claim.verdict == claims.FAILS


def test_a_collapse_is_named():
    fallen = arm(80, 0.5)
    fallen.accuracy[2, -1] = 1.0
    found = changed(as_the_paper_says(), EMNIST, adaptive_ou=fallen)
    first = claims.claims(found, MEASURED)[0]
    assert "collapses in 1 of 5 seeds" in first.because


def test_one_seed_decides_nothing():
    d = claims.difference(np.array([5.0]), np.array([1.0]))
    assert not d.ahead
    assert not d.behind


def test_the_interval_is_students():
    d = claims.difference(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.zeros(5))
    assert d.mean == 3
    assert d.half == pytest.approx(2.776 * np.sqrt(2.5 / 5), rel=1e-3)

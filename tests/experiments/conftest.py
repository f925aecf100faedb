"""Results that no one ran, for tests of what is made of results."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the experiments are in no package

from experiments.paper.experiments import EXPERIMENTS

from taciturn.studies.results import results_of


@pytest.fixture(scope="session")
def made_up():
    """Every experiment, with numbers of no meaning; `ou` collapses in every third seed."""
    return {name: made_up_result(experiment) for name, experiment in EXPERIMENTS.items()}


def made_up_result(experiment):
    rng = np.random.default_rng(len(experiment.name))
    rounds, cohort, every = 100, 10, 20
    tested = list(range(every, rounds + 1, every))
    runs = []
    for arm, text in experiment.arms.items():
        for seed in range(3):
            collapses = text.endswith("mode=paper") and seed == 2
            end = 10 if collapses else 70 + rng.normal()
            spoke = rng.integers(1, cohort + 1, rounds)
            sent = np.cumsum(spoke)[np.array(tested) - 1] * 1000
            runs.append({
                "arm": arm, "policy": text.replace("?", "0.5"), "seed": seed, "tested": tested,
                "accuracy": [end * t / rounds for t in tested], "uploaded": sent.tolist(),
                "spoke": spoke.tolist(), "rejected": 7,
                "threshold": [0.0, *rng.uniform(0.1, 2, rounds - 1)] if "adap" in text else None,
            })  # fmt: skip
    settings = {"rounds": rounds, "cohort": cohort, "precision": "float32"}
    device = {"device": "1 × test", "python": "3", "jax": "0", "numpy": "2"}
    data = {"clients": 405, "examples": 59_725, "tests": 10, "sha256": "0" * 64, "constant": 18.5}
    return results_of(experiment, {
        "settings": settings, "weights": 250, "runs": runs, "data": data,
        "pieces": [{"arms": ["full"], "seeds": [0, 2], "seconds": 9.0, "versions": device}],
    })  # fmt: skip

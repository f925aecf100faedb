"""The experiments lie beside the package, in the repository's root."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def drawn(policy, seed, rounds):
    """Columns of a history, (1, rounds) each, which follow from policy and seed."""
    from taciturn.sim import history

    rng = np.random.default_rng([seed, *str(policy).encode()])
    columns = {name: rng.random((1, rounds)) for name in (*history.MEASURED, *history.TESTED)}
    return columns | {"missing": np.zeros((1, rounds)), "spoke": rng.integers(2, 8, (1, rounds))}


@pytest.fixture
def counted(monkeypatch):
    """The policies and seeds of every piece, whose figures are drawn: nothing is trained."""
    from experiments.common import pieces
    from taciturn.core.policy import parse
    from taciturn.sim.history import History

    calls = []

    def compare(task, policies, *, seeds, rounds, cohort, choice=0, **others):
        calls.append((list(policies), seeds))
        found = {}
        for arm, policy in policies.items():
            own = [drawn(policy, seed, rounds) for seed in seeds]
            found[arm] = History(
                policy=parse(policy), seeds=seeds, cohort=cohort, choice=choice, size=100,
                seconds=np.ones(rounds), weights=None, participation=None,
                **{name: np.concatenate([one[name] for one in own]) for name in own[0]},
            )  # fmt: skip
        return found

    monkeypatch.setattr(pieces, "compare", compare)
    return calls

"""The stand-in `own`: a silent client is counted with what it said last.

Few clients, so that every one is asked again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_tasks import assert_agree, distance, program_of
from test_cohorts import ROUNDS, alike, table, train
from test_feedback import few

import taciturn
from taciturn.core import server, tally
from taciturn.core.messages import Message
from taciturn.core.policy import parse
from taciturn.errors import InputError
from taciturn.sim import devices, draws

ARMS = {
    text: text
    for text in (
        "full",
        "random:0.5+own",
        "adaptive,k=0+own+top_k:0.1,feedback=true",
        "adaptive,k=0+last+eden:0.5",
        "optimal:0.4+own+eden:0.5",
    )
}
EXACT = {text: text for text in ("random:0.5+own", "full", "optimal:0.4+own", "adaptive,k=0+zero")}


@pytest.mark.parametrize("lanes", [1, 3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arms", [ARMS, EXACT], ids=["codecs", "float32"])
def test_own_is_the_plain_loop(arms: dict[str, str], lanes: int) -> None:
    found = assert_agree(few(), arms, cohort=4, rounds=6, seeds=2, lanes=lanes)
    for text in arms:
        assert text == "full" or 0 < found[text].spoke.sum() < 48


def test_own_with_clients_that_never_answer_is_the_plain_loop() -> None:
    assert_agree(few(), EXACT, cohort=4, rounds=6, lanes=3, dropout=0.4)


def by_hand(population: int, seed: int) -> np.ndarray:
    """All are asked in every round; half of them speak, the others are counted as before."""
    data = table(population)
    n, weights, last = data["rows"].astype(float), np.zeros(4), np.zeros((population, 4))
    for t in range(ROUNDS):
        keys = draws.round_keys(draws.run_keys(seed), t)
        speaks = np.zeros(population, bool)
        speaks[draws.cohort(keys, population, population)] = draws.uniforms(keys, population) < 0.5
        last = np.where(speaks[:, None], train(weights, data), last)
        weights = weights + n @ last / n.sum()
    return weights


@pytest.mark.parametrize("lanes", [1, 7])
def test_who_is_silent_counts_with_what_it_said_last(lanes: int) -> None:
    population, seed = 60, 3
    history = taciturn.simulate(
        alike(population), "random:0.5+own",
        rounds=ROUNDS, cohort=population, seeds=(seed,), lanes=lanes,
    )  # fmt: skip
    np.testing.assert_allclose(history.weights[0], by_hand(population, seed), rtol=1e-4, atol=1e-6)


def test_with_probabilities_the_mean_is_right_on_average() -> None:
    """Σ n f + Σ_spoke n (Δ − f)/p over Σ n is the mean of everyone, whatever was said before."""
    rng = np.random.default_rng(0)
    updates, last = rng.normal(0, 1, (2, 3, 4))
    examples, chances = np.array([1.0, 2.0, 5.0]), np.array([0.2, 0.5, 0.9])
    policy = parse("optimal:0.5+own")
    memory = server.remember(policy, np.zeros(4))
    opening, mean = server.open(policy, memory, 3), np.zeros(4)
    for speaks in np.ndindex(2, 2, 2):  # every outcome, with its probability
        heard = tally.start(np.zeros(4))
        for k, spoke in enumerate(speaks):
            message = Message(
                examples[k], float(np.linalg.norm(updates[k])), updates[k] if spoke else None,
                probability=chances[k],
            )  # fmt: skip
            heard = tally.add(heard, message, opening, last=last[k])
        step, _, _ = server.learn(policy, memory, heard)
        mean = mean + np.prod(np.where(speaks, chances, 1 - chances)) * step
    np.testing.assert_allclose(mean, examples @ updates / examples.sum())


def test_a_client_that_is_rejected_is_not_stood_in_for() -> None:
    heard = tally.start(np.zeros(2))
    opening = tally.Opening((), np.inf, np.inf)
    for message in (Message(1, np.nan, None), Message(0, 1.0, None)):
        heard = tally.add(heard, message, opening, last=np.ones(2))
    assert heard.n_rejected == 2
    assert not heard.spoken.any()


def test_only_arms_that_need_it_have_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}

    def run() -> None:
        arms = {text: text for text in ("full", "random:0.5+own", "random:0.5+zero")}
        found.update(taciturn.compare(few(), arms, rounds=5, cohort=6, seeds=2, lanes=1))

    program = program_of(run, monkeypatch)
    assert program.rounds.hearing.repeating.tolist() == [2, 3]
    ends = [history.weights for history in found.values()]
    assert all(distance(ends[1], other) > 1e-3 for other in (ends[0], ends[2]))


def test_what_does_not_fit_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(devices, "memory", lambda: 2_500)
    with pytest.raises(InputError, match=r"With `own` .* 6 clients × 105 weights need 0\.0 GiB"):
        taciturn.compare(
            few(), {"own": "random:0.5+own"}, rounds=4, cohort=4, devices=1, progress=told.append
        )
    assert not told

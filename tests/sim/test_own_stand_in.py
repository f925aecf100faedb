"""The stand-in `own`: a silent client is counted with what it said last.

Few clients, so that every one is asked again and again.
"""

from __future__ import annotations

import numpy as np
from test_cohorts import ROUNDS, alike, table, train

import taciturn
from taciturn.core import server, tally
from taciturn.core.messages import Message
from taciturn.core.policy import parse
from taciturn.sim import draws


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


def test_who_is_silent_counts_with_what_it_said_last() -> None:
    population, seed = 60, 3
    history = taciturn.simulate(
        alike(population), "random:0.5+own",
        rounds=ROUNDS, cohort=population, seeds=(seed,), lanes=7,
    )  # fmt: skip
    np.testing.assert_allclose(history.weights[0], by_hand(population, seed), rtol=1e-4, atol=1e-6)


def test_with_probabilities_the_mean_is_right_on_average() -> None:
    """Σ n f + Σ_spoke n (Δ − f)/p over Σ n is the mean of everyone, whatever was said before."""
    rng = np.random.default_rng(0)
    updates, last = rng.normal(0, 1, (2, 3, 4))
    examples, chances = np.array([1.0, 2.0, 5.0]), np.array([0.2, 0.5, 0.9])
    policy = parse("optimal:0.5+own")
    memory = server.remember(policy, np.zeros(4))
    config, mean = server.open(policy, memory, 3), np.zeros(4)
    for speaks in np.ndindex(2, 2, 2):  # every outcome, with its probability
        heard = tally.start(np.zeros(4))
        for k, spoke in enumerate(speaks):
            message = Message(
                examples[k], float(np.linalg.norm(updates[k])), updates[k] if spoke else None,
                probability=chances[k],
            )  # fmt: skip
            heard = tally.add(heard, message, config, last=last[k])
        step, _, _ = server.learn(policy, memory, heard)
        mean = mean + np.prod(np.where(speaks, chances, 1 - chances)) * step
    np.testing.assert_allclose(mean, examples @ updates / examples.sum())


def test_a_client_that_is_rejected_is_not_stood_in_for() -> None:
    heard = tally.start(np.zeros(2))
    config = tally.RoundConfig((), np.inf, np.inf)
    for message in (Message(1, np.nan, None), Message(0, 1.0, None)):
        heard = tally.add(heard, message, config, last=np.ones(2))
    assert heard.n_rejected == 2
    assert not heard.spoken.any()

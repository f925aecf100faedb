"""Rules that look at more than the norm, and rules that say how likely a client was to speak."""

import numpy as np
import pytest
from small_tasks import assert_agree, tiny

from taciturn.core import server, tally
from taciturn.core.policy import Policy, parse
from taciturn.core.rules import ClientStats, Nothing, Rule, Threshold
from taciturn.core.standins import ignore, last, ou, own, zero
from taciturn.core.tally import Message


def impatient(most):
    """Silent unless it was silent so many times running."""
    return Rule("impatient", (("most", most),), init=lambda size, rounds: Threshold(1e9),
                speaks=lambda own, context: (own.norm > context.threshold) | (own.silence >= most),
                looks_at=("norm", "silence"))  # fmt: skip


def struggling(loss):
    """Speaks where training went badly."""
    return Rule("struggling", init=lambda size, rounds: Threshold(loss),
                speaks=lambda own, context: own.loss > context.threshold,
                looks_at=("loss",))  # fmt: skip


def by_norm(scale):
    """Speaks with a probability that grows with the norm, and says so."""

    def chance(own, context):
        return (own.norm / (own.norm + context.threshold)) * 0.9 + 0.1

    return Rule("by_norm", init=lambda size, rounds: Threshold(scale), probability=chance,
                speaks=lambda own, context: own.uniform < chance(own, context),
                looks_at=("norm", "uniform"))  # fmt: skip


def by_examples():
    """Everyone speaks, in a number of bytes that is not whole."""
    return Rule("by_examples", init=lambda size, rounds: Nothing(), looks_at=("examples",),
                speaks=lambda own, context: True,
                nbytes=lambda own, context: 29.9 + own.examples / 3)  # fmt: skip


def test_engine_and_plain_loop_agree_on_what_a_client_sees():
    arms = {
        "impatient": Policy(impatient(2), ignore()),
        "struggling": Policy(struggling(0.6), zero()),
        "by norm": Policy(by_norm(0.3), last()),
        "by examples": Policy(by_examples()),
    }
    found = assert_agree(tiny(), arms, rounds=7, cohort=3, lanes=1)
    # Of nine weights: 4 bits for each and a scale, and float32 of the client with most examples.
    assert np.unique(found["by examples"].bytes_up).tolist() == [30, 56]
    for name, history in found.items():
        assert 0 < history.spoke.sum() < 7 * 3 or name == "by examples", name


@pytest.mark.parametrize("stand_in", [zero(), last(), ou(), own()], ids=lambda part: part.name)
def test_with_probabilities_the_mean_is_right_on_average(stand_in):
    """Σ n f + Σ_spoke n (Δ − f)/p over Σ n is the mean of everyone, whatever the forecast f."""
    rng = np.random.default_rng(0)
    updates, before = rng.normal(0, 1, (2, 4, 3))
    examples, chances = np.array([1.0, 2.0, 3.0, 6.0]), np.array([0.2, 0.5, 0.9, 1.0])
    norms = np.linalg.norm(updates, axis=1)
    policy = Policy(by_norm(1.0), stand_in)
    state = server.init(policy, np.zeros(3))
    for update in before:  # a forecast that is not 0
        config, heard = server.open(policy, state.memory, 1), tally.start(state.weights)
        heard = tally.add(heard, Message(1, float(np.linalg.norm(update)), update), config)
        state, _ = server.close(policy, state, heard)
    config, mean = server.open(policy, state.memory, 4), np.zeros(3)
    for speaks in np.ndindex(2, 2, 2, 2):  # every outcome, with its probability
        heard = tally.start(state.weights)
        for k, spoke in enumerate(speaks):
            update = updates[k] if spoke else None
            message = Message(examples[k], norms[k].item(), update, probability=chances[k])
            last_of_k = before[k] if stand_in.own else None
            heard = tally.add(heard, message, config, last=last_of_k)
        step, *_ = server.learn(policy, state.memory, heard)
        mean = mean + np.prod(np.where(speaks, chances, 1 - chances)) * step
    np.testing.assert_allclose(mean, examples @ updates / examples.sum(), rtol=1e-6, atol=1e-6)


def test_optimal_sampling_is_the_formula():
    rule = parse("optimal:0.5,floor=0.1").rule
    n, m = np.array([1.0, 2.0, 4.0, 1.0]), np.array([1.0, 3.0, 0.5, 0.01])
    config = tally.RoundConfig((), np.inf, np.inf)
    heard = tally.of(np.zeros(1), n, m, np.array([True, False, True, False]), config)
    context = rule.broadcast(rule.learn(rule.init(1, None), heard), 4)
    assert rule.probability is not None
    wanted = np.clip(0.5 * 4 * n * m / (n @ m), 0.1, 1.0)
    np.testing.assert_allclose(rule.probability(ClientStats(m, examples=n), context), wanted)
    first = rule.broadcast(rule.init(1, None), 4)
    np.testing.assert_array_equal(rule.probability(ClientStats(m, examples=n), first), np.ones(4))

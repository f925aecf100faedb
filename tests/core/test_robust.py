"""Thresholds that one client cannot move, and silence that ends."""

import math

import numpy as np
import pytest

from taciturn.core import client, server, tally
from taciturn.core.policy import parse
from taciturn.core.rules import ClientStats, Threshold
from taciturn.core.tally import Message
from taciturn.errors import InputError

MEDIAN = "adaptive,k=0,robust=true"


def learned(policy, rounds, examples=None):
    """τ after each round of speakers with these norms."""
    state, found = server.init(policy, np.zeros(1)), []
    for norms in rounds:
        heard = tally.start(state.weights, policy.rule.each)
        config = server.open(policy, state.memory, len(norms))
        for n, norm in zip(examples or [1.0] * len(norms), norms, strict=True):
            heard = tally.add(heard, Message(n, norm, np.array([float(norm)])), config)
        state, _ = server.close(policy, state, heard)
        found.append(float(state.memory.rule.threshold))
    return found


def test_the_threshold_by_hand():
    """Medians 4, 3 and 1.5, MADs 1, 1 and 0.5; f grows to 3/4 while norms stay."""
    policy = parse("adaptive,k=0.5,robust=true")
    rounds = [[4, 5, 3, 9, 1], [3, 4, 2, 9, 1], [3, 4, 2, 9, 1], [1.5, 2, 1, 4.5, 0.5]]
    found = learned(policy, rounds)
    once = 3 - 0.5 * 1.4826
    assert found == pytest.approx([0.0, 0.5 * once, 0.75 * once, 0.5 * 0.5 * once])


def test_who_is_within_a_tenth_of_the_median_speaks():
    found = learned(parse("adaptive,robust=true"), [[10.0, 10.1, 9.9, 10.2, 9.8]] * 30)
    assert found[-1] == pytest.approx(9.0)


def test_rounding_of_equal_norms_does_not_move_the_threshold():
    """Three of five norms are equal but for their last bits, and so is MAD but for a few."""
    policy = parse("adaptive,robust=true")
    exact = [1.0, 1.0, 1.0, 2.0, 0.5]
    ulp = np.spacing(np.float32(1))
    for few in (1, 8):
        near = [1.0, 1 + few * ulp, 1 - few * ulp, 2.0, 0.5]
        assert learned(policy, [near] * 5) == pytest.approx(learned(policy, [exact] * 5), rel=1e-5)


def test_after_a_jump_not_every_other_round_is_lost():
    """Norms halve in every round in which somebody speaks, and jump once."""
    policy = parse("adaptive,robust=true+ignore")
    memory, size, spoke = server.remember(policy, np.zeros(1)), 1.0, []
    for t in range(14):
        norms = size * np.array([0.96, 0.99, 1.0, 1.02, 1.05])
        config = server.open(policy, memory, 5)
        said = policy.rule.speaks(ClientStats(norms), config.context)
        heard = tally.of(np.zeros(1), np.ones(5), norms, said, config, each=True)
        _, memory, info = server.learn(policy, memory, heard)
        spoke.append(int(info.spoke))
        if spoke[-1]:
            size = 1e5 if t == 5 else size / 2
    assert spoke.count(0) <= 1


@pytest.mark.parametrize("norm", [1e-9, 1e17])
@pytest.mark.parametrize("examples", [1e-6, 1e9])
def test_one_of_ten_cannot_move_it_beyond_the_honest(norm, examples):
    """Neither above the smaller half of the honest norms, nor so low that nobody is silent."""
    honest = [0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2]
    rounds = [[*honest, norm]] * 10
    threshold = learned(parse(MEDIAN), rounds, [1.0] * 9 + [examples])[-1]
    assert honest[0] < threshold < honest[6]


def test_one_of_two_cannot_silence_the_other():
    assert learned(parse(MEDIAN), [[1e6, 1.0]] * 3)[-1] < 2.0


def test_who_is_rejected_has_no_vote():
    rounds = [[1.0, 2.0, 3.0, math.nan, math.inf]] * 12
    assert learned(parse(MEDIAN), rounds)[-1] == pytest.approx(2.0, rel=1e-3)


def test_norms_are_kept_where_they_are_needed_alone():
    state = server.init(parse("adaptive"), np.zeros(1))
    config = server.open(parse("adaptive"), state.memory, 3)
    some = [Message(1, norm, np.array([norm])) for norm in (1.0, 2.0, 3.0)]
    heard, plain = tally.start(state.weights, each=True), tally.start(state.weights)
    for message in some:
        heard, plain = (tally.add(before, message, config) for before in (heard, plain))
    np.testing.assert_array_equal(heard.each, [1.0, 2.0, 3.0])
    assert plain.each is None
    with pytest.raises(InputError, match="needs each norm"):
        parse("adaptive,robust=true").rule.learn(parse("adaptive").rule.init(1, None), plain)


def test_nobody_is_silent_more_than_so_many_times_in_a_row():
    rule = parse("adaptive,at_most=3").rule
    stats = ClientStats(0.5, silence=np.arange(6))
    assert rule.speaks(stats, Threshold(0.4)).all()
    assert rule.speaks(stats, Threshold(0.5)).tolist() == [False] * 3 + [True] * 3
    assert client.must_speak(rule, Threshold(0.5), 3)
    assert not client.must_speak(rule, Threshold(0.5), 2)

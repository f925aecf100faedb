"""Rounds worked out by hand; the derivation stands beside the numbers."""

import math

import jax
import numpy as np
import pytest

from taciturn.core import client, server, tally
from taciturn.core.codecs import peaks, top_k
from taciturn.core.policy import parse
from taciturn.core.rules import ClientStats
from taciturn.core.tally import Message

# Three clients, n = 1, 1, 2, with updates of norm 5, 2 and 1.
#   Σ n·Δ = (3, 4) + (0, 2) + 2·(1, 0) = (5, 6),   Σ n = 4,   mean = (1.25, 1.5)
# Norms weighted by n: mean = (5 + 2 + 2·1) / 4 = 2.25,
#   variance = (2.75² + 0.25² + 2·1.25²) / 4 = 10.75 / 4.
FIRST = [(1, [3.0, 4.0]), (1, [0.0, 2.0]), (2, [1.0, 0.0])]
MEAN = [1.25, 1.5]
STD = math.sqrt(10.75 / 4)
ASKED = 3


def play(policy, state, clients):
    """A round in which every client follows the rule; its update is given, and its draw is 0.5."""
    config = server.open(policy, state.memory, ASKED)
    heard = tally.start(state.weights)
    for examples, update in clients:
        trained = state.weights + np.array(update)
        message = client.respond(policy.rule, state.weights, trained, examples, config.context, 0.5)
        heard = tally.add(heard, message, config)
    return server.close(policy, state, heard)


def begin(text):
    policy = parse(text)
    return policy, server.init(policy, np.zeros(2))


def test_everyone_speaks_in_the_first_round_and_the_mean_is_weighted():
    policy, state = begin("adaptive+zero")
    state, info = play(policy, state, FIRST)
    np.testing.assert_allclose(state.weights, MEAN)
    assert (info.spoke, info.silent, info.rejected, info.threshold) == (3, 0, 0, 0.0)
    assert info.norm_mean == pytest.approx(2.25)
    assert info.norm_std == pytest.approx(STD)


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        ("adaptive", 2.25 - STD),
        ("adaptive,k=-0.5", 2.25 + STD / 2),
        # Unweighted: mean = 8/3, variance = (49 + 4 + 25)/9 / 3.
        ("adaptive,weighted=false", 8 / 3 - math.sqrt(78 / 27)),
        ("fixed:1.5", 1.5),
    ],
)
def test_the_threshold_after_a_round(rule, threshold):
    policy, state = begin(f"{rule}+zero")
    state, info = play(policy, state, FIRST)
    assert server.open(policy, state.memory, ASKED).context.threshold == pytest.approx(threshold)
    assert info.threshold == policy.rule.init(2, None).threshold


@pytest.mark.parametrize(
    ("stand_in", "mean"),
    [
        # τ = 2.25 now: the first speaks, n = 1; the others, n = 3 together, are stood in for.
        ("zero", [3 / 4, 4 / 4]),
        ("ignore", [3.0, 4.0]),
        ("last", [(3 + 3 * 1.25) / 4, (4 + 3 * 1.5) / 4]),
        ("ou", [3 / 4, 4 / 4]),  # one step is not enough for a fit: Δ̂ = 0
    ],
)
def test_the_second_round_under_each_stand_in(stand_in, mean):
    policy, state = begin(f"adaptive,k=0+{stand_in}")
    state, _ = play(policy, state, FIRST)
    state, info = play(policy, state, FIRST)
    assert (info.spoke, info.silent) == (1, 2)
    np.testing.assert_allclose(state.weights, np.add(MEAN, mean))
    # The norms are those of the first round, and silent ones count towards the threshold too.
    assert state.memory.rule.threshold == pytest.approx(2.25)


@pytest.mark.parametrize(
    ("mode", "second", "expected"),
    [
        # Two points (x_0, x_1), (x_1, x_2) lie on a line of slope d₂/d₁: Δ̂ = d₂²/d₁.
        ("paper", 0.75, 0.75**2 / 1.25),
        # Slope −0.4 is held at 0, b̂ = (x_1 + x_2)/2, Δ̂ = b̂ − x_2 = −d₂/2.
        ("constrained", -0.5, 0.25),
        # Slope 4 is held at 1, b̂ = (d₁ + d₂)/2 = Δ̂.
        ("constrained", 5.0, (1.25 + 5.0) / 2),
    ],
)
def test_ou_after_two_steps(mode, second, expected):
    policy, state = begin(f"fixed:0.1+ou,mode={mode}")
    for d in (1.25, second):
        state, _ = play(policy, state, [(1, [d, 0.0])])
    before = state.weights
    state, info = play(policy, state, [(1, [0.05, 0.0]), (2, [0.0, 0.0])])
    assert info.silent == 2
    np.testing.assert_allclose(state.weights - before, [expected, 0.0])


def test_a_capped_stand_in_is_no_longer_than_the_silent_update():
    policy, state = begin("fixed:0.5+ou,cap=true")
    for d in (1.25, 0.75):  # then Δ̂ = (0.45, 0)
        state, _ = play(policy, state, [(1, [d, 0.0])])
    before = state.weights
    config = server.open(policy, state.memory, ASKED)
    assert config.stand_in_norm == pytest.approx(0.45)
    heard = tally.start(state.weights)
    for n, m in ((1, 0.225), (3, 0.9)):  # half as long as Δ̂; longer, and not stretched
        heard = tally.add(heard, Message(n, m, None), config)
    state, _ = server.close(policy, state, heard)
    np.testing.assert_allclose(state.weights - before, [0.45 * (1 * 0.5 + 3 * 1.0) / 4, 0.0])


@pytest.mark.parametrize("stand_in", ["ou,cap=true", "ignore", "last"])
def test_a_round_in_which_nobody_counts_changes_nothing(stand_in):
    policy, state = begin(f"adaptive,k=0+{stand_in}")
    state, _ = play(policy, state, FIRST)
    config = server.open(policy, state.memory, ASKED)
    heard = tally.add(tally.start(state.weights), Message(3, math.nan, None), config)
    after, info = server.close(policy, state, heard)
    assert info.rejected == 1
    assert after.weights is state.weights
    assert after.memory == state.memory
    after, _ = server.close(policy, state, tally.start(state.weights))
    assert after.weights is state.weights
    assert after.memory == state.memory


def test_where_nobody_counts_the_optimiser_takes_no_step():
    eager = server.Optimizer(
        lambda weights: (weights,), lambda slots, mean, weights: (weights + 1, (mean + 1,))
    )
    policy = parse("full+ignore")
    state = server.init(policy, np.zeros(2, np.float32), eager)

    def close(state):
        return server.close(policy, state, tally.start(state.weights), eager)[0]

    for after in (close(state), jax.jit(close)(state)):
        jax.tree.map(np.testing.assert_array_equal, after, state)


def test_all_silent_and_ignored_moves_nothing_and_the_threshold_is_learned():
    """Else a threshold above all norms would stay there for good."""
    policy, state = begin("adaptive,k=0+ignore")
    state, _ = play(policy, state, FIRST)
    after, info = play(policy, state, [(1, [0.5, 0.0]), (1, [0.0, 1.0])])
    assert info.silent == 2
    assert after.weights is state.weights
    assert after.memory.rule.threshold == pytest.approx(0.75)  # the mean of 0.5 and 1


def test_all_silent_under_a_stand_in_goes_on_as_predicted():
    policy, state = begin("adaptive,k=0+last")
    state, _ = play(policy, state, FIRST)
    state, _ = play(policy, state, [(1, [0.5, 0.0])])
    np.testing.assert_allclose(state.weights, np.multiply(2, MEAN))


@pytest.mark.parametrize(
    ("norms", "threshold"),
    [([1.0, 1.0 + 1e-7, 1.0], 0.0), ([0.0, 0.0], 0.0), ([1.0, 1.0 + 1e-5], 1 + 5e-6)],
)
def test_norms_that_hardly_differ_make_everyone_speak(norms, threshold):
    policy, state = begin("adaptive,k=0+zero")
    state, _ = play(policy, state, [(1, [m, 0.0]) for m in norms])
    assert state.memory.rule.threshold == pytest.approx(threshold)


def test_random_speaks_below_its_probability_and_full_whatever_it_has_to_say():
    rule = parse("random:0.5").rule
    draws = np.array([0, 0.49, 0.5, 0.9])
    assert rule.speaks(ClientStats(1.0, draws), rule.init(2, None)).tolist() == [1, 1, 0, 0]
    policy, state = begin("full")
    _, info = play(policy, state, [(1, [0.0, 0.0])])
    assert info.spoke == 1
    assert math.isnan(info.threshold)


# What a client says.


def test_a_client_that_knows_its_norm_decides():
    rule = parse("fixed:0.5").rule
    context = rule.init(3, None)
    for norm, speaks in ((0.5, False), (0.6, True)):
        assert client.decide(rule, ClientStats(norm), context) == (speaks, norm, 1.0, 0)
    broken = client.decide(rule, ClientStats(math.inf), context)
    assert math.isnan(broken.norm)
    assert not broken.speaks
    for amount, p, nbytes in (("500B", 1.0, 464), ("40B", 0.5, 32)):  # of 476, and half of 32
        rule = parse(f"budget:{amount},per=client").rule
        told = client.decide(rule, ClientStats(0.5, 0.4), rule.broadcast(rule.init(1000, None), 2))
        assert told == (True, 0.5, p, nbytes)


def test_what_a_codec_leaves_out_is_added_to_the_next_update():
    codec, key, update = top_k(0.5, feedback=True), np.zeros(2, np.uint32), np.array([3.0, 4.0])
    message, kept = client.through(Message(1, 5.0, update), codec, key, np.array([2.0, 0.0]))
    assert message.encoded_norm == math.hypot(5, 4)
    np.testing.assert_array_equal(message.update, [5, 0])
    np.testing.assert_array_equal(kept, [0, 4])
    long, _ = client.through(Message(1, 10.0, np.ones(100), nbytes=70), peaks(), key)
    assert long.nbytes == 66  # four bits for each of 128 weights, and their scale
    silent, still = client.through(Message(1, 5.0, None), codec, key, kept)
    assert silent.update is None
    assert still is kept


# Clients that lie, and clients that broke.


@pytest.mark.parametrize(
    ("examples", "norm", "update"),
    [
        (1, 5.1, [3.0, 4.0]),  # 2 % off
        (1, math.nan, [3.0, 4.0]),
        (1, -5.0, [3.0, 4.0]),
        (1, 5.0, [math.nan, 4.0]),
        (1, math.inf, [math.inf, 4.0]),
        (1, 1e300, [1e300, 0.0]),  # finite, but its norm is not
        (0, 5.0, [3.0, 4.0]),
        (math.inf, 5.0, [3.0, 4.0]),
        (1, -1.0, None),
        (math.inf, 1.0, None),
    ],
)
def test_a_message_that_cannot_be_is_counted_and_changes_nothing(examples, norm, update):
    policy, state = begin("adaptive,k=0+ou,cap=true")
    state, _ = play(policy, state, FIRST)
    config = server.open(policy, state.memory, ASKED)
    honest = tally.add(tally.start(state.weights), Message(1, 5.0, np.array([3.0, 4.0])), config)
    expected, _ = server.close(policy, state, honest)
    bad = Message(examples, norm, None if update is None else np.array(update))
    after, info = server.close(policy, state, tally.add(honest, bad, config))
    assert (info.spoke, info.silent, info.rejected) == (1, 0, 1)
    np.testing.assert_array_equal(after.weights, expected.weights)
    assert after.memory.rule == expected.memory.rule


@pytest.mark.parametrize(("threshold", "counted"), [(1.5, 1.5), (-3.0, 0.0)])
def test_a_silent_norm_above_the_threshold_is_taken_as_the_threshold(threshold, counted):
    """As 0 where that lies below: who claims to be silent must not weigh negatively."""
    config = tally.RoundConfig((), threshold, 3.0)
    heard = tally.add(tally.start(np.zeros(2)), Message(1, 1e6, None), config)
    assert heard.norms.mean == counted
    assert heard.examples_capped == counted / 3


@pytest.mark.parametrize("mode", ["constrained", "paper"])
def test_a_huge_update_that_is_learned_leaves_a_finite_prediction(mode):
    """Squares overflow in float32 from 1.8e19 on; the estimator then says 0, not NaN."""
    policy = parse(f"full+ou,mode={mode}")
    state = server.init(policy, np.zeros(2, np.float32))
    for update in ([1e19, 1.0], [-1e19, 1.0], [1e19, 1.0], [1e19, 2.0], [1e19, 1.0]):
        config = server.open(policy, state.memory, ASKED)
        message = Message(1, np.linalg.norm(update), np.array(update, np.float32))
        heard = tally.add(tally.start(state.weights), message, config)
        assert heard.n_rejected == 0
        state, _ = server.close(policy, state, heard)
    assert np.isfinite(policy.stand_in.predict(state.memory.stand_in)).all()


# What a round leaves untouched.


def test_memory_is_reused_where_it_is_donated_and_there_alone():
    policy, state = begin("fixed:0.1+ou")
    for _ in range(3):
        state, _ = play(policy, state, FIRST)
    heard = tally.start(state.weights)
    config = server.open(policy, state.memory, ASKED)
    for message in (Message(1, 5.0, np.array([3.0, 4.0])), Message(2, 0.05, None)):
        heard = tally.add(heard, message, config)
    before = jax.tree.map(np.copy, (state, heard))
    kept = server.learn(policy, state.memory, heard)
    jax.tree.map(np.testing.assert_array_equal, (state, heard), before)
    given = server.learn(policy, state.memory, heard, donate=True)
    jax.tree.map(np.testing.assert_array_equal, kept, given)
    assert given[0] is heard.spoken
    assert given[1].stand_in.Q is state.memory.stand_in.Q

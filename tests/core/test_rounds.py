"""Rounds worked out by hand; the derivation stands beside the numbers."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.core import client, server, tally
from taciturn.core.codecs import peaks, top_k
from taciturn.core.policy import parse, parse_part
from taciturn.core.rules import ClientStats, Threshold
from taciturn.core.tally import Message
from taciturn.errors import InputError

# Three clients, n = 1, 1, 2, with updates of norm 5, 2 and 1.
#   Σ n·Δ = (3, 4) + (0, 2) + 2·(1, 0) = (5, 6),   Σ n = 4,   mean = (1.25, 1.5)
# Norms weighted by n: mean = (5 + 2 + 2·1) / 4 = 2.25,
#   variance = (2.75² + 0.25² + 2·1.25²) / 4 = 10.75 / 4.
FIRST = [(1, [3.0, 4.0]), (1, [0.0, 2.0]), (2, [1.0, 0.0])]
MEAN = [1.25, 1.5]
STD = math.sqrt(10.75 / 4)
ASKED = 3
POLICY, OPENED = parse("adaptive+ou,cap=true"), tally.RoundConfig((), 0.0, np.inf)


def add_up(policy, state, messages):
    """The tally of a round in which clients say this."""
    config = server.open(policy, state.memory, ASKED)
    heard = tally.start(state.weights, policy.rule.each)
    for message in messages:
        heard = tally.add(heard, message, config)
    return heard


def play(policy, state, clients):
    """A round in which every client follows the rule; its update is given, and its draw is 0.5."""
    told, weights = server.open(policy, state.memory, ASKED).context, state.weights
    messages = [client.respond(policy.rule, weights, weights + np.array(update), n, told, 0.5)
                for n, update in clients]  # fmt: skip
    return server.close(policy, state, add_up(policy, state, messages))


def after(text, *rounds):
    """The policy, and what there is after rounds of such clients."""
    policy, info = parse(text), None
    state = server.init(policy, np.zeros(2))
    for clients in rounds:
        state, info = play(policy, state, clients)
    return policy, state, info


def along(*norms):
    """Clients with an example each, and updates in one direction."""
    return [(1, [norm, 0.0]) for norm in norms]


def test_everyone_speaks_in_the_first_round_and_the_mean_is_weighted():
    _, state, info = after("adaptive+zero", FIRST)
    np.testing.assert_allclose(state.weights, MEAN)
    assert (info.spoke, info.silent, info.rejected, info.threshold) == (3, 0, 0, 0.0)
    assert info.norm_mean == pytest.approx(2.25)
    assert info.norm_std == pytest.approx(STD)


@pytest.mark.parametrize(
    ("rule", "clients", "threshold"),
    [
        ("adaptive", FIRST, 2.25 - STD),
        ("adaptive,k=-0.5", FIRST, 2.25 + STD / 2),
        # Unweighted: mean = 8/3, variance = (49 + 4 + 25)/9 / 3.
        ("adaptive,weighted=false", FIRST, 8 / 3 - math.sqrt(78 / 27)),
        ("fixed:1.5", FIRST, 1.5),
        # Norms that hardly differ make everyone speak.
        ("adaptive,k=0", along(1.0, 1.0 + 1e-7, 1.0), 0.0),
        ("adaptive,k=0", along(0.0, 0.0), 0.0),
        ("adaptive,k=0", along(1.0, 1.0 + 1e-5), 1 + 5e-6),
    ],
)
def test_the_threshold_after_a_round(rule, clients, threshold):
    policy, state, info = after(f"{rule}+zero", clients)
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
    _, state, info = after(f"adaptive,k=0+{stand_in}", FIRST, FIRST)
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
    policy, state, _ = after(f"fixed:0.1+ou,mode={mode}", along(1.25), along(second))
    moved, info = play(policy, state, [(1, [0.05, 0.0]), (2, [0.0, 0.0])])
    assert info.silent == 2
    np.testing.assert_allclose(moved.weights - state.weights, [expected, 0.0])


def test_a_capped_stand_in_is_no_longer_than_the_silent_update():
    policy, state, _ = after("fixed:0.5+ou,cap=true", along(1.25), along(0.75))
    assert server.open(policy, state.memory, ASKED).stand_in_norm == pytest.approx(0.45)
    # Half as long as Δ̂; longer, and not stretched.
    silent = [Message(1, 0.225, None), Message(3, 0.9, None)]
    moved, _ = server.close(policy, state, add_up(policy, state, silent))
    expected = [0.45 * (1 * 0.5 + 3 * 1.0) / 4, 0.0]
    np.testing.assert_allclose(moved.weights - state.weights, expected)


@pytest.mark.parametrize("stand_in", ["ou,cap=true", "ignore", "last"])
def test_a_round_in_which_nobody_counts_changes_nothing(stand_in):
    policy, state, _ = after(f"adaptive,k=0+{stand_in}", FIRST)
    for messages in ([Message(3, math.nan, None)], []):
        same, info = server.close(policy, state, add_up(policy, state, messages))
        assert info.rejected == len(messages)
        assert same.weights is state.weights
        assert same.memory == state.memory


def test_where_nobody_counts_the_optimiser_takes_no_step():
    eager = server.Optimizer(
        lambda weights: (weights,), lambda slots, mean, weights: (weights + 1, (mean + 1,))
    )
    policy = parse("full+ignore")
    state = server.init(policy, np.zeros(2, np.float32), eager)

    def close(state):
        return server.close(policy, state, tally.start(state.weights), eager)[0]

    for same in (close(state), jax.jit(close)(state)):
        jax.tree.map(np.testing.assert_array_equal, same, state)


def test_all_silent_and_ignored_moves_nothing_and_the_threshold_is_learned():
    """Else a threshold above all norms would stay there for good."""
    policy, state, _ = after("adaptive,k=0+ignore", FIRST)
    later, info = play(policy, state, along(0.5, 1.0))
    assert info.silent == 2
    assert later.weights is state.weights
    assert later.memory.rule.threshold == pytest.approx(0.75)


def test_all_silent_under_a_stand_in_goes_on_as_predicted():
    _, state, _ = after("adaptive,k=0+last", FIRST, along(0.5))
    np.testing.assert_allclose(state.weights, np.multiply(2, MEAN))


def test_random_speaks_below_its_probability_and_full_whatever_it_has_to_say():
    rule = parse("random:0.5").rule
    draws = np.array([0, 0.49, 0.5, 0.9])
    assert rule.speaks(ClientStats(1.0, draws), rule.init(2, None)).tolist() == [1, 1, 0, 0]
    _, _, info = after("full", along(0.0))
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
        (1, 4.9, [3.0, 4.0]),
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
    policy, state, _ = after("adaptive,k=0+ou,cap=true", FIRST)
    messages = [Message(1, 5.0, np.array([3.0, 4.0]))]
    expected, _ = server.close(policy, state, add_up(policy, state, messages))
    messages.append(Message(examples, norm, None if update is None else np.array(update)))
    found, info = server.close(policy, state, add_up(policy, state, messages))
    assert (info.spoke, info.silent, info.rejected) == (1, 0, 1)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert found.memory.rule == expected.memory.rule


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
        message = Message(1, np.linalg.norm(update), np.array(update, np.float32))
        state, info = server.close(policy, state, add_up(policy, state, [message]))
        assert info.rejected == 0
    assert np.isfinite(policy.stand_in.predict(state.memory.stand_in)).all()


def test_memory_is_reused_where_it_is_donated_and_there_alone():
    policy, state, _ = after("fixed:0.1+ou", FIRST, FIRST, FIRST)
    messages = Message(1, 5.0, np.array([3.0, 4.0])), Message(2, 0.05, None)
    heard = add_up(policy, state, messages)
    before = jax.tree.map(np.copy, (state, heard))
    kept = server.learn(policy, state.memory, heard)
    jax.tree.map(np.testing.assert_array_equal, (state, heard), before)
    given = server.learn(policy, state.memory, heard, donate=True)
    jax.tree.map(np.testing.assert_array_equal, kept, given)
    assert given[0] is heard.spoken
    assert given[1].stand_in.Q is state.memory.stand_in.Q


# Thresholds that one client cannot move, and silence that ends.


def learned(text, rounds, examples=None):
    """τ after each round of speakers with these norms."""
    policy, found = parse(text), []
    state = server.init(policy, np.zeros(1))
    for norms in rounds:
        pairs = zip(examples or [1.0] * len(norms), norms, strict=True)
        messages = [Message(n, norm, np.array([float(norm)])) for n, norm in pairs]
        state, _ = server.close(policy, state, add_up(policy, state, messages))
        found.append(float(state.memory.rule.threshold))
    return found


def test_the_threshold_by_hand():
    """Medians 4, 3 and 1.5, MADs 1, 1 and 0.5; f grows to 3/4 while norms stay."""
    rounds = [[4, 5, 3, 9, 1], [3, 4, 2, 9, 1], [3, 4, 2, 9, 1], [1.5, 2, 1, 4.5, 0.5]]
    once = 3 - 0.5 * 1.4826
    found = learned("adaptive,k=0.5,robust=true", rounds)
    assert found == pytest.approx([0.0, 0.5 * once, 0.75 * once, 0.5 * 0.5 * once])


@pytest.mark.parametrize(
    ("k", "norms", "threshold"),
    [
        (1, [10.0, 10.1, 9.9, 10.2, 9.8], 9.0),  # who is within a tenth of the median speaks
        (0, [1e6, 1.0], 1.0),  # one of two cannot silence the other
        (0, [1.0, 2.0, 3.0, math.nan, math.inf], 2.0),  # who is rejected has no vote
    ],
)
def test_where_the_threshold_of_rounds_that_are_alike_ends(k, norms, threshold):
    assert learned(f"adaptive,k={k},robust=true", [norms] * 30)[-1] == pytest.approx(threshold)


def test_rounding_of_equal_norms_does_not_move_the_threshold():
    """Three of five norms are equal but for their last bits, and so is MAD but for a few."""
    ulp = np.spacing(np.float32(1))
    expected = learned("adaptive,robust=true", [[1.0, 1.0, 1.0, 2.0, 0.5]] * 5)
    for few in (1, 8):
        near = [1.0, 1 + few * ulp, 1 - few * ulp, 2.0, 0.5]
        assert learned("adaptive,robust=true", [near] * 5) == pytest.approx(expected, rel=1e-5)


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
    threshold = learned("adaptive,k=0,robust=true", rounds, [1.0] * 9 + [examples])[-1]
    assert honest[0] < threshold < honest[6]


def test_a_rule_that_needs_each_norm_says_so():
    rule, heard = parse("adaptive,robust=true").rule, tally.start(np.zeros(1))
    with pytest.raises(InputError, match="needs each norm"):
        rule.learn(rule.init(1, None), heard)


def test_nobody_is_silent_more_than_so_many_times_in_a_row():
    rule = parse("adaptive,at_most=3").rule
    stats = ClientStats(0.5, silence=np.arange(6))
    assert rule.speaks(stats, Threshold(0.4)).all()
    assert rule.speaks(stats, Threshold(0.5)).tolist() == [False] * 3 + [True] * 3
    assert client.must_speak(rule, Threshold(0.5), 3)
    assert not client.must_speak(rule, Threshold(0.5), 2)


# Clients in any order, one by one or as a group, give the same step.


def some_messages(seed, count, threshold):
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        update = rng.normal(0, 1, 5).astype(np.float32) * np.float32(rng.choice([0.3, 1, 3]))
        norm = np.nan if rng.random() < 0.1 else np.linalg.norm(update)
        silent = norm <= threshold or rng.random() < 0.3
        found.append(Message(int(rng.integers(1, 500)), norm, None if silent else update))
    return found


def warm_state():
    """A server that has seen three rounds, so that its estimator and threshold have something."""
    state = server.init(POLICY, np.linspace(-1, 1, 5, dtype=np.float32))
    for t in range(3):
        messages = some_messages(t, 3, 0.0)
        state, _ = server.close(POLICY, state, add_up(POLICY, state, messages))
    return state


def together(state, heard):
    after, info = server.close(POLICY, state, heard)
    numbers = [after.memory.rule.threshold, *info, *after.memory.stand_in[1:]]
    return np.concatenate([after.weights, *(np.ravel(number) for number in numbers)])


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30), data=st.data())
def test_any_order_and_the_group_form_give_the_same_step(seed, count, data):
    state = warm_state()
    config = server.open(POLICY, state.memory, count)
    messages = some_messages(seed, count, float(config.context.threshold))
    another = [messages[k] for k in data.draw(st.permutations(range(count)))]
    speakers = [m for m in messages if m.update is not None and np.isfinite(m.norm)]
    group = tally.of(
        np.sum([np.float32(m.examples) * m.update for m in speakers] or [np.zeros(5, "f4")], 0),
        np.array([m.examples for m in messages], np.float32),
        np.array([m.norm for m in messages], np.float32),
        np.array([m.update is not None for m in messages]),
        config,
    )
    expected = together(state, add_up(POLICY, state, messages))
    for heard in (add_up(POLICY, state, another), group):
        np.testing.assert_allclose(together(state, heard), expected, rtol=2e-6, atol=2e-6)


def test_moments_of_clipped_norms_are_never_negative():
    """Clients that clip have norms that agree to the last digit: Σ m² − (Σ m)² would go wrong."""
    updates = [np.array([1 / 3 + (k % 2) * 3e-8], np.float32) for k in range(200)]
    heard = tally.start(updates[0])
    for update in updates:
        heard = tally.add(heard, Message(17, abs(update[0]), update), OPENED)
    assert 0 <= heard.norms.deviation() < 1e-6
    assert heard.norms.mean == pytest.approx(1 / 3, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "accepted"), [("top_k:0.5,feedback=true", True), ("top_k:0.5", False)]
)
def test_with_feedback_the_norm_of_what_was_encoded_is_checked(text, accepted):
    """It may be far from the norm of the update, from which thresholds are learned."""
    codec, decoded = parse_part("codec", text), np.array([3.0, 0.0], np.float32)
    for encoded in (3.5, 2.9, 9.0, -3.5, np.inf, np.nan):
        said = Message(1, 0.1, decoded, encoded)
        heard = tally.add(tally.start(decoded), said, OPENED, codec)
        right = accepted and encoded == 3.5
        assert (heard.n_spoke, heard.n_rejected) == (right, not right)
        assert heard.norms.mean == (np.float32(0.1) if right else 0)
    endless = Message(1, 0.1, np.full(2, np.inf, np.float32), np.inf)
    assert tally.add(tally.start(decoded), endless, OPENED, codec).n_rejected == 1


def test_the_measured_norm_counts_and_a_chance_lies_between_0_and_1():
    said = Message(1, 5.004, np.array([3.0, 4.0]))
    heard = tally.add(tally.start(np.zeros(2)), said, OPENED)
    assert heard.norms.mean == 5
    for chance in (0.0, -0.5, 1.1, np.nan):
        after = tally.add(heard, said._replace(probability=chance), OPENED, last=np.ones(2))
        assert after.n_rejected == 1
        assert after.spoken.tolist() == [3, 4]  # nor is the client stood in for


def test_the_bytes_of_those_who_spoke_are_added_up():
    """Not those of who is silent, nor of who is rejected."""
    said = np.full(2, 3.0)
    norm = float(np.linalg.norm(said))
    norms, spoke, nbytes = [norm, 1.0, np.nan, norm], [True, False, True, True], [100, 70, 50, 32]
    heard = tally.start(said)
    for m, speaks, n in zip(norms, spoke, nbytes, strict=True):
        heard = tally.add(heard, Message(1, m, said if speaks else None, nbytes=n), OPENED)
    group = tally.of(said, np.ones(4), np.array(norms), np.array(spoke), OPENED,
                     nbytes=np.array(nbytes))  # fmt: skip
    assert heard.nbytes == group.nbytes == 132
    assert heard.nbytes.dtype == group.nbytes.dtype == np.int64


@pytest.mark.parametrize(("nbytes", "accepted"), [(32, True), (34, False), (260, False)])
def test_a_code_is_judged_by_what_its_own_length_leaves_out(nbytes, accepted):
    codec, decoded = parse("budget").codec, np.full(65, 1.0, np.float32)
    message = Message(1, np.linalg.norm(decoded) / 4, decoded, nbytes=nbytes)
    heard = tally.add(tally.start(decoded), message, OPENED, codec)
    assert (heard.n_spoke, heard.n_rejected) == (accepted, not accepted)

"""Tallies: clients in any order, one by one or as a group, give the same step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.core import server, tally
from taciturn.core.policy import parse, parse_part
from taciturn.core.tally import Message

POLICY, OPENED = parse("adaptive+ou,cap=true"), tally.RoundConfig((), 0.0, np.inf)


def add_up(state, config, messages):
    heard = tally.start(state.weights)
    for message in messages:
        heard = tally.add(heard, message, config)
    return heard


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
        config, messages = server.open(POLICY, state.memory, 3), some_messages(t, 3, 0.0)
        state, _ = server.close(POLICY, state, add_up(state, config, messages))
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
    expected = together(state, add_up(state, config, messages))
    for heard in (add_up(state, config, another), group):
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


def test_the_measured_norm_counts_and_a_chance_lies_between_0_and_1():
    said = Message(1, 5.004, np.array([3.0, 4.0]))
    heard = tally.add(tally.start(np.zeros(2)), said, OPENED)
    assert heard.norms.mean == 5
    for chance in (0.0, -0.5, 1.1, np.nan):
        assert tally.add(heard, said._replace(probability=chance), OPENED).n_rejected == 1


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

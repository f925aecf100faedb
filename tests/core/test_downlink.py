"""The way down: the public model follows the server's, and what is left out is sent later."""

import numpy as np
import pytest

from taciturn.core import client, codecs, downlink, rules, server, tally
from taciturn.core.hashing import fold
from taciturn.core.policy import Policy, parse

KEY = np.array([3, 4], np.uint32)


def weights(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize(
    "text",
    [
        *("eden:1", "sparse_ternary:0.05", "float16"),
        *(
            pytest.param(text, marks=pytest.mark.nightly)
            for text in ("eden:0.1", "eden:2", "top_k:0.05", "bfloat16")
        ),
    ],
)
def test_the_public_model_comes_to_weights_that_stand_still(text):
    policy = parse(f"full+down={text}")
    theta = weights(5000)
    state = server.init(policy, np.zeros(5000, np.float32))._replace(weights=theta)
    gaps = [1.0]
    for t in range(60):
        state = downlink.publish(policy, state, fold(KEY, t))
        gaps.append(float(np.linalg.norm(state.public - theta) / np.linalg.norm(theta)))
        # A contraction, whatever the key, down to the rounding of float32.
        assert gaps[-1] <= max(gaps[-2] * (1 + 1e-6), 1e-6)
    # What one message leaves of normal weights follows from the error that the codec declares.
    error = policy.down.error(5000)
    expected = 1 - (1 - error) * (1 - error**2 / 4)
    assert gaps[1] ** 2 == pytest.approx(expected, rel=0.1, abs=1e-5)
    assert gaps[-1] < 0.2
    assert state.public.dtype == np.float32


def a_round(policy, state, trained):
    config = server.open(policy, state.memory, 1)
    heard = tally.start(state.weights)
    start = downlink.trained_from(state)
    message = client.respond(policy.rule, start, trained, 3, config.context, 0.5)
    return server.close(policy, state, tally.add(heard, message, config))[0]


def test_updates_against_the_public_model_move_the_servers():
    policy = Policy(rules.full(), down=codecs.top_k(0.25))
    start = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    state = server.init(policy, start)
    np.testing.assert_array_equal(downlink.trained_from(state), start)
    state = a_round(policy, state, start + np.array([0.5, 0, 0, 2], np.float32))
    np.testing.assert_array_equal(state.weights, [1.5, 2, 3, 6])
    np.testing.assert_array_equal(state.public, start)  # until it is published
    state = downlink.publish(policy, state, KEY)
    further = 1 + policy.down.error(4) / 2
    fourth = 4 + 2 * further
    np.testing.assert_allclose(state.public, [1, 2, 3, fourth], rtol=1e-6)
    # The client trains from what it has, and what it lacks is not lost.
    state = a_round(policy, state, state.public + np.array([0, 0.25, 0, 0], np.float32))
    np.testing.assert_allclose(state.weights, [1.5, 2.25, 3, 6], rtol=1e-6)
    state = downlink.publish(policy, state, KEY)
    np.testing.assert_allclose(state.public, [1 + 0.5 * further, 2, 3, fourth], rtol=1e-6)


def test_a_public_model_is_there_where_it_has_a_codec_and_shares_no_memory():
    start = weights(64)
    assert not np.shares_memory(server.init(parse("full+down=eden:1"), start).public, start)
    policy = parse("adaptive+ou+eden:0.1")
    state = server.init(policy, start)
    assert state.public is None
    assert downlink.publish(policy, state, KEY) is state
    assert downlink.trained_from(state) is start


@pytest.mark.parametrize("kept", [None, 3, 100])
def test_what_clients_download(kept):
    codec, size = parse("full+down=eden:1").down, 8192
    message, whole = codec.nbytes(size), 4 * size
    missed = np.array([[0, 1, 3], [4, 31, 32]])
    found = downlink.download_bytes(codec, missed, size, kept)
    most = min(31 if kept is None else kept, 31)
    expected = [[m * message if m <= most else whole for m in row] for row in missed]
    np.testing.assert_array_equal(found, expected)
    assert 31 * message <= whole < 32 * message
    everyone = downlink.download_bytes(codecs.float32(), missed, size)
    np.testing.assert_array_equal(everyone, np.full((2, 3), whole))

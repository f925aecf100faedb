"""The way down: the public model follows the server's, and what is left out is sent later."""

import numpy as np
import pytest

from taciturn.core import downlink, server
from taciturn.core.hashing import fold
from taciturn.core.policy import parse

KEY = np.array([3, 4], np.uint32)
WEIGHTS = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
NIGHTLY = [
    pytest.param(text, marks=pytest.mark.nightly)
    for text in ("eden:0.1", "eden:2", "top_k:0.05", "bfloat16")
]


@pytest.mark.parametrize("text", ["eden:1", "sparse_ternary:0.05", "float16", *NIGHTLY])
def test_the_public_model_comes_to_weights_that_stand_still(text):
    policy, gaps = parse(f"full+down={text}"), [1.0]
    state = server.init(policy, np.zeros_like(WEIGHTS))._replace(weights=WEIGHTS)
    for t in range(60):
        state = downlink.publish(policy, state, fold(KEY, t))
        gaps.append(np.linalg.norm(state.public - WEIGHTS) / np.linalg.norm(WEIGHTS))
        # A contraction, whatever the key, down to the rounding of float32.
        assert gaps[-1] <= max(gaps[-2] * (1 + 1e-6), 1e-6)
    # What one message leaves of normal weights follows from the error that the codec declares.
    error = policy.down.error(5000)
    expected = 1 - (1 - error) * (1 - error**2 / 4)
    assert gaps[1] ** 2 == pytest.approx(expected, rel=0.03, abs=1e-5)
    assert gaps[-1] < 0.2
    assert state.public.dtype == np.float32


def test_a_public_model_is_there_where_it_has_a_codec_and_shares_no_memory():
    assert not np.shares_memory(server.init(parse("full+down=eden:1"), WEIGHTS).public, WEIGHTS)
    policy = parse("adaptive+ou+eden:0.1")
    state = server.init(policy, WEIGHTS)
    assert state.public is None
    assert downlink.publish(policy, state, KEY) is state
    assert downlink.trained_from(state) is WEIGHTS

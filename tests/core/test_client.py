"""What the core offers to those who bring their own transport."""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.core import client, rules, tally
from taciturn.core.budget import budget
from taciturn.core.codecs import float32, top_k
from taciturn.core.messages import Message
from taciturn.core.rules import ClientStats


@pytest.mark.parametrize(("norm", "speaks"), [(0.5, False), (0.6, True)])
def test_a_client_that_knows_its_norm_can_decide(norm: float, speaks: bool) -> None:
    rule = rules.fixed(0.5)
    assert client.decide(rule, ClientStats(norm), rule.init(3, None)) == (speaks, norm, 1.0, 0)


def test_a_client_with_a_budget_knows_how_long_its_code_may_be() -> None:
    rule = budget("1kB")
    decision = client.decide(rule, ClientStats(0.5, 0.9), rule.broadcast(rule.init(1000, None), 2))
    assert decision == (True, 0.5, 1.0, 464)  # of 476, in steps of 16


def test_a_norm_that_is_not_finite_is_reported_as_nan_in_silence() -> None:
    decision = client.decide(rules.full(), ClientStats(math.inf), rules.full().init(3, None))
    assert math.isnan(decision.norm)
    assert not decision.speaks


def test_what_a_codec_leaves_out_is_added_to_the_next_update() -> None:
    codec, key, update = top_k(0.5, feedback=True), np.zeros(2, np.uint32), np.array([3.0, 4.0])
    message, kept = client.through(Message(1, 5.0, update), codec, key, np.array([2.0, 0.0]))
    assert message.encoded_norm == math.hypot(5, 4)
    np.testing.assert_array_equal(message.update, [5, 0])
    np.testing.assert_array_equal(kept, [0, 4])
    silent, still = client.through(Message(1, 5.0, None), codec, key, kept)
    assert silent.update is None
    assert still is kept


@pytest.mark.parametrize(
    ("reported", "actual", "fits"),
    [(1.0, 1.0005, True), (1.0, 1.1, False), (1.1, 1.0, False), (0.0, 0.0, True),
     (1.0, math.nan, False), (math.inf, math.inf, False)],
)  # fmt: skip
def test_a_reported_norm_must_fit_the_update(reported: float, actual: float, fits: bool) -> None:
    assert bool(tally.fits(float32(), np.float64(reported), np.float64(actual), 3)) is fits

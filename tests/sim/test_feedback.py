"""Feedback: clients keep what a codec left out, and say it with the next update that they speak.

Few clients, so that every one is asked again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_tasks import distance, few
from test_cohorts import ROUNDS, alike, table, train

import taciturn
from taciturn.errors import InputError
from taciturn.sim import devices, draws


def by_hand(population: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """All are asked in every round; half of them speak, and send the largest of four weights.

    The silent stand still, and so does what they kept.
    """
    data = table(population)
    n, weights, spoke = data["rows"].astype(float), np.zeros(4), []
    residuals = np.zeros((population, 4))
    for t in range(ROUNDS):
        keys = draws.round_keys(draws.run_keys(seed), t)
        speaks = np.zeros(population, bool)
        speaks[draws.cohort(keys, population, population)] = draws.uniforms(keys, population) < 0.5
        said = train(weights, data) + residuals
        place = np.abs(said).argmax(1)[:, None] == np.arange(4)
        decoded = np.where(place, said, 0)
        residuals = np.where(speaks[:, None], said - decoded, residuals)
        weights = weights + (n * speaks) @ decoded / n.sum()
        spoke.append(int(speaks.sum()))
    return weights, spoke


def test_who_is_silent_keeps_what_it_kept() -> None:
    population, seed = 60, 3
    weights, spoke = by_hand(population, seed)
    history = taciturn.simulate(
        alike(population), "random:0.5+zero+top_k:0.25,feedback=true",
        rounds=ROUNDS, cohort=population, seeds=(seed,), lanes=7,
    )  # fmt: skip
    np.testing.assert_array_equal(history.spoke[0], spoke)
    np.testing.assert_allclose(history.weights[0], weights, rtol=1e-4, atol=1e-6)


def test_feedback_brings_a_coarse_codec_nearer_to_none_at_all() -> None:
    texts = ("full", "full+top_k:1,feedback=true", "full+top_k:0.1", "full+top_k:0.1,feedback=true")
    arms = {text: text for text in texts}
    found = taciturn.compare(few(), arms, rounds=40, cohort=6, lr=0.02, lanes=1)
    full, whole, without, with_it = (found[text].weights for text in texts)
    assert distance(with_it, full) < 0.5 * distance(without, full)
    assert found[texts[2]].bytes_up.sum() == found[texts[3]].bytes_up.sum()
    # Where nothing is left out, nothing is kept.
    assert distance(whole, full) < 1e-6


def test_what_does_not_fit_at_all_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    arms = {text: text for text in ("full+top_k:0.1,feedback=true", "random:0.5+own")}
    monkeypatch.setattr(devices, "memory", lambda: 2_500)
    with pytest.raises(InputError, match="6 clients × 105 weights"):
        taciturn.compare(few(), arms, rounds=4, cohort=4, devices=1, progress=told.append)
    assert not told
    taciturn.compare(few(), {"full": "full"}, rounds=1, cohort=4, devices=1, lanes=1)

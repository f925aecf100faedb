"""Feedback: clients keep what a codec left out, and say it with the next update that they speak.

Few clients, so that every one is asked again and again.
"""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import ARRAYS, assert_agree, assert_same, distance, program_of
from test_cohorts import ROUNDS, alike, table, train

import taciturn
from taciturn.errors import InputError
from taciturn.progress import Progress
from taciturn.sim import devices, draws, engine
from taciturn.tasks.task import Stored, Task, classification

ARMS = {
    text: text
    for text in (
        "full",
        # Without `ou`: where the signs of `eden` cancel, it would fit a path to what rounding left.
        "adaptive,k=0+last+eden:0.5",
        "full+sparse_ternary:0.2,feedback=true",
        "adaptive,k=0+ou+top_k:0.1,feedback=true",
    )
}


def few() -> Task:
    """Six clients and a linear model of 105 weights."""
    rng = np.random.default_rng(0)
    sizes = [2, 7, 12, 5, 10, 17]
    n = sum(sizes)
    y = rng.integers(0, 5, n + 20).astype(np.int32)
    x = (rng.normal(0, 1, (5, 20))[y] + rng.normal(0, 1, (len(y), 20))).astype(np.float32)
    loss, metrics = classification(lambda p, x, key: x @ p["w"] + p["b"])
    return Task(
        "few",
        Stored.of({"x": x[:n], "y": y[:n]}, sizes),
        init=lambda key: {"w": jax.random.normal(key, (20, 5)) * 0.1, "b": jnp.zeros(5)},
        loss=loss,
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]},
        batch=5,
        lr=0.1,
    )


@pytest.mark.parametrize("lanes", [1, 3, pytest.param(40, marks=pytest.mark.slow)])
def test_codecs_with_feedback_are_the_plain_loop(lanes: int) -> None:
    """Beside arms without, with slots that fill up and with slots that never do."""
    found = assert_agree(few(), ARMS, cohort=4, rounds=6, seeds=2, lanes=lanes)
    assert all(history.rejected.sum() == 0 for history in found.values())
    for text in ARMS:
        if "full" not in text:
            assert 0 < found[text].spoke.sum() < 48


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 5])
def test_every_codec_with_feedback_under_every_rule_is_the_plain_loop(lanes: int) -> None:
    codecs = ("top_k:0.1", "sparse_ternary:0.2")
    rules = ("full+ou", "fixed:0.2+zero", "adaptive,k=0+ignore", "random:0.5+last")
    arms = [f"{rule}+{codec},feedback=true" for codec in codecs for rule in rules]
    assert_agree(few(), {arm: arm for arm in arms}, cohort=4, rounds=5, lanes=lanes)


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


@pytest.mark.parametrize("lanes", [1, 7])
def test_who_is_silent_keeps_what_it_kept(lanes: int) -> None:
    population, seed = 60, 3
    weights, spoke = by_hand(population, seed)
    history = taciturn.simulate(
        alike(population), "random:0.5+zero+top_k:0.25,feedback=true",
        rounds=ROUNDS, cohort=population, seeds=(seed,), lanes=lanes,
    )  # fmt: skip
    np.testing.assert_array_equal(history.spoke[0], spoke)
    np.testing.assert_allclose(history.weights[0], weights, rtol=1e-4, atol=1e-6)


def test_feedback_brings_a_coarse_codec_nearer_to_none_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ("full", "full+top_k:1,feedback=true", "full+top_k:0.1", "full+top_k:0.1,feedback=true")
    found: dict[str, Any] = {}

    def run() -> None:
        arms = {text: text for text in texts}
        found.update(taciturn.compare(few(), arms, rounds=40, cohort=6, lr=0.02, lanes=1))

    program = program_of(run, monkeypatch)
    full, whole, without, with_it = (found[text].weights for text in texts)
    assert distance(with_it, full) < 0.5 * distance(without, full)
    assert found[texts[2]].bytes_up.sum() == found[texts[3]].bytes_up.sum()
    # Where nothing is left out, nothing is kept.
    assert distance(whole, full) < 1e-6
    assert program.rounds.hearing.keeping.tolist() == [3]


def test_chunks_change_nothing_and_nothing_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found, told, task = [], [], few()
    arms = {text: text for text in list(ARMS)[2:4]}

    def run() -> None:
        told.append([])
        found.append(
            taciturn.compare(task, arms, rounds=7, cohort=4, evaluate_every=5, lanes=3,
                             progress=told[-1].append)
        )  # fmt: skip

    for seconds in (0.0, 1e9):
        monkeypatch.setattr(engine, "_CHUNK_SECONDS", seconds)
        program = program_of(run, monkeypatch)
    assert program.rounds.traces == 1
    assert len([p for p in told[0] if isinstance(p, Progress)]) == 7 * len(arms)
    assert len([p for p in told[1] if isinstance(p, Progress)]) == 3 * len(arms)
    for name in arms:
        for array in ARRAYS:
            ours, theirs = (getattr(histories[name], array) for histories in found)
            np.testing.assert_array_equal(ours, theirs, array)


@pytest.mark.slow
def test_what_does_not_fit_beside_the_others_goes_in_groups(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arms = {f"full+top_k:{share},feedback=true": f"full+top_k:{share},feedback=true"
            for share in (0.1, 0.2)}  # fmt: skip

    def run() -> Any:
        return taciturn.compare(few(), arms, rounds=4, cohort=4, devices=1, lanes=1)

    caplog.set_level(logging.WARNING, "taciturn")
    together = run()
    # Six clients × 105 weights: one table and the states of its server fit, but not two.
    monkeypatch.setattr(devices, "memory", lambda: 9_000)
    one_by_one = run()
    assert any("2 runs side by side need" in message for message in caplog.messages)
    for name in arms:
        assert_same(one_by_one[name], together[name], 1e-6)


def test_what_does_not_fit_at_all_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(devices, "memory", lambda: 2_500)
    with pytest.raises(InputError, match=r"6 clients × 105 weights need 0\.0 GiB and there are"):
        taciturn.compare(few(), ARMS, rounds=4, cohort=4, devices=1, progress=told.append)
    assert not told
    taciturn.compare(few(), {"full": "full"}, rounds=1, cohort=4, devices=1, lanes=1)


def test_memory_is_said_in_numbers_that_people_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million writers of glyphs would keep a table of hundreds of gigabytes."""
    monkeypatch.setattr(devices, "memory", lambda: 16 * 2**30)
    task = taciturn.tasks.glyphs(population=10_000_000)
    with pytest.raises(InputError, match=r"10,000,000 clients × 19,\d\d\d weights need 7\d\d\.\d"):
        taciturn.simulate(task, "full+top_k:0.1,feedback=true", rounds=1, cohort=2)

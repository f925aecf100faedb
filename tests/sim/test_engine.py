"""The compiled engine: the plain loop's result, compiled once, whatever runs beside it."""

import dataclasses
import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_tasks
from small_tasks import (
    SEVERAL,
    assert_agree,
    assert_identical,
    assert_same,
    enable_x64,
    few,
    program_of,
    tiny,
)

import taciturn
from taciturn.core.tally import OVERHEAD
from taciturn.errors import InputError
from taciturn.models import MLP
from taciturn.progress import Compiling, Progress
from taciturn.sim import devices, engine
from taciturn.sim import rounds as rounds_module
from taciturn.tasks.task import classification


def test_who_never_answers_is_missing_and_whose_update_is_nan_is_rejected():
    """With 15 lanes every client has one of its own: none begins a second one."""
    texts = "full", "adaptive,k=0+ou,cap=true", "random:0.5+top_k:0.5,feedback=true"
    found = assert_agree(tiny(poisoned=3), texts, cohort=5, lanes=15, dropout=0.4)
    for history in found.values():
        assert 0 < history.missing.sum() < history.missing.size * 5
        assert (history.rejected <= 1).all()  # the poisoned one, where it answers
        assert 0 < history.rejected.sum() < history.rejected.size
        np.testing.assert_array_equal(history.overhead_up, (5 - history.missing) * OVERHEAD)
        counts, own = history.participation, history.participation.client == 3
        assert counts.spoke[own].sum() == counts.silent[own].sum() == 0
    full = found["full"]
    np.testing.assert_array_equal(full.spoke, 5 - full.missing - full.rejected)


# Compiled once.


def test_a_run_that_differs_in_numbers_alone_is_not_compiled_again(monkeypatch, caplog):
    task, results, told = tiny(), [], []

    def program(k, threshold, probability, **settings):
        texts = f"adaptive,k={k}+ou", f"fixed:{threshold}+zero", f"random:{probability}+last"
        given = {"arms": dict(zip("abc", texts, strict=True)), "cohort": 3, "progress": told.append}
        told.clear()
        run = functools.partial(taciturn.compare, task, **given | settings)
        return program_of(lambda: results.append(run()), monkeypatch)

    others = {"rounds": 7, "seeds": (8, 2), "evaluate_every": 3, "lr": 0.1, "clip": 0.3,
              "server_lr": 0.9, "dropout": 0.2, "stragglers": 0.2, "prox": 0.2}  # fmt: skip
    some = dict.fromkeys(("dropout", "stragglers", "prox"), 0.1)
    first = program(0.0, 0.1, 0.5, rounds=3, seeds=(0, 1), evaluate_every=2, **some)
    assert told[0] == Compiling(runs=6)
    with jax.log_compiles():  # what it traces and compiles
        assert program(1.5, 0.7, 0.9, **others) is first
        assert not caplog.messages
        assert not any(isinstance(record, Compiling) for record in told)
        # What was given to it counted: a program with these numbers from the start agrees.
        assert program(1.5, 0.7, 0.9, lanes=1, **others) is not first
        assert caplog.messages
    before, after, fresh = results
    assert after["a"].rounds == 7
    for name in before:
        assert small_tasks.distance(after[name].weights, before[name].weights) > 1e-3
        assert_same(after[name], fresh[name], 1e-6)


@pytest.mark.nightly
def test_a_task_can_run_in_float32_and_float64():
    task = tiny()
    narrow = taciturn.simulate(task, "full", rounds=1, cohort=2)
    with enable_x64(True):
        wide = taciturn.simulate(task, "full", rounds=1, cohort=2)
    assert (narrow.weights.dtype, wide.weights.dtype) == (np.float32, np.float64)


def test_the_data_of_one_task_at_a_time_are_on_the_device():
    """Whatever has been run before. Data can be told by their shape."""
    for width in (1_001, 1_007):
        init = functools.partial(lambda width, key: {"w": jnp.zeros((width, 2))}, width)
        task = small_tasks.noisy("wide", init, lambda p, x, key: x @ p["w"], 2, (width,), [4] * 3)
        taciturn.simulate(task, "full", rounds=1, cohort=2)
    del task
    gc.collect()
    shapes = [array.shape for array in jax.live_arrays()]
    assert ((12, 1_001) in shapes, (12, 1_007) in shapes) == (False, True)


# What a result does not depend on.


def test_chunks_change_nothing(monkeypatch):
    def run(chunk, seconds, task):
        told = []
        monkeypatch.setattr(engine, "CHUNK", chunk)
        monkeypatch.setattr(rounds_module, "CHUNK", chunk)
        monkeypatch.setattr(engine, "_CHUNK_SECONDS", seconds)
        monkeypatch.setattr(engine, "_PLANNED", 4)
        found = taciturn.compare(
            task, SEVERAL, rounds=7, cohort=4, evaluate_every=5, progress=told.append
        )
        return found, [p.round for p in told if isinstance(p, Progress) and p.arm == "full"]

    task = tiny()
    one_by_one, rounds = run(8, 0.0, task)
    assert rounds == [1, 2, 3, 4, 5, 6, 7]
    in_chunks, rounds = run(8, 1e9, task)
    # One round to see how long it takes; then up to the next plan, the test, and the end.
    assert rounds == [1, 4, 5, 7]
    assert_identical(in_chunks, one_by_one)
    in_twos, rounds = run(2, 1e9, tiny())
    assert rounds == [1, 3, 4, 5, 7]
    for name in SEVERAL:
        assert_same(in_twos[name], one_by_one[name], 1e-6)


def test_lanes_that_do_not_fit_into_memory_are_fewer_and_it_says_so(monkeypatch, caplog):
    # A model whose weights are most of what a program needs, so that it goes with the lanes.
    loss, metrics = classification(lambda model, x, key: model(x))
    task, results = tiny(), []

    def run():
        wide = dataclasses.replace(
            task, init=lambda key: MLP(key, 2, 1000, 3), loss=loss, metrics=metrics
        )
        settings = {"rounds": 3, "cohort": 4, "seeds": 2, "lanes": 8, "devices": 1}
        results.append(taciturn.simulate(wide, "adaptive,k=0+zero", **settings))

    roomy = program_of(run, monkeypatch)
    assert roomy.lanes == 8
    assert not caplog.messages
    needed = devices.bytes_needed(roomy._chunk)
    monkeypatch.setattr(devices, "memory", lambda: needed)
    tight = program_of(run, monkeypatch)
    assert 1 < tight.lanes < 8
    assert devices.bytes_needed(tight._chunk) <= 0.9 * needed
    assert f"clients train in {tight.lanes} lanes at a time" in caplog.messages[-1]
    assert_same(results[-1], results[0], 1e-6)


def test_what_does_not_fit_at_all_is_refused_before_anything_runs(monkeypatch):
    """What clients keep under feedback, and the server for `own`, grows with the population."""
    told = []
    arms = {text: text for text in ("full+top_k:0.1,feedback=true", "random:0.5+own")}
    monkeypatch.setattr(devices, "memory", lambda: 2_500)
    with pytest.raises(InputError, match="6 clients × 105 weights"):
        taciturn.compare(few(), arms, rounds=4, cohort=4, devices=1, progress=told.append)
    assert not told
    taciturn.compare(few(), {"full": "full"}, rounds=1, cohort=4, devices=1, lanes=1)

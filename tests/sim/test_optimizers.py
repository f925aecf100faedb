"""How clients and the server step: Optax optimisers, FedProx, schedules of the rate, stragglers."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_tasks import assert_agree, distance, tiny

import taciturn
from taciturn.settings import Settings
from taciturn.sim import draws
from taciturn.sim.local import SCHEDULES, learning_rate, proximal

TASK = tiny()
QUICK = {"rounds": 4, "cohort": 3}


def test_a_state_of_any_form_is_the_same_in_both():
    """Here the optimiser keeps a dict of numbers."""
    adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.1)
    arms = {"speaks": "full", "silent": "fixed:1e9+ignore"}
    ours = assert_agree(TASK, arms, server_optimizer=adam, seeds=2, **QUICK)
    # Rounds in which nobody counts change nothing, the optimiser's state included.
    start = taciturn.simulate(TASK, "full", rounds=1, cohort=1, seeds=2, lr=0.0).weights
    np.testing.assert_array_equal(ours["silent"].weights, start)
    assert distance(ours["speaks"].weights, start) > 0.01


def test_no_option_of_the_local_step_is_left_out():
    """The loop shares the local step with the engine: what both forget would agree."""
    weights = {
        str(settings): taciturn.simulate(
            TASK, "full", rounds=1, cohort=5, plain=True, **settings
        ).weights
        for settings in (
            {}, {"epochs": 2}, {"clip": 0.01}, {"client_optimizer": "momentum"}, {"prox": 2.0},
            {"server_optimizer": "adam", "server_lr": 0.1}, {"stragglers": 1.0}, {"server_lr": 0.5},
        )
    }  # fmt: skip
    plain = weights.pop("{}")
    for name, moved in weights.items():
        assert distance(moved, plain) > 1e-3, name


def test_the_pull_of_fedprox_is_its_formula():
    pull = proximal()
    start, gradient = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([1.0, 0.0])}
    state = pull.init(start)
    updates, state = pull.update(gradient, state, {"w": jnp.array([3.0, 2.0])}, prox=0.5)
    assert updates["w"].tolist() == [2.0, 0.0]
    assert state["w"].tolist() == [1.0, 2.0]


def test_schedules_of_the_rate():
    run = Settings(lr=2.0, rounds=8)
    rates = {name: [float(learning_rate(run, name, t)) for t in range(8)] for name in SCHEDULES}
    assert rates["constant"] == [2.0] * 8
    assert rates["step"] == pytest.approx([2.0] * 4 + [0.2] * 2 + [0.02] * 2)
    assert rates["cosine"] == pytest.approx(1 + np.cos(np.pi * np.arange(8) / 8), rel=1e-5)
    falling = Settings(lr=2.0, rounds=8, lr_decay=0.5)
    assert float(learning_rate(falling, "step", 6)) == pytest.approx(0.02 * 0.5**6)


def test_a_run_follows_its_schedule_and_its_decay():
    """Small steps on a linear path: norms fall with the rate."""
    settings = {"lr": 1e-4, "plain": True, **QUICK}
    constant = taciturn.simulate(TASK, "full", **settings).norm_mean[0]
    falling = taciturn.simulate(TASK, "full", lr_schedule="step", lr_decay=0.5, **settings)
    expected = [1, 0.5, 0.1 * 0.25, 0.01 * 0.125]
    np.testing.assert_allclose(falling.norm_mean[0] / constant, expected, rtol=1e-2)


def test_stragglers_do_an_even_draw_of_their_steps_one_at_the_least():
    keys, steps = draws.round_keys(draws.run_keys(0), 0), jnp.full(4_000, 10)
    assert draws.local_steps(keys, steps, 0.0).tolist() == steps.tolist()
    done = np.asarray(draws.local_steps(keys, steps, 1.0))
    counts = np.bincount(done, minlength=11)
    assert counts[0] == 0
    assert abs(counts[1:] - 400).max() < 5 * np.sqrt(400)
    some = np.asarray(draws.local_steps(keys, steps, 0.3))
    slow = some != done
    assert (some[slow] == 10).all()
    assert abs(slow.mean() - 0.7 * 0.9) < 0.04
    assert draws.local_steps(keys, jnp.ones(50, int), 1.0).tolist() == [1] * 50
    there = np.asarray(draws.answers(keys, 4_000, 0.3))  # those who never answer are drawn alike
    assert abs(there.mean() - 0.7) < 0.04
    assert abs(np.corrcoef(there, slow)[0, 1]) < 0.08


def test_stragglers_are_asked_and_weigh_the_same_and_come_less_far():
    settings = {"rounds": 2, "cohort": 4, "seeds": 2, "epochs": 2, "dropout": 0.2, "plain": True}
    slow, fast = (taciturn.simulate(TASK, "full", stragglers=s, **settings) for s in (0.7, 0.0))
    np.testing.assert_array_equal(slow.participation, fast.participation)
    assert (slow.norm_mean[:, 0] < fast.norm_mean[:, 0]).all()

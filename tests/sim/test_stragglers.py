"""Clients that are too slow: they answer with a part of their local steps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from small_tasks import tiny

import taciturn
from taciturn.sim import draws

KEYS = draws.round_keys(draws.run_keys(0), 0)


def test_stragglers_do_an_even_draw_of_their_steps_one_at_the_least() -> None:
    steps = jnp.full(4_000, 10)
    assert draws.local_steps(KEYS, steps, 0.0).tolist() == steps.tolist()
    done = np.asarray(draws.local_steps(KEYS, steps, 1.0))
    counts = np.bincount(done, minlength=11)
    assert counts[0] == 0
    assert abs(counts[1:] - 400).max() < 5 * np.sqrt(400)
    some = np.asarray(draws.local_steps(KEYS, steps, 0.3))
    slow = some != done
    assert (some[slow] == 10).all()
    assert abs(slow.mean() - 0.7 * 0.9) < 0.04
    assert draws.local_steps(KEYS, jnp.ones(50, int), 1.0).tolist() == [1] * 50


def test_stragglers_are_asked_and_weigh_the_same_and_come_less_far() -> None:
    settings = {"rounds": 2, "cohort": 4, "seeds": 2, "epochs": 2, "dropout": 0.2, "plain": True}
    slow, fast = (
        taciturn.simulate(tiny(), "full", stragglers=share, **settings) for share in (0.7, 0.0)
    )
    np.testing.assert_array_equal(slow.participation, fast.participation)
    assert (slow.norm_mean[:, 0] < fast.norm_mean[:, 0]).all()

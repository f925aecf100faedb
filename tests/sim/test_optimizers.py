"""Any Optax optimiser on the server, whatever the form of its state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import taciturn
from taciturn.sim import draws
from taciturn.sim.local import SCHEDULES, learning_rate, proximal


def task() -> taciturn.Task:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40).astype(np.int32)
    x = (rng.normal(0, 0.5, (40, 2)) + np.array([[0, 1], [1, -1], [-1, -1]])[y]).astype("f4")
    loss, metrics = taciturn.classification(lambda p, x, key: x @ p["w"])
    return taciturn.Task(
        "tiny", taciturn.Stored.of({"x": x, "y": y}, [10, 10, 20]),
        init=lambda key: {"w": jax.random.normal(key, (2, 3))}, loss=loss, metrics=metrics,
        test={"x": x, "y": y}, batch=5, lr=0.5,
    )  # fmt: skip


TRANSFORMATIONS = {
    "a dict of numbers": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "a dict of states": lambda: optax.multi_transform(
        {"all": optax.sgd(0.5, momentum=0.9)}, lambda params: jax.tree.map(lambda _: "all", params)
    ),
    "a number that is not float": lambda: optax.chain(
        optax.scale_by_schedule(optax.linear_schedule(1.0, 0.1, 3)), optax.sgd(0.7)
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        name if name == "a dict of numbers" else pytest.param(name, marks=pytest.mark.nightly)
        for name in TRANSFORMATIONS
    ],
)
def test_a_state_of_any_form_is_the_same_in_both(name: str) -> None:
    arms: dict[str, Any] = {"speaks": "full", "silent": "fixed:1e9+ignore"}
    found = [
        taciturn.compare(
            task(), arms, rounds=4, cohort=3, seeds=2, plain=plain,
            server_optimizer=TRANSFORMATIONS[name](),
        )
        for plain in (False, True)
    ]  # fmt: skip
    for arm in arms:
        ours, theirs = (histories[arm].weights for histories in found)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    # Rounds in which nobody counts change nothing, the optimiser's state included.
    start = jnp.stack([
        jax.random.normal(draws.run_keys(seed).init, (2, 3)).ravel() for seed in (0, 1)
    ])  # fmt: skip
    np.testing.assert_array_equal(found[0]["silent"].weights, start)
    assert np.abs(found[0]["speaks"].weights - start).max() > 0.01


def test_the_pull_of_fedprox_is_its_formula() -> None:
    pull = proximal()
    start, gradient = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([1.0, 0.0])}
    state = pull.init(start)
    updates, state = pull.update(gradient, state, {"w": jnp.array([3.0, 2.0])}, prox=0.5)
    assert updates["w"].tolist() == [2.0, 0.0]
    assert state["w"].tolist() == [1.0, 2.0]


def test_fedprox_and_a_rate_that_decays_are_the_same_in_both() -> None:
    settings: dict[str, Any] = {"rounds": 3, "cohort": 3, "epochs": 2}
    found = {
        (plain, name): taciturn.simulate(task(), "full", plain=plain, **settings, **extra)
        for plain in (False, True)
        for name, extra in {"none": {}, "prox": {"prox": 2.0}, "both": {
            "prox": 2.0, "lr_decay": 0.5, "client_optimizer": "momentum"}}.items()
        if not (plain is False and name == "prox")
    }  # fmt: skip
    for name in ("none", "both"):
        np.testing.assert_allclose(
            found[False, name].weights, found[True, name].weights, rtol=1e-5, atol=1e-6
        )
    # The pull keeps clients near what they were sent.
    assert (found[True, "prox"].norm_mean < found[True, "none"].norm_mean).all()


def test_a_rate_that_decays_is_multiplied_after_every_round() -> None:
    """Small steps on a linear path: norms fall with the rate."""
    settings: dict[str, Any] = {"rounds": 3, "cohort": 3, "lr": 1e-4, "plain": True}
    constant = taciturn.simulate(task(), "full", **settings).norm_mean[0]
    halved = taciturn.simulate(task(), "full", lr_decay=0.5, **settings).norm_mean[0]
    np.testing.assert_allclose(halved / constant, [1, 0.5, 0.25], rtol=1e-3)


def test_schedules_of_the_rate() -> None:
    rates = {name: [float(learning_rate(2.0, 1.0, name, t, 8)) for t in range(8)]
             for name in SCHEDULES}  # fmt: skip
    assert rates["constant"] == [2.0] * 8
    assert rates["step"] == pytest.approx([2.0] * 4 + [0.2] * 2 + [0.02] * 2)
    assert rates["cosine"] == pytest.approx(1 + np.cos(np.pi * np.arange(8) / 8), rel=1e-5)
    assert float(learning_rate(2.0, 0.5, "step", 6, 8)) == pytest.approx(0.02 * 0.5**6)


@pytest.mark.parametrize("plain", [False, True])
def test_a_run_follows_its_schedule(plain: bool) -> None:
    """Small steps on a linear path: norms fall with the rate."""
    settings: dict[str, Any] = {"rounds": 4, "cohort": 3, "lr": 1e-3, "plain": plain}
    constant = taciturn.simulate(task(), "full", **settings).norm_mean[0]
    stepped = taciturn.simulate(task(), "full", lr_schedule="step", **settings).norm_mean[0]
    np.testing.assert_allclose(stepped / constant, [1, 1, 0.1, 0.01], rtol=1e-2)

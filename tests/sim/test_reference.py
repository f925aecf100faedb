"""The plain loop: reproducible to the bit, counted to the byte."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_tasks import POISON, poisoned_inputs

import taciturn
from taciturn.core.policy import parse
from taciturn.errors import InputError
from taciturn.progress import Progress
from taciturn.sim import reference
from taciturn.tasks.clients import Generated, Stored, held_out
from taciturn.tasks.task import Task, classification, with_test

SIZES = [3, 12, 5, 20, 7]
SIZE = 2 * 3 + 3  # weights of the model


def tiny(clients: Any = None, test: bool = True, **changes: Any) -> Task:
    """Three classes in the plane, five clients of different sizes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, sum(SIZES) + 30).astype(np.int32)
    x = (rng.normal(0, 0.5, (len(y), 2)) + np.array([[0, 1], [1, -1], [-1, -1]])[y]).astype("f4")
    n = sum(SIZES)
    loss, metrics = classification(lambda p, x, key: poisoned_inputs(x) @ p["w"] + p["b"][None, :])
    task = Task(
        "tiny",
        clients or Stored.of({"x": x[:n], "y": y[:n]}, SIZES),
        init=lambda key: {"w": jax.random.normal(key, (2, 3)) * 0.1, "b": jnp.zeros(3)},
        loss=loss,
        metrics=metrics,
        test={"x": x[n:], "y": y[n:]} if test else None,
        batch=5,
        lr=0.5,
    )
    return dataclasses.replace(task, **changes)


TINY = tiny()


def run(policy: str = "adaptive+ou", task: Task | None = None, **settings: Any) -> Any:
    task = task or TINY
    settings = {"rounds": 4, "cohort": 3} | settings
    return taciturn.simulate(task, policy, plain=True, **settings)


ARRAYS = ("spoke", "rejected", "threshold", "norm_mean", "norm_std", "accuracy", "loss", "weights")


@pytest.mark.parametrize("policy", ["adaptive+ou", "random:0.5+last"])
def test_a_seed_gives_the_same_run_twice(policy: str) -> None:
    first, second = (run(policy, seeds=(1, 2), evaluate_every=1) for _ in range(2))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), name)
    alone = run(policy, seeds=(2,), evaluate_every=1)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(alone, name)[0], getattr(first, name)[1], name)
    assert not np.array_equal(first.weights[0], first.weights[1])
    assert not np.array_equal(first.norm_mean[0], first.norm_mean[1])


def test_all_arms_see_the_same_clients_and_batches() -> None:
    """The first round's norms do not depend on the policy: nothing was decided yet."""
    first = [run(p).norm_mean[0, 0] for p in ("full", "random:0.1+ignore")]
    assert len(set(first)) == 1


def test_history_counts_to_the_byte() -> None:
    history = run("random:0.5+zero", rounds=6, cohort=4, seeds=2)
    assert history.size == SIZE
    assert history.rounds == 6
    assert history.spoke.shape == (2, 6)
    assert 0 < history.spoke.sum() < 48
    # A header of 24 bytes from everyone, 4 bytes per weight from those who spoke.
    np.testing.assert_array_equal(history.bytes_up, history.spoke * SIZE * 4)
    np.testing.assert_array_equal(history.overhead_up, np.full((2, 6), 4 * 24))
    np.testing.assert_array_equal(history.bytes_down, np.full((2, 6), 4 * SIZE * 4))
    np.testing.assert_array_equal(history.overhead_down, np.full((2, 6), 4 * 24))
    assert history.weights.shape == (2, SIZE)
    assert history.seconds.shape == (6,)
    summary = history.summary()
    assert summary["upload_bytes"] == history.spoke.sum(1).mean() * SIZE * 4
    assert summary["upload_overhead_bytes"] == 6 * 4 * 24
    assert summary["spoke_share"] == pytest.approx(100 * history.spoke.sum() / 48)
    sent = history.bytes_up.sum() + history.overhead_up.sum()
    assert summary["upload_share"] == pytest.approx(100 * sent / (2 * 6 * 4 * (SIZE * 4 + 24)))
    assert summary["threshold_mean"] is None
    assert summary["accuracy"] == (100 * history.accuracy[:, -1]).tolist()
    assert summary["accuracy_std"] == pytest.approx(100 * np.std(history.accuracy[:, -1], ddof=1))


def test_rows_of_a_history() -> None:
    history = run("adaptive+zero", seeds=(4, 9), rounds=3, evaluate_every=2)
    for values in (history.accuracy, history.loss):
        assert np.isfinite(values).tolist() == [[False, True, True]] * 2
    rows = history.rows()
    assert [(row["seed"], row["round"]) for row in rows] == [
        (s, t) for s in (4, 9) for t in (1, 2, 3)
    ]
    assert list(rows[0]) == [
        "seed", "round", "spoke", "rejected", "missing", "threshold", "norm_mean", "norm_std",
        "bytes_up", "bytes_down", "bytes_down_silos", "asked", "overhead_up", "bytes_up_full",
        "overhead_down", "bytes_down_full", "accuracy", "loss", "worst_tenth",
    ]  # fmt: skip
    assert rows[4]["spoke"] == history.spoke[1, 1]
    assert rows[0]["threshold"] == 0
    # The threshold of a round is what the norms of the round before said.
    expected = history.norm_mean[0, 0] - history.norm_std[0, 0]
    assert history.threshold[0, 1] == pytest.approx(expected, rel=1e-5)


def test_full_communication_is_federated_averaging_by_hand() -> None:
    """One round, everyone, one batch a client: θ = Σ n_k θ_k / Σ n_k, θ_k one clipped step."""
    task = tiny(batch=100)
    got = run("full", task, rounds=1, cohort=5).weights[0]
    params = task.init(reference.draws.run_keys(0).init)
    total = jax.tree.map(jnp.zeros_like, params)
    low = 0
    for n in SIZES:
        batch = jax.tree.map(lambda a, low=low, n=n: a[low : low + n], task.clients.arrays)
        low += n
        gradient = jax.grad(lambda p, b=batch: task.loss(p, b, None).mean())(params)
        length = math.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(gradient)))
        scale = 0.5 * min(1.0, 1.0 / length) * n / sum(SIZES)
        total = jax.tree.map(lambda t, g, s=scale: t - s * g, total, gradient)
    moved = jax.tree.map(jnp.add, params, total)
    np.testing.assert_allclose(got, jax.flatten_util.ravel_pytree(moved)[0], rtol=1e-5, atol=1e-6)


def test_progress_is_told_after_every_round() -> None:
    told: list[Progress] = []
    history = run("random:0.5+zero", rounds=3, cohort=2, seeds=(5, 6), progress=told.append)
    assert [(p.arm, p.seed, p.round, p.asked) for p in told] == [
        ("random:0.5+zero", seed, t + 1, 2 * (t + 1)) for seed in (5, 6) for t in range(3)
    ]
    assert told[2].spoke == history.spoke[0].sum()
    assert told[2].bytes_up == history.bytes_up[0].sum()
    assert told[2].accuracy == history.accuracy[0, -1]


def test_half_the_server_rate_is_half_the_step() -> None:
    start = np.asarray(
        jax.flatten_util.ravel_pytree(tiny().init(reference.draws.run_keys(0).init))[0]
    )
    whole, half = (run("full", rounds=1, server_lr=lr).weights[0] for lr in (1.0, 0.5))
    np.testing.assert_allclose(half - start, (whole - start) / 2, rtol=1e-4, atol=1e-6)


def test_an_optax_object_is_used_with_its_own_rate() -> None:
    by_name = run("full", server_optimizer="momentum", server_lr=0.5)
    by_object = run("full", server_optimizer=optax.sgd(0.5, momentum=0.9))
    np.testing.assert_allclose(by_name.weights, by_object.weights, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="has a rate of its own: leave out `server_lr`"):
        run("full", server_optimizer=optax.sgd(0.5), server_lr=0.1)
    local = run("full", client_optimizer=optax.sgd(0.5))
    np.testing.assert_allclose(local.weights, run("full").weights, rtol=1e-5, atol=1e-6)


def test_a_client_that_breaks_is_dropped_and_the_others_go_on() -> None:
    clients = tiny().clients
    x = clients.arrays["x"].copy()
    x[:3] = POISON  # all of the first client
    broken = dataclasses.replace(clients, arrays=clients.arrays | {"x": x})
    history = run("full", tiny(broken), cohort=5, rounds=3)
    assert (history.rejected == 1).all()
    assert (history.spoke == 4).all()
    assert np.isfinite(history.weights).all()


def test_the_plain_loop_honours_the_precision_and_refuses_what_is_the_engines() -> None:
    exact, rough = (run(rounds=2, precision=name).weights for name in ("float32", "bfloat16"))
    assert 1e-5 < np.abs(exact - rough).max() < 0.1
    for name in ("devices", "lanes"):
        with pytest.raises(InputError, match=f"`{name}` is the engine's"):
            taciturn.simulate(TINY, "full", plain=True, rounds=1, cohort=1, **{name: 1})


def test_simulate_and_compare_are_the_loop() -> None:
    loop = run("adaptive+zero", rounds=2)
    alone = taciturn.simulate(tiny(), "adaptive+zero", plain=True, rounds=2, cohort=3)
    arms = {"a": "adaptive+zero", "b": parse("full")}
    both = taciturn.compare(tiny(), arms, plain=True, rounds=2, cohort=3)
    assert list(both) == ["a", "b"]
    np.testing.assert_array_equal(alone.weights, loop.weights)
    np.testing.assert_array_equal(both["a"].weights, loop.weights)
    assert both["b"].policy == parse("full")


# Holding out the last tenth.


def test_how_many_are_held_out() -> None:
    sizes = np.array([1, 2, 9, 10, 11, 19, 20, 100, 105])
    assert held_out(sizes).tolist() == [0, 1, 1, 1, 1, 1, 2, 10, 10]


def test_stored_clients_hold_out_their_last_tenth_when_asked() -> None:
    sizes = [1, 5, 20]
    x = np.arange(26)
    task = tiny(Stored.of({"x": x}, sizes, examples=[1, 10, 20]), test=False)
    clients, (test, *_) = with_test(dataclasses.replace(task, hold_out="last"))
    assert test["x"].tolist() == [5, 24, 25]
    assert clients.rows_of(jnp.arange(3)).tolist() == [1, 4, 18]
    np.testing.assert_allclose(clients.examples_of(jnp.arange(3)), [1, 8, 18])
    assert clients.longest == 18
    assert clients.batch(jnp.int32(2), jnp.arange(18))["x"].tolist() == list(range(6, 24))
    with pytest.raises(InputError, match="No client has two examples"):
        Stored.of({"x": x}, [1] * 26).hold_out()


def test_stored_clients_hold_out_a_tenth_at_random_by_label() -> None:
    """Sorted by label, as recordings are: every label has its tenth in the test set."""
    y = np.repeat(np.arange(6), 40)
    own = {"x": np.arange(480), "y": np.tile(y, 2)}
    clients, test, _ = Stored.of(own, [240, 240], names=("a", "b")).hold_out()
    for client in (test["x"] < 240, test["x"] >= 240):
        assert np.bincount(test["y"][client]).tolist() == [4] * 6
    np.testing.assert_array_equal(test["y"], own["y"][test["x"]])
    both = np.concatenate([clients.arrays["x"], test["x"]])
    assert sorted(both.tolist()) == list(range(480))
    assert clients.rows.tolist() == [216, 216]
    assert clients.names == ("a", "b")
    first, second = (set((test["x"][client] % 240).tolist()) for client in (
        test["x"] < 240, test["x"] >= 240))  # fmt: skip
    assert first != second  # each client's draw is its own,
    alone = Stored.of({k: v[240:] for k, v in own.items()}, [240], names=("b",)).hold_out()[1]
    assert alone["x"].tolist() == test["x"][test["x"] >= 240].tolist()  # whoever is beside it


def test_without_labels_a_tenth_is_drawn_at_random() -> None:
    clients, test, _ = Stored.of({"x": np.arange(1000)}, [1000]).hold_out()
    assert len(test["x"]) == 100
    assert 300 < test["x"].mean() < 700
    assert len(set(test["x"].tolist()) | set(clients.arrays["x"].tolist())) == 1000


def test_generated_clients_hold_out_their_last_tenth() -> None:
    def example(client: Any, index: Any, data: Any) -> Any:
        return {"x": 100 * client + index}

    generated = Generated(3, 20, lambda client, data: 10 * (client > 0) + 10 - 9 * (client == 2),
                          example)  # fmt: skip
    assert generated.rows_of(jnp.arange(3)).tolist() == [10, 20, 11]
    clients, test, whose = generated.hold_out()
    assert test["x"].tolist() == [9, 119, 118, 210]
    assert whose.tolist() == [0, 1, 1, 2]
    assert clients.rows_of(jnp.arange(3)).tolist() == [9, 18, 10]
    assert clients.examples_of(jnp.arange(3)).tolist() == [9, 18, 10]
    assert clients.batch(jnp.int32(1), jnp.array([0, 17]))["x"].tolist() == [100, 117]


def test_a_run_without_a_test_part() -> None:
    history = run(task=tiny(test=False))
    assert np.isfinite(history.accuracy[0, -1])

"""The plain loop: reproducible to the bit, counted to the byte; and what is held out to test on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_tasks import assert_identical, tiny

import taciturn
from taciturn.errors import InputError
from taciturn.sim import draws
from taciturn.sim.history import COLUMNS
from taciturn.tasks.clients import Generated, Stored
from taciturn.tasks.task import with_test

SIZES = [3, 12, 5, 20, 7]
SIZE = 2 * 3 + 3  # weights of the model
TINY = tiny()


def run(policy="adaptive+ou", task=TINY, **settings):
    settings = {"rounds": 4, "cohort": 3} | settings
    return taciturn.simulate(task, policy, plain=True, **settings)


def test_a_seed_gives_the_same_run_twice():
    policy = "random:0.5+ou"
    first, second = (run(policy, seeds=(1, 2), evaluate_every=1) for _ in range(2))
    assert_identical({"again": second}, {"again": first})
    alone = run(policy, seeds=(2,), evaluate_every=1)
    np.testing.assert_array_equal(alone.weights[0], first.weights[1])
    np.testing.assert_array_equal(alone.loss[0], first.loss[1])
    assert not np.array_equal(first.weights[0], first.weights[1])


def test_history_counts_to_the_byte():
    history = run("random:0.5+zero", rounds=6, cohort=4, seeds=2)
    assert (history.size, history.rounds, history.spoke.shape) == (SIZE, 6, (2, 6))
    assert 0 < history.spoke.sum() < 48
    # A header of 24 bytes from everyone, 4 bytes per weight from those who spoke.
    np.testing.assert_array_equal(history.bytes_up, history.spoke * SIZE * 4)
    np.testing.assert_array_equal(history.bytes_down, np.full((2, 6), 4 * SIZE * 4))
    for overhead in (history.overhead_up, history.overhead_down):
        np.testing.assert_array_equal(overhead, np.full((2, 6), 4 * 24))
    summary = history.summary()
    assert summary["upload_bytes"] == history.spoke.sum(1).mean() * SIZE * 4
    assert summary["upload_overhead_bytes"] == 6 * 4 * 24
    assert summary["spoke_share"] == pytest.approx(100 * history.spoke.sum() / 48)
    sent = history.bytes_up.sum() + history.overhead_up.sum()
    assert summary["upload_share"] == pytest.approx(100 * sent / (2 * 6 * 4 * (SIZE * 4 + 24)))
    last = 100 * history.accuracy[:, -1]
    assert (summary["threshold_mean"], summary["accuracy"]) == (None, last.tolist())
    assert summary["accuracy_std"] == pytest.approx(np.std(last, ddof=1))


def test_rows_of_a_history():
    history = run("adaptive+zero", seeds=(4, 9), rounds=3, evaluate_every=2)
    for values in (history.accuracy, history.loss):
        assert np.isfinite(values).tolist() == [[False, True, True]] * 2
    rows, runs = history.rows(), [(seed, t) for seed in (4, 9) for t in (1, 2, 3)]
    assert [(row["seed"], row["round"]) for row in rows] == runs
    assert list(rows[0]) == ["seed", "round", *COLUMNS]
    assert rows[4]["spoke"] == history.spoke[1, 1]
    assert rows[0]["threshold"] == 0
    # The threshold of a round is what the norms of the round before said.
    expected = history.norm_mean[0, 0] - history.norm_std[0, 0]
    assert history.threshold[0, 1] == pytest.approx(expected, rel=1e-5)


def test_full_communication_is_federated_averaging_by_hand():
    """One round, everyone, one batch a client: θ = Σ n_k θ_k / Σ n_k, θ_k one clipped step."""
    got = run("full", rounds=1, cohort=5, batch=100).weights[0]
    params = TINY.init(draws.run_keys(0).init)
    total, low = jax.tree.map(jnp.zeros_like, params), 0
    for n in SIZES:
        batch = {name: array[low : low + n] for name, array in TINY.clients.arrays.items()}
        low += n
        gradient = jax.jit(jax.grad(lambda p, b=batch: TINY.loss(p, b, None).mean()))(params)
        scale = 0.5 * min(1.0, 1.0 / float(optax.tree.norm(gradient))) * n / sum(SIZES)
        total = jax.tree.map(lambda t, g, s=scale: t - s * g, total, gradient)
    moved = jax.tree.map(jnp.add, params, total)
    np.testing.assert_allclose(got, jax.flatten_util.ravel_pytree(moved)[0], rtol=1e-5, atol=1e-6)


def test_progress_is_told_after_every_round():
    told = []
    history = run("random:0.5+zero", rounds=3, cohort=2, seeds=(5, 6), progress=told.append)
    rounds = [(seed, t, 2 * t) for seed in (5, 6) for t in (1, 2, 3)]
    assert [(p.seed, p.round, p.asked) for p in told] == rounds
    last, total = told[2], history.bytes_up[0].sum()
    assert (last.spoke, last.bytes_up) == (history.spoke[0].sum(), total)
    assert (last.arm, last.accuracy) == ("random:0.5+zero", history.accuracy[0, -1])


def test_an_optax_object_is_used_with_its_own_rate():
    by_name = run("full", server_optimizer="momentum", server_lr=0.5)
    by_object = run("full", server_optimizer=optax.sgd(0.5, momentum=0.9))
    np.testing.assert_allclose(by_name.weights, by_object.weights, rtol=1e-5, atol=1e-6)
    local = run("full", client_optimizer=optax.sgd(0.5))
    np.testing.assert_allclose(local.weights, run("full").weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("plain", [False, True])
def test_bfloat16_is_close_and_not_the_same(plain):
    exact, rough = (
        taciturn.simulate(TINY, "full", rounds=2, cohort=3, plain=plain, precision=name).weights
        for name in ("float32", "bfloat16")
    )
    assert rough.dtype == np.float32
    assert 1e-5 < np.abs(exact - rough).max() < 0.1


# Holding out the last tenth.


def test_stored_clients_hold_out_their_last_tenth_when_asked():
    stored = Stored.of({"x": np.arange(45)}, [1, 5, 19, 20], examples=[1, 10, 19, 20])
    task = dataclasses.replace(TINY, clients=stored, test=None, test_clients=None)
    clients, (test, whose, owners) = with_test(dataclasses.replace(task, hold_out="last"))
    assert owners[whose].tolist() == [1, 2, 3, 3]
    assert test["x"].tolist() == [5, 24, 43, 44]
    assert clients.rows_of(jnp.arange(4)).tolist() == [1, 4, 18, 18]
    np.testing.assert_allclose(clients.examples_of(jnp.arange(4)), [1, 8, 18, 18])
    assert clients.longest == 18
    assert clients.batch(jnp.int32(2), jnp.arange(18))["x"].tolist() == list(range(6, 24))


def test_stored_clients_hold_out_a_tenth_at_random_by_label():
    """Sorted by label, as recordings are: every label has its tenth in the test set."""
    y = np.repeat(np.arange(6), 40)
    own = {"x": np.arange(480), "y": np.tile(y, 2)}
    clients, test, whose = Stored.of(own, [240, 240], names=("a", "b")).hold_out()
    np.testing.assert_array_equal(whose, test["x"] // 240)
    first, second = test["x"][test["x"] < 240], test["x"][test["x"] >= 240]
    for client in (first, second):
        assert np.bincount(own["y"][client]).tolist() == [4] * 6
    np.testing.assert_array_equal(test["y"], own["y"][test["x"]])
    assert sorted([*clients.arrays["x"], *test["x"]]) == list(range(480))
    assert (clients.rows.tolist(), clients.names) == ([216, 216], ("a", "b"))
    assert set(first.tolist()) != set((second % 240).tolist())  # each client's draw is its own,
    alone = Stored.of({k: v[240:] for k, v in own.items()}, [240], names=("b",)).hold_out()[1]
    assert alone["x"].tolist() == second.tolist()  # whoever is beside it


def test_without_labels_a_tenth_is_drawn_at_random():
    clients, test, _ = Stored.of({"x": np.arange(1000)}, [1000]).hold_out()
    assert len(test["x"]) == 100
    assert 300 < test["x"].mean() < 700
    assert len(set(test["x"].tolist()) | set(clients.arrays["x"].tolist())) == 1000


def test_generated_clients_hold_out_their_last_tenth():
    generated = Generated(
        3, 20, lambda client, data: 10 * (client > 0) + 10 - 9 * (client == 2),
        lambda client, index, data: {"x": 100 * client + index},
    )  # fmt: skip
    assert generated.rows_of(jnp.arange(3)).tolist() == [10, 20, 11]
    clients, test, whose = generated.hold_out()
    assert test["x"].tolist() == [9, 119, 118, 210]
    assert whose.tolist() == [0, 1, 1, 2]
    for counts in (clients.rows_of(jnp.arange(3)), clients.examples_of(jnp.arange(3))):
        assert counts.tolist() == [9, 18, 10]
    assert clients.batch(jnp.int32(1), jnp.array([0, 17]))["x"].tolist() == [100, 117]


def test_more_rows_than_an_index_can_name_are_refused():
    nothing = np.broadcast_to(np.uint8(0), (2**31,))  # takes no memory
    with pytest.raises(InputError, match="may have 2³¹ − 1 rows, got 2147483648"):
        Stored.of({"x": nothing}, [2**30, 2**30])
    last = Stored.of({"x": nothing[1:]}, [2**30, 2**30 - 1])
    assert last.starts.tolist() == [0, 2**30]

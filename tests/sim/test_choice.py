"""Power of choice: clients are asked for their loss, and those with the largest train."""

import jax
import jax.numpy as jnp
import numpy as np
from small_tasks import assert_agree, tiny

import taciturn
from taciturn.core.tally import OVERHEAD
from taciturn.sim import draws
from taciturn.sim.model import flat_model, make_loss_sums
from taciturn.tasks.task import Stored, Task


def one_row_each(values, rows=None):
    """A single weight w and the loss (w − x)² / 2: a step of rate 1 from w = 0 goes to mean x."""
    rows = rows or [1] * len(values)

    def loss(params, batch, key=None):
        return (params["w"] - batch["x"]) ** 2 / 2

    return Task(
        "one row each", Stored.of({"x": np.repeat(np.array(values, np.float32), rows)}, rows),
        init=lambda key: {"w": jnp.zeros(())}, loss=loss, batch=8, lr=1.0, clip=None,
        metrics=lambda params, batch: {"loss": (loss(params, batch), jnp.ones_like(batch["x"]))},
        test={"x": np.ones(2, np.float32)},
    )  # fmt: skip


def test_the_cohort_is_those_with_the_largest_loss_and_they_count_alike():
    # All are candidates. At w = 0 losses are x² / 2: −5 and 4 train, and w goes to their mean.
    # At −0.5 the distances are 1.5, 4.5, 2.5, 4.5 and 3.5: the same two again, and w stays.
    task = one_row_each([1, -5, 2, 4, 3], rows=[1, 3, 1, 1, 2])
    for rounds in (1, 2):
        history = taciturn.simulate(task, "full", rounds=rounds, cohort=2, choice=5, plain=True)
        who = history.participation
        assert (who.client.tolist(), who.examples.tolist()) == ([1, 3], [3, 1])
        assert who.asked.tolist() == [rounds, rounds]
        np.testing.assert_allclose(history.weights, [[-0.5]], rtol=1e-6)


def test_it_is_asked_of_the_candidates_alone():
    """Of whom the loss grows with the number."""
    task = one_row_each([float(x) for x in range(1, 13)])
    counts = taciturn.simulate(
        task, "full", rounds=1, cohort=2, choice=4, seeds=3, plain=True
    ).participation
    for seed in range(3):
        now = draws.round_keys(draws.run_keys(seed), 0)
        candidates = draws.candidates(now, jnp.ones(12), 4).tolist()
        assert counts.client[counts.seed == seed].tolist() == sorted(candidates)[-2:]


def test_candidates_are_drawn_by_their_examples_without_replacement():
    examples = jnp.array([1.0, 2.0, 3.0])
    keys = jax.vmap(lambda t: draws.round_keys(draws.run_keys(0), t))(jnp.arange(20_000))
    drawn = np.asarray(jax.vmap(lambda key: draws.candidates(key, examples, 2))(keys))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    for first, second in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]:
        n = np.asarray(examples)
        p = n[first] / 6 * n[second] / (6 - n[first])
        found = (drawn == [first, second]).all(1).mean()
        assert abs(found - p) < 5 * np.sqrt(p * (1 - p) / 20_000)


def test_losses_do_not_depend_on_batches_or_on_who_takes_them():
    task, batch = tiny(), 7
    model = flat_model(task)
    weights = model.init(jax.random.key(0))
    candidates = jnp.array([3, 0, 4], jnp.int32)
    sums = make_loss_sums(task, model, batch)
    shares = [sums(weights, candidates, task.clients, jnp.int32(i * batch), 2 * batch)
              for i in range(2)]  # fmt: skip
    value, weight = np.sum(shares, axis=0)
    for k, mean in zip(candidates, value / weight, strict=True):
        part = task.clients.batch(k, jnp.arange(int(task.clients.rows[k])))
        losses, _ = task.metrics(model.unravel(weights), part)["loss"]
        np.testing.assert_allclose(mean, losses.mean(), rtol=1e-5)
    assert weight.tolist() == [20, 3, 7]


def test_a_client_whose_loss_is_no_number_is_chosen_last():
    history = assert_agree(tiny(poisoned=2), {"full": "full"}, rounds=3, cohort=4, choice=5)["full"]
    assert history.participation.client.tolist() == [0, 1, 3, 4]
    assert history.rejected.sum() == 0


def test_probes_are_counted_to_the_byte():
    history = taciturn.simulate(
        tiny(), "full", choice=4, rounds=5, cohort=2, dropout=0.4, plain=True
    )
    assert 0 < history.missing.sum() < 10
    # Four losses and an answer from all who are there; four models, four requests for a loss and
    # two to train, for which nobody gets the model again.
    model, columns, answered = 4 * history.size, history.columns(), 2 - history.missing
    up, down = (4 + answered) * OVERHEAD, (4 + 2) * OVERHEAD
    wanted = {"bytes_up": history.spoke * model, "overhead_up": up, "bytes_down": 4 * model,
              "bytes_down_silos": 4 * model, "overhead_down": down,
              "bytes_up_full": answered * model + up,
              "bytes_down_full": 4 * model + down}  # fmt: skip
    for name, column in wanted.items():
        np.testing.assert_array_equal(columns[name], np.broadcast_to(column, (1, 5)), name)
    assert history.summary()["choice"] == 4

"""Figures of single clients: the worst tenth, and how often small and large ones are silent."""

import csv
import dataclasses
import itertools
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import tiny

import taciturn
from taciturn import studies
from taciturn.sim import draws
from taciturn.sim.history import NO_ANSWER, SILENT, SPOKE, participation_of
from taciturn.sim.model import worst_tenth

ARMS = {name: name for name in ("full", "adaptive,k=0+ou")}
QUICK = {"rounds": 6, "cohort": 3, "seeds": (2**32 - 1, 1), "evaluate_every": 2}


def test_the_worst_tenth_is_that_of_the_weights():
    task = tiny()
    for history in taciturn.compare(task, ARMS, plain=True, **QUICK).values():
        tested = ~np.isnan(history.accuracy)
        assert (np.isnan(history.worst_tenth) == ~tested).all()
        model = taciturn.as_model(task, history.weights[1])
        answers = np.argmax(task.test["x"] @ model["w"] + model["b"], 1) == task.test["y"]
        by_client = sorted(answers[task.test_clients == k].mean() for k in range(11))
        assert history.worst_tenth[1, -1] == pytest.approx(np.mean(by_client[:2]))
        worst = history.summary()["worst_tenth"]
        assert worst == pytest.approx(100 * history.worst_tenth[:, -1].mean())
    assert worst_tenth(jnp.arange(21.0), jnp.full(21, 2.0)) == 0.5  # (0 + 1 + 2) / 3 / 2
    nobodys = dataclasses.replace(task, test_clients=None)
    assert taciturn.simulate(nobodys, "full", plain=True, **QUICK).summary()["worst_tenth"] is None


def test_who_was_asked_is_counted():
    history = taciturn.simulate(tiny(), "random:0.5+ignore", dropout=0.3, **QUICK)
    counts = history.participation
    for seed in QUICK["seeds"]:
        keys = [draws.round_keys(draws.run_keys(seed), t) for t in range(6)]
        asked = Counter(np.ravel([draws.cohort(key, 5, 3) for key in keys]).tolist())
        own = counts.seed == seed
        pairs = zip(counts.client[own].tolist(), counts.asked[own].tolist(), strict=True)
        assert asked == dict(pairs)
    assert counts.spoke.sum() == history.spoke.sum()
    answered = counts.spoke + counts.silent
    assert (counts.asked - answered).sum() == history.missing.sum() > 0
    sizes = np.array([3, 12, 5, 20, 7])[counts.client]
    np.testing.assert_array_equal(counts.examples[answered > 0], sizes[answered > 0])


def test_thirds_are_of_the_clients_that_answered_by_their_examples():
    clients = np.array([[[4, 0, 1, 2, 3, 5]] * 2])
    examples = 10.0 - clients
    answers = np.full(clients.shape, SPOKE)
    answers[0, 0, 1] = NO_ANSWER  # client 0, the largest, is never heard
    answers[0, 1, 1] = NO_ANSWER
    answers[0, 0, [0, 5]] = SILENT  # clients 4 and 5, in one of two rounds
    answers[0, 1, 2] = SILENT  # client 1, in one of two
    found = participation_of([7], clients, examples, answers[None]).of_arm(0)
    # Of five clients the smallest third is the smallest one, 5; the largest third 2 and 1.
    assert found.silent_share(0) == 50
    assert found.silent_share(2) == 25
    nobody = participation_of([7], clients, examples, np.full_like(answers, NO_ANSWER)[None])
    assert nobody.of_arm(0).silent_share(0) is None


def test_a_folder_keeps_a_row_for_each_client(tmp_path):
    names = {"ann", "bob, jr", "cy", "di"}
    x = np.random.default_rng(0).normal(size=(40, 3)).astype("f4")
    own = tmp_path / "own.npz"
    np.savez(own, x=x, y=np.arange(40) % 2, client=np.repeat(sorted(names), 10))
    values = {"task": "npz", "data": own, "arms": "full; random:0.5+ignore", "plain": True,
              "rounds": 4, "cohort": 2, "seeds": 2}  # fmt: skip
    folder, _ = studies.start(values, tmp_path / "run", studies.Told(quiet=True))
    with open(folder / "clients.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["name"] for row in rows} <= names
    runs = {(row["arm"], row["seed"]) for row in rows}
    assert runs == set(itertools.product(("full", "random:0.5+ignore"), "01"))
    full = [row for row in rows if row["arm"] == "full"]
    assert sum(int(row["spoke"]) for row in full) == 4 * 2 * 2
    assert all(row["spoke"] == row["asked"] and row["silent"] == "0" for row in full)

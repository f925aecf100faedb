"""Parts, tasks and models of one's own: a program never serves another function than was given."""

import dataclasses
import functools
from types import ModuleType
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import assert_agree, distance, noisy

import taciturn
from taciturn.core import policy as policies
from taciturn.core.buffers import is_buffer
from taciturn.core.codecs import quantize
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.core.rules import Chance, Rule, full
from taciturn.core.standins import ignore
from taciturn.errors import InputError, UnknownName
from taciturn.sim.engine import structure_of
from taciturn.sim.model import model_of, named_weights
from taciturn.tasks import load

TASK = load("synthetic")
QUICK = {"rounds": 3, "cohort": 4}


def rule(speaks):
    """One that does not say what it depends on."""
    return Rule("mine", init=lambda size, rounds: Chance(0.0), speaks=speaks)


def test_arms_that_differ_by_a_number_in_a_closure_are_not_swapped():
    def above(limit):
        return Policy(rule(lambda own, context: own.uniform < limit), ignore())

    for order in (("few", "all"), ("all", "few")):
        arms = {name: above({"few": 0.0, "all": 1.0}[name]) for name in order}
        found = taciturn.compare(TASK, arms, **QUICK)
        assert (found["few"].spoke.sum(), found["all"].spoke.sum()) == (0, 12)


LIMIT = 2.0


def test_a_loss_that_reads_another_number_is_another_program(monkeypatch):
    def loss(params, batch, key):
        return LIMIT * TASK.loss(params, batch, key)

    task = dataclasses.replace(TASK, loss=loss, clip=None)
    before = taciturn.simulate(task, "full", **QUICK).weights
    monkeypatch.setitem(globals(), "LIMIT", 6.0)
    now = taciturn.simulate(task, "full", **QUICK).weights
    assert distance(now, before) > 1e-2


def test_parts_of_the_package_share_a_program_whatever_their_numbers():
    texts = [
        ("adaptive,k=0+ou", "adaptive,k=2+ou"), ("fixed:0.1+zero", "fixed:7+zero"),
        ("random:0.1+last", "random:0.9+last"), ("adaptive,weighted=false+ou",),
        ("adaptive+ou,cap=true",), ("full+eden:0.1", "full+eden:0.1"), ("full+eden:0.5",),
        ("budget:1%", "budget:2kB"),
        # The codec up and the codec down have the same name: neither may hide the other.
        ("full+eden:1+down=eden:1",), ("full+eden:1+down=eden:2",), ("full+eden:2+down=eden:1",),
    ]  # fmt: skip
    keys = [{structure_of(taciturn.parse(text)) for text in same} for same in texts]
    assert all(len(same) == 1 for same in keys)
    assert len(set.union(*keys)) == len(texts)


def test_a_fingerprint_looks_into_closures_defaults_and_what_is_called():
    def make(number, default=1):
        def inner(x, by=default):
            return x * number + by

        return lambda x: inner(x)

    assert fingerprint(make(1.0)) == fingerprint(make(1.0))
    for other in (make(2.0), make(1.0, 2), make(1)):  # of another dtype under JAX
        assert fingerprint(make(1.0)) != fingerprint(other)
    own, other = object(), object()
    first, again, another = (fingerprint(lambda what=what: what) for what in (own, own, other))
    assert first == again != another

    def loop(n):
        return loop(n - 1) if n else 0

    assert fingerprint(loop) == fingerprint(loop)


class Limit:
    """What a rule may look at: an object, its attributes, its methods."""

    def __init__(self, number):
        self.number = number

    def passes(self, own, context):
        return own.uniform < self.number


NUMBERS = ModuleType("numbers_of_a_notebook")
NUMBERS.LIMIT, NUMBERS.LIMITS = 2.0, {"uniform": 2.0}
ARRAY = np.array([2.0], np.float32)
OBJECT = Limit(2.0)
INSIDE = {
    "a lambda": lambda own, context: (lambda: own.uniform < LIMIT)(),
    "a comprehension": lambda own, context: sum([own.uniform < LIMIT for _ in range(1)]) > 0,
    "a module": lambda own, context: own.uniform < NUMBERS.LIMIT,
    "a dict of a module": lambda own, context: own.uniform < NUMBERS.LIMITS["uniform"],
    "an array": lambda own, context: own.uniform < ARRAY[0],
    "an object": lambda own, context: own.uniform < OBJECT.number,
    "a method": OBJECT.passes,
    "a partial": functools.partial(lambda limit, own, context: own.uniform < limit.number, OBJECT),
}


def test_what_is_changed_where_a_rule_looks_takes_effect(monkeypatch):
    before = {where: fingerprint(function) for where, function in INSIDE.items()}
    assert before == {where: fingerprint(function) for where, function in INSIDE.items()}
    monkeypatch.setitem(globals(), "LIMIT", -1.0)
    monkeypatch.setattr(NUMBERS, "LIMIT", -1.0)
    monkeypatch.setitem(NUMBERS.LIMITS, "uniform", -1.0)
    monkeypatch.setattr(OBJECT, "number", -1.0)
    ARRAY[0] = -1.0
    for where, function in INSIDE.items():
        assert fingerprint(function) != before[where], where


OWN = dataclasses.replace(quantize(8), name="own", params=())


@pytest.mark.parametrize("plain", [False, True])
def test_codecs_of_one_name_are_not_swapped_and_what_they_do_reaches_no_other(plain):
    """Also with several lanes, where updates of all arms are coded together."""

    def times(factor):
        return Policy(full(), ignore(), dataclasses.replace(
            OWN, decode=lambda code, key, size: factor * OWN.decode(code, key, size)
        ))  # fmt: skip

    arms = {name: times(float(name)) for name in ("0", "1", "nan", "1e9")} | {"full": "full"}
    lanes = {"plain": True} if plain else {"lanes": 3}
    found = taciturn.compare(TASK, arms, **lanes, **QUICK)
    alone = taciturn.simulate(TASK, "full", **QUICK).weights
    np.testing.assert_allclose(found["full"].weights, alone, rtol=1e-4, atol=1e-6)
    assert distance(found["1"].weights, alone) < 0.05 < distance(found["0"].weights, alone)
    for name, rejected in (("1", 0), ("nan", 12), ("1e9", 12)):
        history = found[name]
        assert (history.rejected.sum(), history.spoke.sum()) == (rejected, 12 - rejected)


# A name in texts.


def loud(share: float = 0.5) -> Rule:
    """Speaks with this chance."""
    return Rule("loud", (("share", share),), init=lambda size, rounds: Chance(share),
                speaks=lambda own, context: own.uniform < context.probability)  # fmt: skip


@pytest.fixture
def registry():
    """Nothing that a test registers stays."""
    with patch.dict(policies.RULES), patch.dict(policies.CODECS):
        yield
    policies.OWN.clear()


@pytest.mark.usefixtures("registry")
def test_a_codec_that_writes_something_else_than_it_says_is_refused():
    def liar():
        return dataclasses.replace(OWN, name="liar", forms=lambda size: OWN.forms(3))

    short = dataclasses.replace(OWN, decode=lambda code, key, size: jnp.zeros(3))
    taciturn.register("codec", liar)
    for policy, what in (("full+liar", "`forms`"), (Policy(full(), ignore(), short), "`decode`")):
        with pytest.raises(InputError, match=what):
            taciturn.simulate(TASK, policy, **QUICK)


def test_a_part_that_cannot_be_traced_is_one_sentence():
    for speaks in (lambda own, context: own.norm if own.norm > 0 else False,
                   lambda own, context: np.asarray(own.norm) > 0):  # fmt: skip
        with pytest.raises(InputError, match=r"^mine\+ignore cannot be traced by JAX: .*no `if`"):
            taciturn.simulate(TASK, Policy(rule(speaks), ignore()), **QUICK)


@pytest.mark.usefixtures("registry")
def test_a_part_gets_a_name_in_one_line():
    assert str(Policy(loud(0.25), ignore())) == "loud,share=0.25+ignore"  # people can read it,
    with pytest.raises(UnknownName, match="called `loud`"):
        taciturn.parse("loud+ignore")  # programs only when it is registered
    taciturn.register("rule", loud)
    for text in ("loud+ignore", "loud,share=0.25+ignore", "loud,share=0.25+zero+eden:1"):
        assert str(taciturn.parse(text)) == text
    assert taciturn.parse("loud:0.25+ignore") == Policy(loud(0.25), ignore())
    found = taciturn.simulate(TASK, "loud:1+ignore", plain=True, **QUICK)
    assert (found.spoke.sum(), found.summary()["rule"]) == (12, "loud,share=1")


@pytest.mark.usefixtures("registry")
def test_a_part_that_is_registered_again_takes_the_old_ones_place():
    for limit, expected in ((-1, 12), (1e9, 0)):

        def mine(limit: float = limit) -> Rule:
            return rule(lambda own, context: own.norm > limit)

        taciturn.register("rule", mine)
        found = taciturn.simulate(TASK, "mine+ignore", plain=True, **QUICK)
        assert found.spoke.sum() == expected


# Tasks: who is asked, and what is measured.


@pytest.mark.parametrize("plain", [False, True])
def test_a_task_may_draw_cohorts_of_its_own(plain):
    task = dataclasses.replace(TASK, cohort=lambda key, t, size: 9 * t + jnp.arange(size))
    found = taciturn.simulate(task, "full", plain=plain, rounds=2, cohort=3)
    assert found.participation.client.tolist() == [0, 1, 2, 9, 10, 11]


def test_metrics_of_ones_own_are_there_and_accuracy_is_not_needed():
    def metrics(params, batch):
        one = jnp.ones(len(batch["y"]))
        return {"size": (one * jnp.sum(jnp.abs(params["w"])), one), "ones": (batch["y"], one)}

    task = dataclasses.replace(TASK, metrics=metrics)
    history = assert_agree(task, ["full"], seed=2**32 - 1, **QUICK)["full"]
    assert np.isnan(history.accuracy).all()
    scores, size = taciturn.evaluate(task, history.weights[0]), history.metrics["size"]
    assert size.shape == history.accuracy.shape
    assert size[:, -1] == pytest.approx([scores["size"]], rel=1e-6)
    assert history.summary()["metrics"]["size"] == size[:, -1].tolist()
    model = taciturn.as_model(task, history.weights[0])
    assert scores["size"] == pytest.approx(np.abs(model["w"]).sum(), rel=1e-5)
    assert scores["ones"] == pytest.approx(task.test["y"].mean())


# Models with arrays that are no weights.

STATISTICS = {
    "running_mean": np.linspace(-1, 1, 20, dtype=np.float32),
    "running_var": np.geomspace(1e-4, 1, 20, dtype=np.float32),
    "num_batches_tracked": np.int32(7),
}


def normalised():
    """A linear model of 105 weights behind a BatchNorm that is frozen: gradients would move it."""

    def init(key):
        return {"b": jnp.zeros(5), "norm": STATISTICS, "w": jax.random.normal(key, (20, 5)) * 0.1}

    def predict(params, x, key):
        norm = params["norm"]
        scaled = (x - norm["running_mean"]) / jnp.sqrt(norm["running_var"] + 1e-5)
        return scaled @ params["w"] + params["b"]

    return noisy("normalised", init, predict, 5, (20,), [2, 7, 12, 5, 10, 17])


def test_frozen_statistics_stay_as_they_were_whatever_the_codec():
    """Else their noise would make a variance negative, and the loss NaN."""
    task, settings = normalised(), {"lanes": 1, "server_optimizer": "adam", "server_lr": 0.1}
    (history,) = assert_agree(task, ["full+quantize:1+down=eden:1"], cohort=4, **settings).values()
    assert history.size == 105
    assert np.isfinite(history.loss[:, -1]).all()
    named = named_weights(task, history.seeds, history.weights)
    own = taciturn.as_model(task, history.weights[0])
    for model in (own, model_of(task, history.seeds[0], named)):
        for name, values in STATISTICS.items():
            np.testing.assert_array_equal(model["norm"][name], values)
        np.testing.assert_array_equal(model["w"], own["w"])
    scores = taciturn.evaluate(task, history.weights[0])
    assert scores["loss"] == pytest.approx(history.loss[0, -1], rel=1e-4)


def test_statistics_are_found_by_the_names_that_frameworks_give_them():
    frameworks = "bn1.running_mean", "batch_stats.BatchNorm_0.mean", "norm.moving_variance"
    assert all(map(is_buffer, frameworks))
    assert not any(map(is_buffer, ("norm.mean", "running_mean.weight", "layer.bias")))

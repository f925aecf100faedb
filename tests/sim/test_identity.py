"""A program, and a folder, belong to what a task's functions do and not to their names."""

import dataclasses
import types

import numpy as np
import optax
import pytest
from small_tasks import tiny

import taciturn
from taciturn.core import codecs, policy, rules
from taciturn.errors import InputError, RunError
from taciturn.sim import engine

QUICK = {"rounds": 2, "cohort": 3, "clip": float("inf")}
NUMBERS = types.ModuleType("numbers_of_a_user")
NUMBERS.factors = {"loss": 1.0}
FACTOR = 1.0


def loss_of(task):
    return lambda params, batch, key: FACTOR * task.loss(params, batch, key)


@pytest.fixture
def factor(monkeypatch):
    return lambda value: monkeypatch.setitem(globals(), "FACTOR", value)


def test_a_loss_that_reads_another_number_is_another_program(factor):
    task = dataclasses.replace(tiny(), loss=loss_of(tiny()))
    before = taciturn.simulate(task, "full", **QUICK)
    factor(3.0)
    engine, plain = (
        taciturn.simulate(task, "full", plain=plain, **QUICK) for plain in (False, True)
    )
    np.testing.assert_allclose(engine.weights, plain.weights, rtol=1e-4, atol=1e-5)
    assert not np.allclose(engine.weights, before.weights, rtol=1e-3)


def test_a_rule_that_reads_a_dict_of_a_module_is_another_program():
    def strict():
        return rules.Rule(
            "strict",
            init=lambda size, rounds: rules.Nothing(),
            speaks=lambda own, context: own.norm > NUMBERS.factors["loss"],
        )

    NUMBERS.factors["loss"] = 0.0
    assert taciturn.simulate(tiny(), taciturn.Policy(strict()), **QUICK).spoke.sum() == 6
    NUMBERS.factors["loss"] = 1e9
    assert taciturn.simulate(tiny(), taciturn.Policy(strict()), **QUICK).spoke.sum() == 0


@pytest.mark.parametrize("what", ["optimizer", "loss", "examples", "held out"])
def test_a_finished_folder_is_not_read_for_another_run(tmp_path, factor, what):
    task = dataclasses.replace(tiny(), loss=loss_of(tiny()))
    settings = QUICK | {"client_optimizer": optax.sgd(0.01), "folder": tmp_path}
    taciturn.simulate(task, "full", **settings)
    if what == "optimizer":
        settings["client_optimizer"] = optax.sgd(1.0)
    elif what == "loss":
        factor(3.0)
    elif what == "examples":
        clients = dataclasses.replace(task.clients, examples=task.clients.examples * 2)
        task = dataclasses.replace(task, clients=clients)
    else:
        task = dataclasses.replace(task, hold_out="last")
    with pytest.raises(RunError, match="is of another run"):
        taciturn.simulate(task, "full", **settings)


def test_a_registered_codec_is_checked_too():
    def liar():
        return dataclasses.replace(
            codecs.float32(), name="liar", forms=lambda size: (codecs.codec.Form("u1", (1,)),)
        )

    taciturn.register("codec", liar)
    try:
        with pytest.raises(InputError, match="makes float32"):
            taciturn.simulate(tiny(), "full+liar", **QUICK)
    finally:
        del policy.CODECS["liar"]
        policy.OWN.discard("liar")


def test_numbers_of_dropout_stragglers_and_prox_are_no_other_programs():
    task = tiny()
    engine._program.cache_clear()
    for number in (0.1, 0.2):
        taciturn.simulate(task, "full", dropout=number, stragglers=number, prox=number, **QUICK)
    assert engine._program.cache_info().misses == 1

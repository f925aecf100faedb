"""Rules and stand-ins of one's own: a program never serves another function than the one given."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import taciturn
from taciturn.core.fingerprints import fingerprint
from taciturn.core.policy import Policy
from taciturn.core.rules import Chance, Rule
from taciturn.core.standins import ignore
from taciturn.sim.engine import _Structure
from taciturn.tasks import load

TASK = load("synthetic")
QUICK: dict[str, Any] = {"rounds": 3, "cohort": 4}


def rule(speaks: Any) -> Rule:
    """One that does not say what it depends on."""
    return Rule("mine", init=lambda: Chance(0.0), speaks=speaks)


def spoke(own: Rule, plain: bool = False) -> list[int]:
    policy = Policy(own, ignore())
    return taciturn.simulate(TASK, policy, plain=plain, **QUICK).spoke[0].tolist()


def test_a_rule_that_is_edited_takes_effect() -> None:
    assert spoke(rule(lambda own, context: own.norm > -1)) == [4, 4, 4]
    assert spoke(rule(lambda own, context: own.norm > 1e9)) == [0, 0, 0]
    assert spoke(rule(lambda own, context: own.norm > -1)) == [4, 4, 4]


def test_arms_that_differ_by_a_number_in_a_closure_are_not_swapped() -> None:
    def above(limit: float) -> Policy:
        return Policy(rule(lambda own, context: own.uniform < limit), ignore())

    first = taciturn.compare(TASK, {"few": above(0.0), "all": above(1.0)}, **QUICK)
    second = taciturn.compare(TASK, {"all": above(1.0), "few": above(0.0)}, **QUICK)
    for found in (first, second):
        assert found["few"].spoke.sum() == 0
        assert found["all"].spoke.sum() == 12


LIMIT = 2.0


def of_a_global(own: Any, context: Any) -> Any:
    return own.uniform < LIMIT


def test_a_global_that_is_changed_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spoke(rule(of_a_global)) == [4, 4, 4]
    monkeypatch.setitem(globals(), "LIMIT", -1.0)
    assert spoke(rule(of_a_global)) == [0, 0, 0]


def test_parts_of_the_package_share_a_program_whatever_their_numbers() -> None:
    def key(text: str) -> _Structure:
        return _Structure(taciturn.parse(text))

    assert key("adaptive,k=0+ou") == key("adaptive,k=2+ou")
    assert hash(key("fixed:0.1+zero")) == hash(key("fixed:7+zero"))
    assert key("random:0.1+last") == key("random:0.9+last")
    assert key("adaptive+ou") != key("adaptive,weighted=false+ou")
    assert key("adaptive+ou") != key("adaptive+ou,cap=true")
    assert key("full+eden:0.1") == key("full+eden:0.1")
    assert key("full+eden:0.1") != key("full+eden:0.5")
    assert key("full+quantize:2") != key("full+quantize:3")


def test_a_fingerprint_looks_into_closures_defaults_and_what_is_called() -> None:
    def make(number: float, default: int = 1) -> Any:
        def inner(x: Any, by: int = default) -> Any:
            return x * number + by

        return lambda x: inner(x)

    assert fingerprint(make(1.0)) == fingerprint(make(1.0))
    assert fingerprint(make(1.0)) != fingerprint(make(2.0))
    assert fingerprint(make(1.0)) != fingerprint(make(1.0, 2))
    assert fingerprint(make(1)) != fingerprint(make(1.0))  # another dtype under JAX
    own, other = np.zeros(2), np.zeros(2)
    hold = [lambda array=array: jnp.asarray(array) for array in (own, own, other)]
    prints = [fingerprint(function) for function in hold]
    assert prints[0] == prints[1] != prints[2]

    def loop(n: int) -> int:
        return loop(n - 1) if n else 0

    assert fingerprint(loop) == fingerprint(loop)

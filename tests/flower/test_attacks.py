"""A part of `benchmarks/attacks.py`."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attacks


def test_every_attack_is_in_one_row_of_the_table():
    assert sorted(itertools.chain(*attacks.FAMILIES.values())) == sorted(attacks.ATTACKS)


@pytest.mark.parametrize(
    ("inner", "name"),
    [*itertools.product(
        ["FedAvg", "FedMedian", "Krum"],
        ["n = 1e9, norm 1e3", "norm 1e6 in round 1, then honest",
         "norm 50 and n = 1e5 once, then silent with norm τ", "silent with n = 1e6"]),
     ("FedAvg", "a code of 32 bytes, four times the norm"),
     ("FedAdam", "buffers of 1e17"), ("FedAdam", "buffers of 1e17 with n = 1e9")],
)  # fmt: skip
def test_the_default_policy_is_as_good_as_everyone_speaking(inner, name):
    make = attacks.STRATEGIES[inner]
    everyone, _ = attacks.measure(make, name, 2)
    ours, share = attacks.measure(lambda: attacks.Taciturn(make(), seed=0), name, 2)
    assert attacks.holds("default", ours, everyone), (ours, everyone)
    assert share >= 0.9  # no honest node is silent


@pytest.mark.parametrize("inner", ["MultiKrum", "Bulyan", "FedTrimmedAvg"])
def test_where_half_are_silent_strategies_that_need_more_replies_hold(inner):
    make, name = attacks.STRATEGIES[inner], "honest n, norm 1e3"
    everyone, _ = attacks.measure(make, name, 2)
    policy = attacks.POLICIES["random"]
    ours, _ = attacks.measure(lambda: attacks.Taciturn(make(), policy, seed=0), name, 2)
    assert attacks.holds("random", ours, everyone), (ours, everyone)


def test_without_bounds_the_first_attack_succeeds():
    """What the bounds are for: the same attack on the paper's policy without them."""
    name = "norm 50 and n = 1e5 once, then silent with norm τ"
    make, free = attacks.STRATEGIES["FedAvg"], {"weight_limit": None, "norm_limit": None}
    bounded, _ = attacks.measure(lambda: attacks.Taciturn(make()), name, 1)
    gone, _ = attacks.measure(lambda: attacks.Taciturn(make(), "adaptive+ou", **free), name, 1)
    assert gone > 10 * bounded


@pytest.mark.parametrize("inner", ["MultiKrum", "FedTrimmedAvg"])
def test_by_default_too_few_replies_are_a_trimmed_mean(inner, monkeypatch):
    monkeypatch.setattr(attacks, "NODES", 4)
    monkeypatch.setattr(attacks, "BAD", 3)
    make = attacks.STRATEGIES[inner]
    found, _ = attacks.measure(lambda: attacks.Taciturn(make(), seed=0), "honest n, norm 1e3", 1)
    assert found < 1

"""A part of `benchmarks/attacks.py`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attacks


@pytest.mark.parametrize("inner", ["FedAvg", "FedMedian", "Krum"])
@pytest.mark.parametrize(
    "name",
    ["n = 1e9, norm 1e3", "norm 1e6 in round 1, then honest",
     "norm 50 and n = 1e5 once, then silent with norm τ", "silent with n = 1e6"],
)  # fmt: skip
def test_the_default_policy_is_as_good_as_everyone_speaking(name, inner):
    make, attack = attacks.STRATEGIES[inner], attacks.ATTACKS[name]
    everyone, _ = attacks.measure(make, attack, 2)
    ours, share = attacks.measure(lambda: attacks.Taciturn(make()), attack, 2)
    assert attacks.holds("default", ours, everyone), (ours, everyone)
    assert share > 0.5
    # Under FedAvg one node may drive all away: then all norms are alike, and everyone speaks.
    assert share < 1 or inner == "FedAvg"


@pytest.mark.parametrize("inner", ["MultiKrum", "Bulyan", "FedTrimmedAvg"])
def test_where_half_are_silent_strategies_that_need_more_replies_hold(inner):
    make, attack = attacks.STRATEGIES[inner], attacks.ATTACKS["honest n, norm 1e3"]
    everyone, _ = attacks.measure(make, attack, 2)
    policy = attacks.POLICIES["random"]
    ours, _ = attacks.measure(lambda: attacks.Taciturn(make(), policy, seed=0), attack, 2)
    assert attacks.holds("random", ours, everyone), (ours, everyone)


def test_without_bounds_the_first_attack_succeeds():
    """What the bounds are for: the same attack on the paper's policy without them."""
    attack = attacks.ATTACKS["norm 50 and n = 1e5 once, then silent with norm τ"]
    make, free = attacks.STRATEGIES["FedAvg"], {"weight_limit": None, "norm_limit": None}
    bounded, _ = attacks.measure(lambda: attacks.Taciturn(make()), attack, 1)
    gone, _ = attacks.measure(lambda: attacks.Taciturn(make(), "adaptive+ou", **free), attack, 1)
    assert gone > 10 * bounded

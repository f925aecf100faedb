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

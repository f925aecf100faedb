"""Policies as text; what is no policy is among the bad input."""

import pytest

from taciturn.core import codecs, rules, standins
from taciturn.core.policy import Policy, parse


def test_whether_a_policy_loses_anything_of_so_many_weights():
    for text, size, loses in (("full+top_k:1", 9, False), ("full+peaks", 999, False),
                              ("full+peaks", 10_000, True), ("budget", 999, True)):  # fmt: skip
        assert parse(text).loses(size) is loses, text


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("adaptive:0+ou:paper", Policy(rules.adaptive(k=0), standins.ou("paper"))),
        (" fixed : 0.5 + zero ", Policy(rules.fixed(0.5), standins.zero())),
        ("adaptive, k = 1 , weighted=FALSE", Policy(rules.adaptive(weighted=False))),
        (
            "full+eden:0.1+down=eden:1",
            Policy(rules.full(), codec=codecs.eden(0.1), down=codecs.eden(1)),
        ),
        (" down = eden:1 + full ", Policy(rules.full(), down=codecs.eden(1, feedback=True))),
    ],
)
def test_text_gives_what_python_gives(text, policy):
    assert parse(text) == policy


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("adaptive,k=1+ou,mode=constrained,cap=false+float32", "adaptive+ou"),
        ("random:0.30000000000000004+ou", "random:0.30000000000000004+ou"),
        (
            "full+top_k:0.1,feedback=true+down=eden:1,feedback=true",
            "full+top_k:0.1,feedback=true+down=eden:1",
        ),
        ("full+float32+down=float32", "full"),
        ("full+peaks,length=1%", "full+peaks:1%"),
        ("budget,amount=1.0 %+ignore+peaks", "budget:1%"),
        ("budget+ou+peaks:1kB", "budget+ou+peaks:1kB"),
    ],
)
def test_policies_print_in_their_shortest_form(text, shortest):
    assert str(parse(text)) == shortest

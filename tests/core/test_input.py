"""Bad input: each value gets a message that names it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from taciturn.core import client, codecs, rules, server, standins
from taciturn.core.policy import Policy, parse, parse_part
from taciturn.errors import InputError


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Policy(down="eden"), "'eden'"),
        (lambda: parse("full+down=edn:1"), "`eden`"),
        (lambda: parse("full+down=eden"), "`bits`"),
        (lambda: parse("down=eden:1+full+down=eden:1"), "two"),
        (lambda: parse("adaptive,k=1,k=2"), "`k`"),
        (lambda: parse("adaptive,at_most=2.5"), "`at_most`"),
        (lambda: parse_part("rule", "zero"), "`zero`"),
        (lambda: server.init(parse("full"), [1.0]), "list"),
        (lambda: server.init(parse("full"), np.ones((2, 2))), "(2, 2)"),
        (lambda: server.init(parse("full"), np.arange(3)), "int64"),
        (lambda: respond(np.ones(3)), "(3,)"),
        (lambda: respond(np.ones(2), 0), "`examples`"),
        (lambda: parse("budget:2GB,per=run").rule.init(100, None), "rounds"),
        (lambda: Policy(rules.full(), down=codecs.peaks(2)), "`down`"),
    ],
)
def test_bad_input_is_named(make: Callable[[], Any], names: str) -> None:
    with pytest.raises(InputError, match=re.escape(names)):
        make()


def respond(trained: np.ndarray, examples: float = 1) -> Any:
    return client.respond(rules.full(), np.ones(2), trained, examples, -math.inf, 0.5)


def test_whether_a_policy_loses_anything_of_so_many_weights() -> None:
    for text, size, loses in (("full+top_k:1", 9, False), ("full+peaks", 999, False),
                              ("full+peaks", 10_000, True), ("budget", 999, True)):  # fmt: skip
        assert parse(text).loses(size) is loses, text


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("adaptive,k=0+ou,cap=true", Policy(rules.adaptive(k=0), standins.ou(cap=True))),
        ("adaptive:0+ou:paper", Policy(rules.adaptive(k=0), standins.ou("paper"))),
        (" fixed : 0.5 + zero ", Policy(rules.fixed(0.5), standins.zero())),
        ("adaptive, k = 1 , weighted=FALSE", Policy(rules.adaptive(weighted=False))),
        ("fixed:1e-3+last+float32", Policy(rules.fixed(1e-3), standins.last())),
        (
            "full+eden:0.1+down=eden:1",
            Policy(rules.full(), codec=codecs.eden(0.1), down=codecs.eden(1)),
        ),
        (" down = eden:1 + full ", Policy(rules.full(), down=codecs.eden(1, feedback=True))),
        ("full+down=float32", Policy(rules.full())),
    ],
)
def test_text_gives_what_python_gives(text: str, policy: Policy) -> None:
    assert parse(text) == policy


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("adaptive,k=1+ou,mode=constrained,cap=false+float32", "adaptive+ou"),
        ("full+zero", "full+zero"),
        ("random:0.30000000000000004+ou", "random:0.30000000000000004+ou"),
        ("fixed:1e-300+zero", "fixed:1e-300+zero"),
        ("down=eden:1+full", "full+down=eden:1"),
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
def test_policies_print_in_their_shortest_form(text: str, shortest: str) -> None:
    assert str(parse(text)) == shortest

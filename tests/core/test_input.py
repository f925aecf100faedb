"""Bad input: each value gets a message that names it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.core import client, codecs, rules, server, standins
from taciturn.core.policy import Policy, parse, parse_part
from taciturn.errors import InputError, UnknownName


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rules.random(1.5), r"`probability` must be in \[0, 1\], got 1.5"),
        (lambda: rules.random(-0.1), r"`probability` must be in \[0, 1\], got -0.1"),
        (lambda: rules.random(math.nan), r"`probability` must be in \[0, 1\], got nan"),
        (lambda: rules.random(True), r"`probability` must be in \[0, 1\], got True"),
        (lambda: rules.random("often"), "`probability` must be a number, got 'often'"),
        (lambda: rules.random(None), "`probability` must be a number, got None"),
        (lambda: rules.fixed(-1), r"`threshold` must be in \[0, inf\], got -1"),
        (lambda: rules.fixed(math.nan), r"`threshold` must be in \[0, inf\], got nan"),
        (lambda: rules.adaptive(k=math.inf), r"`k` must be in \(-inf, inf\), got inf"),
        (lambda: rules.adaptive(k=-math.inf), r"`k` must be in \(-inf, inf\), got -inf"),
        (lambda: rules.adaptive(k=math.nan), r"`k` must be in \(-inf, inf\), got nan"),
        (lambda: rules.adaptive(weighted=1), "`weighted` must be true or false, got 1"),
        (lambda: standins.ou(mode="wild"), "`mode` must be constrained or paper, got 'wild'"),
        (lambda: standins.ou(cap="yes"), "`cap` must be true or false, got 'yes'"),
        (lambda: Policy(rule="full"), "A policy's Rule cannot be 'full'"),
        (lambda: Policy(stand_in=rules.full()), "A policy's StandIn cannot be Rule"),
        (lambda: Policy(codec="eden"), "A policy's Codec cannot be 'eden'"),
        (lambda: Policy(down="eden"), "A policy's `down` cannot be 'eden'"),
        (lambda: Policy(down=rules.full()), "A policy's `down` cannot be Rule"),
        (lambda: parse("full+down="), "no codec called ``. Known: bfloat16"),
        (lambda: parse("full+down=edn:1"), "no codec called `edn`. Did you mean `eden`"),
        (lambda: parse("full+down=adaptive"), "no codec called `adaptive`"),
        (lambda: parse("full+down=eden"), "`eden` needs `bits`, as in `eden:0.5`"),
        (lambda: parse("full+down=eden:9"), r"`bits` must be in \[0.02, 4\], got 9"),
        (
            lambda: parse("full+eden:1,feedback=true"),
            "`feedback` of `eden` is for the way down alone, as in `down=eden:1`",
        ),
        (lambda: parse("full+quantize:2,feedback=true"), "for the way down alone"),
        (lambda: codecs.peaks("31B"), "`length` must be at least 32 bytes, got 31B"),
        (lambda: codecs.peaks(0), r"`length` must be in \(0, 32\], got 0"),
        (lambda: codecs.peaks(33), r"`length` must be in \(0, 32\], got 33"),
        (lambda: parse("full+peaks:4 words"), "got '4 words'"),
        (lambda: parse("full+down"), "no rule, stand-in or codec called `down`"),
        (lambda: parse("full+down:eden"), "no rule, stand-in or codec called `down`"),
        (
            lambda: parse("down=eden:1+full+down=eden:1"),
            r"one codec for the way down, got two in `down=eden:1\+full\+down=eden:1`",
        ),
        (lambda: parse("adaptve"), "no rule, stand-in or codec called `adaptve`. .*`adaptive`"),
        (lambda: parse(""), "no rule, stand-in or codec called ``. Known: adaptive"),
        (lambda: parse("adaptive+"), "no rule, stand-in or codec called ``"),
        (lambda: parse("adaptive+full"), r"one rule, got two in `adaptive\+full`"),
        (lambda: parse("ou+zero"), r"one stand-in, got two in `ou\+zero`"),
        (
            lambda: parse("adaptive,q=1"),
            "no argument of `adaptive` called `q`. Known: at_most, k, robust, weighted",
        ),
        (lambda: parse("adaptive,weigthed=true"), "Did you mean `weighted`"),
        (lambda: parse("adaptive,k"), "written key=value, got `k` in `adaptive,k`"),
        (lambda: parse("adaptive,k=1,k=2"), "`k` is given twice"),
        (lambda: parse("adaptive:1,k=2"), "`k` is given twice"),
        (lambda: parse("full:1"), "`full` takes no value, got `full:1`"),
        (lambda: parse("full,k=1"), "`full` takes no arguments, got `k=1`"),
        (lambda: parse("fixed"), "`fixed` needs `threshold`, as in `fixed:0.5`"),
        (lambda: parse("random"), "`random` needs `probability`, as in `random:0.5`"),
        (lambda: parse("random:2"), r"`probability` must be in \[0, 1\], got 2"),
        (lambda: parse_part("rule", "zero"), "There is no rule called `zero`"),
        (lambda: parse_part("stand-in", "zro"), "no stand-in called `zro`. Did you mean `zero`"),
        (lambda: server.init(parse("full"), [1.0]), "must be an array, got list"),
        (lambda: server.init(parse("full"), np.ones((2, 2))), r"flat vector, got shape \(2, 2\)"),
        (lambda: server.init(parse("full"), np.arange(3)), "floating-point numbers, got int64"),
        (lambda: respond(np.ones(3), 1), r"2 entries like the model, got shape \(3,\)"),
        (lambda: respond(np.ones(2), 0), "`examples` must be above 0, got 0"),
        (lambda: respond(np.ones(2), -3), "`examples` must be above 0, got -3"),
        (lambda: respond(np.ones(2), math.nan), "`examples` must be above 0, got nan"),
        (lambda: respond(np.ones(2), math.inf), "`examples` must be above 0, got inf"),
    ],
)
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, taciturn.TaciturnError)


def respond(trained: np.ndarray, examples: float) -> Any:
    return client.respond(rules.full(), np.ones(2), trained, examples, -math.inf, 0.5)


@pytest.mark.parametrize(
    ("text", "size", "loses"),
    [("full", 9, False), ("full+eden:1", 9, True), ("full+top_k:1", 9, False),
     ("full+peaks", 999, False), ("full+peaks", 10_000, True), ("budget", 999, True)],
)  # fmt: skip
def test_whether_a_policy_loses_anything_of_so_many_weights(
    text: str, size: int, loses: bool
) -> None:
    assert parse(text).loses(size) is loses


def test_names_that_are_near() -> None:
    several = str(UnknownName("thing", "a", ["a1", "a2", "a3"]))
    assert re.search(r"Did you mean `a\d`, `a\d` or `a\d`\?", several)
    assert "Did you mean `zero`?" in str(UnknownName("thing", "zer", ["zero", "ou"]))
    assert "Known: ou, zero." in str(UnknownName("thing", "qqq", ["zero", "ou"]))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("adaptive,k=0+ou,cap=true", Policy(rules.adaptive(k=0), standins.ou(cap=True))),
        ("ou,cap=true+adaptive,k=0", Policy(rules.adaptive(k=0), standins.ou(cap=True))),
        ("adaptive:0+ou:paper", Policy(rules.adaptive(k=0), standins.ou("paper"))),
        ("random:0.5+ignore", Policy(rules.random(0.5), standins.ignore())),
        ("full", Policy(rules.full(), standins.ou(), codecs.float32())),
        (" fixed : 0.5 + zero ", Policy(rules.fixed(0.5), standins.zero())),
        ("zero", Policy(rules.adaptive(), standins.zero())),
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
        ("full+ou", "full"),
        ("full+zero", "full+zero"),
        ("adaptive,k=0.1", "adaptive,k=0.1+ou"),
        ("random:0.30000000000000004+ou", "random:0.30000000000000004+ou"),
        ("fixed:inf+zero", "fixed:inf+zero"),
        ("fixed:1e-300+zero", "fixed:1e-300+zero"),
        ("down=eden:1+full", "full+down=eden:1"),
        (
            "full+top_k:0.1,feedback=true+down=eden:1,feedback=true",
            "full+top_k:0.1,feedback=true+down=eden:1",
        ),
        ("full+down=float16", "full+down=float16"),
        ("full+float32+down=float32", "full"),
        ("full+peaks:4kB", "full+peaks"),
        ("full+peaks,length=1%", "full+peaks:1%"),
        ("budget,amount=1.0 %+ignore+peaks", "budget:1%"),
        ("budget+ou+peaks:1kB", "budget+ou+peaks:1kB"),
    ],
)
def test_policies_print_in_their_shortest_form(text: str, shortest: str) -> None:
    assert str(parse(text)) == shortest

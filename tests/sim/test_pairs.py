"""The engine is the plain loop: every two of rules, stand-ins, codecs and options of a run.

What is quick is an orthogonal array: of five rules, stand-ins, codecs and sets of options every two
meet in one arm, and arms with the same options run side by side. The whole grids are nightly.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import optax
import pytest
from float64 import enable_x64
from small_tasks import assert_agree, cnn, distance, few, lstm, tiny

import taciturn
from taciturn.core.policy import CODECS, RULES
from taciturn.tasks import load

FIVE_RULES = ["fixed:0.2", "adaptive,k=0", "adaptive,k=-1,robust=true,at_most=1", "optimal:0.4",
              "budget:300B"]  # fmt: skip
FIVE_STAND_INS = ["ou", "ou,cap=true", "ignore", "last", "own"]
FIVE_CODECS = ["float32", "quantize:4", "eden:2", "top_k:0.1,feedback=true", "peaks:3"]
OPTIONS: dict[str, dict[str, Any]] = {
    "three lanes": {"lanes": 3, "seeds": 2},
    "gone and slow": {"lanes": 1, "dropout": 0.3, "stragglers": 0.5, "prox": 0.5, "lr_decay": 0.9},
    "choice": {"choice": 5, "dropout": 0.2, "lanes": 2},
    "momentum to adam": {"epochs": 2, "client_optimizer": "momentum", "lr": 0.05,
                         "server_optimizer": "adam"},
    "down, adam to momentum": {"down": "eden:1", "client_optimizer": "adam", "lr": 0.02,
                               "server_optimizer": "momentum", "dropout": 0.3, "lanes": 40},
}  # fmt: skip


def arm(rule: str, stand_in: str, codec: str = "float32", down: str = "float32") -> str:
    if rule.startswith("budget"):  # it brings its codec; where that decodes 0, `ou` fits rounding
        return f"{rule}+{'zero' if stand_in.startswith('ou') else stand_in}+down={down}"
    return f"{rule}+{stand_in}+{codec}+down={down}"


@pytest.mark.parametrize("number", range(5), ids=list(OPTIONS))
def test_every_two_of_rule_stand_in_codec_and_options_are_the_plain_loop(number: int) -> None:
    options = dict(list(OPTIONS.values())[number])
    down = options.pop("down", "float32")
    pairs = [(i, (number - 2 * i) % 5) for i in range(5)]
    arms = [arm(FIVE_RULES[i], FIVE_STAND_INS[j], FIVE_CODECS[(i + j) % 5], down) for i, j in pairs]
    found = assert_agree(few(), {text: text for text in arms}, cohort=4, rounds=4, **options)
    for text, history in found.items():
        assert history.spoke.sum() > 0
        if "budget" not in text:
            nbytes = taciturn.parse(text).codec.nbytes(history.size)
            np.testing.assert_array_equal(history.bytes_up, history.spoke * nbytes)
    assert any(history.participation.silent.sum() > 0 for history in found.values())


def test_stand_ins_and_codecs_make_a_difference() -> None:
    """Else two programs that left them out would agree as well."""
    arms = [arm("random:0.5", stand_in) for stand_in in FIVE_STAND_INS]
    coded = [arm("random:0.5", "ignore", codec) for codec in FIVE_CODECS]
    for task, texts in ((tiny(), arms), (few(), coded)):
        # In this seed's run of `tiny` every cap is reached.
        found = taciturn.compare(task, dict(zip(texts, texts, strict=True)), plain=True, rounds=5,
                                 cohort=4, seeds=(28,))  # fmt: skip
        for one, other in itertools.combinations(found.values(), 2):
            assert distance(one.weights, other.weights) > 1e-3, (one.policy, other.policy)


# The whole grids.


CASES: dict[str, tuple[Any, float, dict[str, Any]]] = {  # a threshold between the clients' norms
    # In this seed's run every cap is reached.
    "tiny": (tiny, 0.3, {"cohort": 4, "seeds": (28,), "lanes": 3}),
    "synthetic": (lambda: load("synthetic"), 0.205, {"cohort": 5, "batch": 32, "lanes": 1}),
    "cnn": (cnn, 0.4, {"cohort": 4, "lanes": 3}),
    "lstm": (lstm, 0.19, {"cohort": 3, "lanes": 2}),
}
STAND_INS = ["ou", "ou,cap=true", "zero", "ignore", "last", "own"]
UP = ["float16", "bfloat16", "quantize:2", "eden:0.5", "top_k:0.1", "top_k:0.1,feedback=true",
      "sparse_ternary:0.1,feedback=true", "peaks:0.2"]  # fmt: skip
DOWN = ["eden:0.5", "eden:2", "quantize:1", "top_k:0.1", "sparse_ternary:0.2", "float16"]


def rule_forms(threshold: float) -> list[str]:
    return ["full", f"fixed:{threshold}", "adaptive,k=0", "adaptive,k=0.5,weighted=false",
            "adaptive,k=-1,robust=true,at_most=1", "random:0.5", "optimal:0.4",
            "budget:200B"]  # fmt: skip


def test_a_new_part_is_in_these_tests() -> None:
    def names(*texts: str) -> set[str]:
        return {text.partition(":")[0].partition(",")[0] for text in texts}

    assert names(*rule_forms(0.1)) == set(RULES)
    assert names("float32", *UP, *FIVE_CODECS) == set(CODECS)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_every_rule_and_stand_in_is_the_plain_loop(case: str) -> None:
    make, threshold, settings = CASES[case]
    arms = {arm(*pair): arm(*pair)
            for pair in itertools.product(rule_forms(threshold), STAND_INS)}  # fmt: skip
    found = assert_agree(make(), arms, **settings)
    for name, history in found.items():
        if not name.startswith(("full", "budget")):
            assert 0 < history.spoke.sum() < history.spoke.size * history.cohort


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["synthetic", "lstm"])
def test_the_papers_unbounded_fit_is_the_plain_loop_in_float64(case: str) -> None:
    """It amplifies rounding by itself: in float32 two right programs differ."""
    make, threshold, settings = CASES[case]
    forms = [form for form in rule_forms(threshold) if "budget" not in form]
    with enable_x64(True):  # without codecs, which write single precision
        arms = [f"{rule}+ou,mode=paper{cap}" for rule in forms for cap in ("", ",cap=true")]
        found = assert_agree(make(), {text: text for text in arms}, **settings)
    assert all(history.weights.dtype == np.float64 for history in found.values())
    # The cap is reached, so that it was compared as well.
    free, capped = (found[f"adaptive,k=0+ou,mode=paper{cap}"] for cap in ("", ",cap=true"))
    assert not np.array_equal(free.weights, capped.weights)


@pytest.mark.nightly
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("codec", UP)
def test_every_codec_with_every_rule_and_stand_in_is_the_plain_loop(codec: str, lanes: int) -> None:
    pairs = zip(itertools.cycle(rule_forms(0.2)[:-1]), STAND_INS, strict=False)
    arms = {text: text for text in (arm(*pair, codec) for pair in pairs)}
    assert_agree(load("synthetic"), arms, cohort=5, rounds=4, seeds=2, lanes=lanes)


@pytest.mark.nightly
@pytest.mark.parametrize("codec", DOWN)
def test_every_codec_down_under_every_rule_is_the_plain_loop(codec: str) -> None:
    rules = ("full+ou+eden:1", "adaptive,k=0+ignore+eden:0.5", "optimal:0.5+last")
    arms = {text: text for text in (f"{rule}+down={codec}" for rule in rules)}
    assert_agree(few(), arms, cohort=4, rounds=5, lanes=3)


@pytest.mark.nightly
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_convolutional_model_with_codecs_is_the_plain_loop(lanes: int) -> None:
    arms = ("full+eden:0.1", "adaptive,k=0+ignore+eden:1", "adaptive,k=0+own+quantize:4")
    assert_agree(cnn(), {text: text for text in arms}, cohort=4, lanes=lanes)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 2, "client_optimizer": "momentum", "clip": math.inf, "lanes": 3, "lr": 0.1},
        {"server_optimizer": "adam", "server_lr": 0.1, "clip": 0.05, "lanes": 1},
        {"server_optimizer": "yogi", "server_lr": 0.1, "epochs": 2, "seeds": (3, 5), "lanes": 3},
        {"server_optimizer": "momentum", "server_lr": 0.5, "client_optimizer": "adam", "lr": 0.05},
        {"client_optimizer": optax.adamw(0.02), "server_optimizer": optax.sgd(0.7), "lanes": 9},
        {"server_lr": 0.5, "batch": 1, "lanes": 2},
        {"choice": 5, "dropout": 0.3, "stragglers": 0.5},
    ],
    ids=lambda settings: " ".join(key for key in settings if key != "lanes"),
)
@pytest.mark.parametrize("task", [tiny, cnn])
def test_settings_mean_the_same_in_both(task: Any, settings: dict[str, Any]) -> None:
    arms = {name: name for name in ("full", "adaptive,k=0+ou", "random:0.5+last")}
    assert_agree(task(), arms, cohort=4, **settings)

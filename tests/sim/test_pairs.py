"""The engine is the plain loop: every two of rules, stand-ins, codecs and options of a run.

An orthogonal array: of five rules, stand-ins, codecs and sets of options every two meet in one arm,
and arms with the same options run side by side. The other parts and models are nightly.
"""

import itertools
import math

import numpy as np
import optax
import pytest
from small_tasks import assert_agree, cnn, distance, enable_x64, few, lstm, tiny

import taciturn
from taciturn.core.policy import CODECS, RULES
from taciturn.tasks import load

FIVE_RULES = ["fixed:0.2", "adaptive,k=0", "adaptive,k=-1,robust=true,at_most=1", "optimal:0.4",
              "budget:300B"]  # fmt: skip
FIVE_STAND_INS = ["ou", "ou,cap=true", "ignore", "last", "own"]
FIVE_CODECS = ["float32", "quantize:4", "eden:2", "top_k:0.1,feedback=true", "peaks:3"]
# Options of a run, and what its arms are: those of each of these numbers, with this codec down.
OPTIONS = {
    "choice": ({"choice": 5, "dropout": 0.2, "lanes": 2}, {0: "float32"}),
    "three lanes, momentum to adam": (
        {"lanes": 3, "seeds": 2, "epochs": 2, "client_optimizer": "momentum", "lr": 0.05,
         "lr_schedule": "step", "server_optimizer": "adam"},
        {1: "float32", 2: "float32"},
    ),
    "gone and slow, adam to momentum, some with a codec down": (
        {"lanes": 1, "dropout": 0.3, "stragglers": 0.5, "prox": 0.5, "lr_decay": 0.9, "lr": 0.02,
         "client_optimizer": "adam", "server_optimizer": "momentum", "kept_messages": 1},
        {3: "float32", 4: "eden:1"},
    ),
}  # fmt: skip


def arm(rule, stand_in, codec="float32", down="float32"):
    if rule.startswith("budget"):  # it brings its codec; where that decodes 0, `ou` fits rounding
        return f"{rule}+{'zero' if stand_in.startswith('ou') else stand_in}+down={down}"
    return f"{rule}+{stand_in}+{codec}+down={down}"


def meeting(number, rules, codecs, down):
    """The arms that have the options of this number."""
    pairs = [(i, (number - 2 * i) % 5) for i in range(5)]
    return [arm(rules[i], FIVE_STAND_INS[j], codecs[(i + j) % 5], down) for i, j in pairs]


@pytest.mark.parametrize(("options", "numbers"), OPTIONS.values(), ids=OPTIONS)
def test_every_two_of_rule_stand_in_codec_and_options_are_the_plain_loop(options, numbers):
    sets = [meeting(number, FIVE_RULES, FIVE_CODECS, down) for number, down in numbers.items()]
    arms = list(itertools.chain(*sets))
    found = assert_agree(few(), arms, cohort=4, rounds=4, **options)
    for text, history in found.items():
        assert history.spoke.sum() > 0
        if "budget" not in text:
            nbytes = taciturn.parse(text).codec.nbytes(history.size)
            np.testing.assert_array_equal(history.bytes_up, history.spoke * nbytes)
    assert any(history.participation.silent.sum() > 0 for history in found.values())


def test_budgets_are_the_plain_loop_and_kept():
    """To the byte, where codes have many lengths, some are silent and some never answer."""
    texts = "budget", "budget:400B+ou", "full+peaks:2", "budget:20%+zero", "budget:3kB,per=run+own"
    settings = {"cohort": 4, "lanes": 1, "dropout": 0.3}
    task = load("synthetic")
    found = assert_agree(task, texts, rounds=8, **settings)
    for text in texts:
        if text.startswith("budget:"):
            lengths = found[text].bytes_up / np.maximum(found[text].spoke, 1)
            assert len(np.unique(lengths)) > 3, text
    assert found[texts[-1]].participation.silent.sum() > 0
    settings["dropout"] = 1e-6  # the same program
    arms = {text: text for text in texts}
    longer = taciturn.compare(task, arms, rounds=60, **settings)["budget:400B+ou"]
    sent = (longer.bytes_up + longer.overhead_up).sum(1)
    np.testing.assert_allclose(sent, 60 * 400, rtol=0.1)


def test_a_budget_that_cannot_be_kept_is_warned_of(caplog):
    arms = {text: text for text in ("full", "budget:2%", "budget:12%")}
    taciturn.compare("synthetic", arms, rounds=1, cohort=2, plain=True)
    (told,) = (r.getMessage() for r in caplog.records if r.name == "taciturn")
    assert told.startswith("budget:2%: ")
    assert "101 weights" in told


def test_stand_ins_and_codecs_make_a_difference():
    """Else two programs that left them out would agree as well."""
    arms = [arm("random:0.5", stand_in) for stand_in in FIVE_STAND_INS]
    coded = [arm("random:0.5", "ignore", codec) for codec in FIVE_CODECS]
    for task, texts in ((tiny(), arms), (few(), coded)):
        # In this seed's run of `tiny` every cap is reached.
        found = taciturn.compare(task, dict(zip(texts, texts, strict=True)), plain=True, rounds=5,
                                 cohort=4, seeds=(28,))  # fmt: skip
        for one, other in itertools.combinations(found.values(), 2):
            assert distance(one.weights, other.weights) > 1e-3, (one.policy, other.policy)


# The other parts, on other models.

OTHER_RULES = ["full", "random:0.5", "adaptive,k=0.5,weighted=false", "optimal:0.4", "adaptive"]
OTHER_CODECS = ["float16", "bfloat16", "eden:0.5", "sparse_ternary:0.1,feedback=true", "top_k:0.1"]
MODELS = {  # with a codec down and options
    "tiny": (tiny, "float32", {"seeds": (28,), "lanes": 3, "server_optimizer": "yogi",
                               "server_lr": 0.1, "epochs": 2}),
    "few": (few, "quantize:1", {"server_lr": 0.5, "batch": 1, "lanes": 2, "clip": math.inf}),
    "synthetic": (lambda: load("synthetic"), "top_k:0.1", {"batch": 32, "lanes": 1, "clip": 0.05,
                                                           "seeds": 2}),
    "cnn": (cnn, "sparse_ternary:0.2", {"client_optimizer": optax.adamw(0.02), "lanes": 9,
                                        "server_optimizer": optax.sgd(0.7)}),
    "lstm": (lstm, "float16", {"lanes": 2}),
}  # fmt: skip


def test_a_new_part_is_in_these_tests():
    def names(texts):
        return {text.partition(":")[0].partition(",")[0] for text in texts}

    assert names(FIVE_RULES + OTHER_RULES) == set(RULES)
    assert names(FIVE_CODECS + OTHER_CODECS) == set(CODECS)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(5), ids=list(MODELS))
def test_other_parts_on_other_models_are_the_plain_loop(number):
    make, down, options = list(MODELS.values())[number]
    assert_agree(make(), meeting(number, OTHER_RULES, OTHER_CODECS, down), cohort=3, **options)


@pytest.mark.nightly
def test_the_papers_unbounded_fit_is_the_plain_loop_in_float64():
    """It amplifies rounding by itself: in float32 two right programs differ."""
    with enable_x64(True):  # without codecs, which write single precision
        arms = [f"{rule}+ou,mode=paper{cap}" for rule in ("adaptive,k=0", "random:0.5")
                for cap in ("", ",cap=true")]  # fmt: skip
        found = assert_agree(load("synthetic"), arms, cohort=5, batch=32, lanes=1)
    assert all(history.weights.dtype == np.float64 for history in found.values())
    free, capped, *_ = found.values()  # the cap is reached, so that it was compared as well
    assert not np.array_equal(free.weights, capped.weights)

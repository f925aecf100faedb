"""Codecs inside the round: the engine counts what the plain loop decodes, for all that is combined.

Every codec meets every rule and every stand-in, all arms side by side. Clients outnumber lanes, so
that slots fill up, are emptied and fill again.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import STAND_INS, assert_agree, cnn, distance, tiny

import taciturn
from taciturn.core.policy import CODECS, RULES
from taciturn.models import MLP
from taciturn.tasks import load

FORMS = {
    "float32": ["float32"], "float16": ["float16"], "bfloat16": ["bfloat16"],
    "quantize": ["quantize:2"], "eden": ["eden:0.5", "eden:2"], "top_k": ["top_k:0.1"],
    "sparse_ternary": ["sparse_ternary:0.1"], "peaks": ["peaks:0.2", "peaks:3"],
}  # fmt: skip
RULE_FORMS = {
    "full": "full",
    "fixed": "fixed:0.2",
    "adaptive": "adaptive,k=0",
    "random": "random:0.5",
    "optimal": "optimal:0.5",
}


def arms() -> dict[str, str]:
    """As few as have every pair of a codec with a rule and of a codec with a stand-in."""
    assert set(FORMS) == set(CODECS)
    assert set(RULE_FORMS) == set(RULES) - {"budget"}  # it goes with `peaks` alone: see below
    codecs = list(itertools.chain(*FORMS.values()))
    most = max(len(RULE_FORMS), len(STAND_INS))
    rules, stand_ins = itertools.cycle(RULE_FORMS.values()), itertools.cycle(STAND_INS)
    pairs = list(itertools.islice(zip(rules, stand_ins, strict=False), most))
    texts = [f"{rule}+{stand_in}+{codec}" for codec in codecs for rule, stand_in in pairs]
    return {text: text for text in texts}


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_every_codec_with_every_rule_and_stand_in_is_the_plain_loop(lanes: int) -> None:
    assert_agree(load("synthetic"), arms(), cohort=5, rounds=4, seeds=2, lanes=lanes)


def words(size: int) -> taciturn.Task:
    """Every client has one row with four equal features, and so an update of four equal weights."""
    rng, count = np.random.default_rng(0), 40
    chosen = np.eye(size // 4, dtype=np.float32)[rng.integers(0, size // 4, count)]
    batch = {"x": np.repeat(chosen, 4, axis=1), "y": rng.integers(0, 2, count).astype(np.int32)}
    loss, metrics = taciturn.classification(
        lambda params, x, key: jnp.stack([jnp.zeros(len(x)), x @ params["w"]], 1)
    )
    return taciturn.Task(
        "words", taciturn.Stored.of(batch, [1] * count), init=lambda key: {"w": jnp.zeros(size)},
        loss=loss, metrics=metrics, test=batch, batch=1, lr=0.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "codec"),
    [
        *((128, codec) for codec in ("eden:1", "eden:0.5", "eden:2", "quantize:2", "peaks:1")),
        (4096, "peaks:0.1"),
    ],
)
def test_nobody_is_rejected_whose_weights_are_alike(size: int, codec: str) -> None:
    """The plain loop checks norms; of coordinates that are turned to 0, rounding has the sign."""
    found = taciturn.simulate(words(size), f"full+{codec}", cohort=10, rounds=5, plain=True)
    assert (found.rejected.sum(), found.spoke.sum()) == (0, 50)


def wide() -> taciturn.Task:
    """24,003 weights, six blocks: the shortest codes list those that are sent."""
    loss, metrics = taciturn.classification(lambda model, x, key: model(x))
    return dataclasses.replace(
        tiny(), init=lambda key: MLP(key, 2, 4000, 3), loss=loss, metrics=metrics
    )


BUDGETS = {
    # Few bytes: of many coordinates one would lie on a border, where rounding decides.
    "wide": (wide, ("budget:2kB+peaks:100B", "full+peaks:100B", "budget:200B+last")),
    "synthetic": (
        lambda: load("synthetic"),
        ("budget", "budget:400B+ou", "full+peaks:2", "budget:20%+zero", "budget:3kB,per=run+own"),
    ),
}


@pytest.mark.parametrize(
    ("task", "lanes"),
    [
        ("wide", 3),
        ("synthetic", 1),
        pytest.param("wide", 1, marks=pytest.mark.slow),
        pytest.param("synthetic", 3, marks=pytest.mark.slow),
    ],
)
def test_budgets_are_the_plain_loop(task: str, lanes: int) -> None:
    """To the byte, where codes have many lengths, some are silent and some never answer."""
    make, texts = BUDGETS[task]
    arms = {text: text for text in texts}
    found = assert_agree(make(), arms, cohort=4, rounds=8, seeds=2, lanes=lanes, dropout=0.3)
    for text in texts:
        if text.startswith("budget:"):
            lengths = found[text].bytes_up / np.maximum(found[text].spoke, 1)
            assert len(np.unique(lengths)) > 3, text
    assert found[texts[-1]].voices.silent.sum() > 0


@pytest.mark.parametrize(
    ("task", "text", "planned"),
    [
        ("synthetic", "budget:100B,per=client", 100_000),
        pytest.param("glyphs", "budget", 4_000_000, marks=pytest.mark.slow),
        pytest.param("glyphs", "budget:2MB,per=run", 2_000_000, marks=pytest.mark.slow),
    ],
)
def test_a_run_keeps_to_its_budget(task: str, text: str, planned: int) -> None:
    """With headers; of 1,000 clients that are asked."""
    found = taciturn.simulate(load(task), text, rounds=100, cohort=10, seeds=2)
    np.testing.assert_allclose((found.bytes_up + found.overhead_up).sum(1), planned, rtol=0.1)


def test_a_budget_that_cannot_be_kept_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    arms = {text: text for text in ("full", "budget:2%", "budget:12%")}
    taciturn.compare("synthetic", arms, rounds=1, cohort=2)
    (told,) = (r.getMessage() for r in caplog.records if r.name == "taciturn")
    assert told.startswith("budget:2%: the budget of 2% cannot be kept: with 101 weights, headers ")


@pytest.mark.parametrize("lanes", [1, 3])
def test_codecs_side_by_side_are_the_plain_loop(lanes: int) -> None:
    some = ("full", "adaptive,k=0+ou+eden:0.5", "random:0.5+zero+quantize:2", "full+top_k:0.1")
    found = assert_agree(
        load("synthetic"), {text: text for text in some}, cohort=5, rounds=3, lanes=lanes
    )
    for text, history in found.items():
        codec = taciturn.parse(text).codec
        assert history.bytes_up.sum() == history.spoke.sum() * codec.nbytes(101)
    # What is lost shows: a codec that wrote nothing would not move the model at all.
    exact = found["full"].weights
    assert 1e-3 < distance(found["full+top_k:0.1"].weights, exact) < 1


@pytest.mark.slow
def test_a_convolutional_model_with_codecs_is_the_plain_loop() -> None:
    some = ("full+eden:0.1", "adaptive,k=0+ignore+eden:1", "adaptive,k=0+ou+quantize:4")
    for lanes in (1, 3):
        assert_agree(cnn(), {text: text for text in some}, cohort=4, lanes=lanes)


def test_no_adaptive_arm_falls_silent_for_good() -> None:
    """The rule learns from the norms of every round, also where all are silent and left out."""
    settings: dict[str, Any] = {"rounds": 40, "cohort": 4, "epochs": 10, "batch": 10, "seeds": 3}
    arms = {text: text for text in ("adaptive+ignore", "adaptive,k=0+ignore")}
    for history in taciturn.compare("synthetic", arms, **settings).values():
        for row in history.spoke[:, 10:]:
            silent = "".join("s" if count == 0 else "." for count in row)
            assert "ssss" not in silent
        assert np.isfinite(history.weights).all()

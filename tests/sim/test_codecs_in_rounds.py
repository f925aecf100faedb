"""Codecs inside the round: the engine counts what the plain loop decodes, for all that is combined.

Every codec meets every rule and every stand-in, all arms side by side. Clients outnumber lanes, so
that slots fill up, are emptied and fill again.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import STAND_INS, assert_agree, cnn, distance

import taciturn
from taciturn.core import messages
from taciturn.core.codecs import LADDER
from taciturn.core.policy import CODECS, RULES, parse
from taciturn.tasks import load

FORMS = {
    "float32": ["float32"], "float16": ["float16"], "bfloat16": ["bfloat16"],
    "quantize": ["quantize:2"], "eden": ["eden:0.5", "eden:2"], "top_k": ["top_k:0.1"],
    "sparse_ternary": ["sparse_ternary:0.1"],
    "draw_k": ["draw_k:0.1"],
    "peaks": ["peaks:0.2"],
}  # fmt: skip
BRINGING = {"budget"}  # rules that bring their codec
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
    assert set(RULE_FORMS) == {name for name, rule in RULES.items() if name not in BRINGING}
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


def words() -> taciturn.Task:
    """Every client has one row with four equal features, and so an update of four equal weights."""
    rng, count = np.random.default_rng(0), 40
    x = np.repeat(np.eye(32, dtype=np.float32)[rng.integers(0, 32, count)], 4, axis=1)
    batch = {"x": x, "y": rng.integers(0, 2, count).astype(np.int32)}
    loss, metrics = taciturn.classification(
        lambda params, x, key: jnp.stack([jnp.zeros(len(x)), x @ params["w"]], 1)
    )
    return taciturn.Task(
        "words", taciturn.Stored.of(batch, [1] * count), init=lambda key: {"w": jnp.zeros(128)},
        loss=loss, metrics=metrics, test=batch, batch=1, lr=0.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    "codec", ["eden:1", "eden:0.5", "eden:2", "quantize:2", "draw_k:0.1", "peaks:1", "peaks:0.1"]
)
def test_nobody_is_rejected_whose_weights_are_alike(codec: str) -> None:
    """The plain loop checks norms; of coordinates that are turned to 0, rounding has the sign."""
    found = taciturn.simulate(words(), f"full+{codec}", cohort=10, rounds=5, plain=True)
    assert (found.rejected.sum(), found.spoke.sum()) == (0, 50)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "text"),
    [("glyphs", "budget:1.9%"), ("glyphs", "budget:1.9%,per=run"), ("synthetic", "budget:12%")],
)
def test_any_fifty_rounds_of_a_task_keep_to_a_budget(task: str, text: str) -> None:
    rounds, rule = 100, dict(parse(text).rule.params)
    found = taciturn.simulate(load(task), text, rounds=rounds, cohort=10, seeds=2)
    full = 10 * (4 * found.weights.shape[-1] + messages.OVERHEAD)
    sent = (found.bytes_up + found.overhead_up) / full
    pace = np.linspace(0.2, 1.8, rounds) if rule["per"] == "run" else np.ones(rounds)
    allowed = np.convolve(float(rule["amount"]) * pace[20:], np.ones(50), "valid")
    for seed in sent:
        kept = np.convolve(seed[20:], np.ones(50), "valid") / allowed
        assert kept.min() > 0.9
        assert kept.max() < 1.1


@pytest.mark.parametrize("lanes", [1, 3])
def test_budgets_are_the_plain_loop(lanes: int) -> None:
    """On several rungs, with some who are silent; and what was sent is counted to the byte."""
    arms = {text: text for text in ("budget:12%", "full", "budget:5%+zero", "budget:910B,per=run",
                                 "budget:12%,codec=peaks")}  # fmt: skip
    found = assert_agree(load("synthetic"), arms, cohort=5, rounds=8, seeds=2, lanes=lanes)
    sizes = {codec.nbytes(101) for codec in LADDER.rungs}
    assert len(np.unique(found["budget:12%"].bytes_up)) > 3
    assert found["budget:910B,per=run"].spoke.sum() < 2 * 8 * 5
    for text in (name for name in arms if name != "full"):
        history = found[text]
        least, most = min(sizes) * history.spoke, max(sizes) * history.spoke
        assert (least <= history.bytes_up).all()
        assert (history.bytes_up <= most).all()


def test_a_budget_that_cannot_be_kept_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    arms = {text: text for text in ("full", "budget:2%", "budget:12%")}
    taciturn.compare("synthetic", arms, rounds=1, cohort=2)
    first, second = (r.getMessage() for r in caplog.records if r.name == "taciturn")
    assert first.startswith("budget:2%: the budget of 2% cannot be kept: with 101 ")
    assert second.startswith("budget:12%: the budget of 12% leaves 27 bytes for an update of 101 ")


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

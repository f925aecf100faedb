"""Codecs inside the round: rounding, and budgets that are kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import assert_agree, tiny

import taciturn
from taciturn.models import MLP
from taciturn.tasks import load


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
    ("size", "codec"), [(128, "eden:1"), (128, "eden:0.5"), (4096, "peaks:0.1")]
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


SYNTHETIC = "budget", "budget:400B+ou", "full+peaks:2", "budget:20%+zero", "budget:3kB,per=run+own"
# Few bytes: of many coordinates one would lie on a border, where rounding decides.
WIDE = "budget:2kB+peaks:100B", "full+peaks:100B", "budget:200B+last"


@pytest.mark.parametrize(
    ("make", "texts", "lanes"),
    [
        pytest.param(lambda: load("synthetic"), SYNTHETIC, 1, id="synthetic"),
        pytest.param(wide, WIDE, 3, id="wide", marks=pytest.mark.nightly),
    ],
)
def test_budgets_are_the_plain_loop(make: Any, texts: tuple[str, ...], lanes: int) -> None:
    """To the byte, where codes have many lengths, some are silent and some never answer."""
    arms = {text: text for text in texts}
    found = assert_agree(make(), arms, cohort=4, rounds=8, seeds=2, lanes=lanes, dropout=0.3)
    for text in texts:
        if text.startswith("budget:"):
            lengths = found[text].bytes_up / np.maximum(found[text].spoke, 1)
            assert len(np.unique(lengths)) > 3, text
    assert found[texts[-1]].participation.silent.sum() > 0


@pytest.mark.parametrize(
    ("task", "text", "planned"),
    [
        ("synthetic", "budget:100B,per=client", 100_000),
        pytest.param("glyphs", "budget:2MB,per=run", 2_000_000, marks=pytest.mark.nightly),
    ],
)
def test_a_run_keeps_to_its_budget(task: str, text: str, planned: int) -> None:
    """With headers; of 1,000 clients that are asked."""
    found = taciturn.simulate(load(task), text, rounds=100, cohort=10, seeds=2)
    np.testing.assert_allclose((found.bytes_up + found.overhead_up).sum(1), planned, rtol=0.1)


def test_a_budget_that_cannot_be_kept_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    arms = {text: text for text in ("full", "budget:2%", "budget:12%")}
    taciturn.compare("synthetic", arms, rounds=1, cohort=2, plain=True)
    (told,) = (r.getMessage() for r in caplog.records if r.name == "taciturn")
    assert told.startswith("budget:2%: ")
    assert "101 weights" in told

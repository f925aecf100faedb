"""A day in a notebook: a rule is edited three times, compared, plotted, saved, loaded, used.

Each edit takes effect, and nothing is swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import taciturn
from taciturn.core import policy as policies
from taciturn.core.rules import Chance
from taciturn.report import picture, series
from taciturn.sim import engine

QUICK: dict[str, Any] = {"rounds": 3, "cohort": 5, "seeds": 2}


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(policies.RULES)
    yield
    policies.RULES.clear()
    policies.RULES.update(before)
    policies._OWN.clear()


def cell(speaks: Callable[[Any, Any], Any]) -> None:
    """What is run again and again: the rule is defined anew, under the same name."""

    def mine(share: float = 0.5) -> taciturn.Rule:
        return taciturn.Rule("mine", (("share", share),), looks_at=("norm", "uniform"),
                             init=lambda size, rounds: Chance(share), speaks=speaks)  # fmt: skip

    taciturn.register("rule", mine)


@pytest.mark.slow
@pytest.mark.usefixtures("registry")
def test_each_edit_takes_effect_and_nothing_is_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = taciturn.load("synthetic")
    arms = {"all": "full", "half": "mine+ignore", "few": "mine:0.1+ignore"}
    edits: list[tuple[Callable[[Any, Any], Any], int, int]] = [
        (lambda own, context: own.norm > 1e9, 0, 0),
        (lambda own, context: own.norm > -1, 30, 30),
        (lambda own, context: context.probability > 0.3, 30, 0),
    ]
    for speaks, half, few in edits:
        cell(speaks)
        found = taciturn.compare(task, arms, **QUICK)
        spoke = {name: int(history.spoke.sum()) for name, history in found.items()}
        assert spoke == {"all": 30, "half": half, "few": few}

    folder = tmp_path / "kept"
    kept = taciturn.compare(task, arms, folder=folder, **QUICK)
    picture.draw(series.read(folder), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

    monkeypatch.setattr(engine.Program, "_train", None)  # from here on nothing is trained
    again = taciturn.compare(task, arms, folder=folder, **QUICK)
    assert list(again) == list(arms)
    for name, history in again.items():
        assert history.policy == kept[name].policy == found[name].policy
        assert str(history.policy) == str(taciturn.parse(arms[name]))
        np.testing.assert_array_equal(history.weights, found[name].weights)
        np.testing.assert_array_equal(history.spoke, found[name].spoke)

    model = taciturn.as_model(task, again["half"].weights[1])
    guesses = task.test["x"] @ np.asarray(model["w"]) + model["b"] > 0
    assert np.mean(guesses == (task.test["y"] > 0)) == pytest.approx(found["half"].accuracy[1, -1])
    assert jax.tree.structure(model) == jax.tree.structure(task.init(jax.random.key(0)))

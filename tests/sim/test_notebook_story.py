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
from taciturn.errors import InputError, RunError
from taciturn.report import picture

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
        return taciturn.Rule("mine", (("share", share),), init=lambda: Chance(share), speaks=speaks,
                             looks_at=("norm", "uniform"))  # fmt: skip

    taciturn.register("rule", mine)


@pytest.mark.slow
@pytest.mark.usefixtures("registry")
def test_each_edit_takes_effect_and_nothing_is_swapped(tmp_path: Path) -> None:
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

    taciturn.save(found, tmp_path / "kept")
    picture.draw(picture.read(tmp_path / "kept"), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

    again = taciturn.saved(tmp_path / "kept")
    assert list(again) == list(arms)
    for name, history in again.items():
        assert history.policy == found[name].policy
        assert str(history.policy) == str(taciturn.parse(arms[name]))
        assert history.summary() == found[name].summary()
        np.testing.assert_array_equal(history.weights, found[name].weights)

    model = taciturn.model_of(task, again["half"].weights[1])
    guesses = task.test["x"] @ np.asarray(model["w"]) + model["b"] > 0
    assert np.mean(guesses == (task.test["y"] > 0)) == pytest.approx(found["half"].accuracy[1, -1])
    assert jax.tree.structure(model) == jax.tree.structure(task.init(jax.random.key(0)))


@pytest.mark.usefixtures("registry")
def test_a_part_that_is_not_registered_is_named_when_it_is_read_back(tmp_path: Path) -> None:
    rule = taciturn.Rule("strange", init=lambda: Chance(0.0), speaks=lambda own, context: True)
    history = taciturn.simulate("synthetic", taciturn.Policy(rule), rounds=1, cohort=2, plain=True)
    taciturn.save({"a": history}, tmp_path / "kept")
    with pytest.raises(RunError, match=r"called `strange`.*`taciturn\.register` first"):
        taciturn.saved(tmp_path / "kept")
    with pytest.raises(RunError, match="is already there and not an empty folder"):
        taciturn.save({"a": history}, tmp_path / "kept")
    with pytest.raises(InputError, match="`histories` must be what `compare` returns"):
        taciturn.save(history, tmp_path / "other")
    (tmp_path / "kept/histories.json").write_text('[{"arm": "a"}]')
    with pytest.raises(RunError, match="cannot be read as histories"):
        taciturn.saved(tmp_path / "kept")
    with pytest.raises(RunError, match="cannot be read"):
        taciturn.saved(tmp_path / "nowhere")

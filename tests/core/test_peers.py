"""Stand-ins that listen to the clients that spoke."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taciturn.core import ou, server, tally
from taciturn.core.messages import Message
from taciturn.core.policy import parse

UPDATES = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0], [0.3, 0.4]])
EXAMPLES = np.array([1.0, 3.0, 2.0, 4.0])
NORMS = np.linalg.norm(UPDATES, axis=1)


def heard(spoke: list[int], opening: tally.Opening, chances: Any = None) -> tally.Tally:
    """The round in which these spoke."""
    found = tally.start(np.zeros(2))
    for k in range(len(UPDATES)):
        update = UPDATES[k] if k in spoke else None
        chance = 1.0 if chances is None else chances[k]
        found = tally.add(
            found, Message(EXAMPLES[k], NORMS[k], update, probability=chance), opening
        )
    return found


def mean_of(policy: str, spoke: list[int], chances: Any = None) -> tuple[np.ndarray, Any]:
    parsed = parse(policy)
    memory = server.remember(parsed, np.zeros(2))
    opening = server.open(parsed, memory)
    mean, _, info = server.learn(parsed, memory, heard(spoke, opening, chances))
    return mean, info


@pytest.mark.parametrize("spoke", [[0], [0, 1], [1, 2, 3], [0, 1, 2, 3]])
def test_peers_is_the_speakers_mean_scaled_by_the_norms(spoke: list[int]) -> None:
    theirs = EXAMPLES[spoke] @ UPDATES[spoke] / EXAMPLES[spoke].sum()
    norm = EXAMPLES[spoke] @ NORMS[spoke] / EXAMPLES[spoke].sum()
    wanted = sum(
        EXAMPLES[k] * (UPDATES[k] if k in spoke else theirs * NORMS[k] / norm) for k in range(4)
    )
    mean, info = mean_of("random:0.5+peers", spoke)
    np.testing.assert_allclose(mean, wanted / EXAMPLES.sum())
    assert info.counts


def test_peers_weighs_speakers_by_their_probability() -> None:
    chances, spoke = np.array([0.5, 0.25, 0.8, 1.0]), [0, 1, 3]
    weight = EXAMPLES[spoke] / chances[spoke]
    direction = weight @ UPDATES[spoke] / (weight @ NORMS[spoke])
    mean, _ = mean_of("optimal:0.5+peers", spoke, chances)
    np.testing.assert_allclose(mean, direction * (EXAMPLES @ NORMS) / EXAMPLES.sum())


def test_peers_has_nothing_to_stand_in_with_where_nobody_spoke() -> None:
    mean, info = mean_of("random:0.5+peers", [])
    assert not info.counts
    assert not mean.any()


def test_peers_of_clients_that_did_not_move_do_not_move() -> None:
    policy = parse("random:0.5+peers")
    memory = server.remember(policy, np.zeros(2))
    opening = server.open(policy, memory)
    found = tally.add(tally.start(np.zeros(2)), Message(1, 0.0, np.zeros(2)), opening)
    found = tally.add(found, Message(1, 2.0, None), opening)
    mean, _, info = server.learn(policy, memory, found)
    assert info.counts
    assert not mean.any()


def test_absent_clients_have_the_mean_norm() -> None:
    policy = parse("random:0.5+peers")
    memory = server.remember(policy, np.zeros(2))
    opening = server.open(policy, memory)
    found = heard([0, 1], opening)
    mean, _, _ = server.learn(policy, memory, found)
    more = tally.with_absent(found, 3, opening)
    assert more.n_absent == 3
    np.testing.assert_allclose(server.learn(policy, memory, more)[0], mean)


def play(policy: str, rounds: list[list[int]]) -> tuple[list[np.ndarray], Any]:
    """The mean updates of rounds in which these spoke, and the stand-in's state after them."""
    parsed = parse(policy)
    memory, means = server.remember(parsed, np.zeros(2)), []
    for spoke in rounds:
        mean, memory, _ = server.learn(parsed, memory, heard(spoke, server.open(parsed, memory)))
        means.append(mean)
    return means, memory.stand_in


def test_blend_believes_the_speakers_before_anything_is_known() -> None:
    np.testing.assert_allclose(
        play("random:0.5+blend", [[0, 1]])[0], play("random:0.5+peers", [[0, 1]])[0]
    )


def test_blend_weighs_forecast_and_speakers_by_their_past_errors() -> None:
    rounds = [[0, 1], [1, 2], [0], [2, 3], [0, 3], [1]]
    means, state = play("random:0.5+blend", rounds)
    path, before = ou.init(np.zeros(2)), np.zeros(2)
    surprise, noise, seen = np.zeros(2), np.zeros(2), []
    for t, spoke in enumerate(rounds):
        alone, _ = mean_of("random:0.5+peers", spoke)
        forecast = ou.predict(path)
        trust = np.maximum(0, 1 - noise / surprise) if t else np.ones(2)
        silent = np.setdiff1d(np.arange(4), spoke)
        weight = EXAMPLES[spoke] @ NORMS[spoke]
        echo = (EXAMPLES[spoke] @ UPDATES[spoke]) * (EXAMPLES[silent] @ NORMS[silent]) / weight
        stood_in = trust * echo + (1 - trust) * EXAMPLES[silent].sum() * forecast
        wanted = (EXAMPLES[spoke] @ UPDATES[spoke] + stood_in) / EXAMPLES.sum()
        np.testing.assert_allclose(means[t], wanted)
        surprise = 0.9 * surprise + 0.1 * (alone - forecast) ** 2
        noise = 0.9 * noise + (0.05 * (alone - before) ** 2 if t else 0)
        path, before = ou.step(path, wanted), alone
        seen.append(trust)
    np.testing.assert_allclose([state.surprise, state.noise], [surprise, noise])
    between = (np.array(seen) > 0.01) & (np.array(seen) < 0.99)
    assert between.any()  # neither alone, or nothing was compared


def test_blend_is_the_forecast_where_nobody_spoke_and_judges_nobody() -> None:
    rounds = [[0, 1, 2, 3], [1, 2, 3], []]
    before = play("random:0.5+blend", rounds[:2])[1]
    means, state = play("random:0.5+blend", rounds)
    assert means[-1].any()
    np.testing.assert_allclose(means[-1], ou.predict(before.path))
    assert state.path.t == 3
    np.testing.assert_array_equal(state.surprise, before.surprise)
    np.testing.assert_array_equal(state.before, before.before)

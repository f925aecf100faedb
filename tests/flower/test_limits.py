"""How far one reply can move the mean, where few speak."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled, restate
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower
from test_flower import NODES, SIZE, targets
from test_replies import bad

from taciturn.flower import Taciturn, protocol
from taciturn.flower.replies import Limits, Reply

BAD = 3


def move(policy, scales, examples=(20,) * NODES, tamper=None, size=SIZE):
    """The first step of a federation, and its nodes' updates, scaled."""
    wanted = targets(size=size) * np.array(scales, np.float32)[:, None]
    grid = LocalGrid(pulled(wanted, examples), NODES, tamper=tamper)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy, seed=0)
    return flat(strategy.start(grid, model(size), num_rounds=1).arrays), 0.5 * wanted


def lengths(updates):
    return np.linalg.norm(updates, axis=1)


def between(updates, speakers):
    """A threshold that the longest so many exceed."""
    ordered = np.sort(lengths(updates))[::-1]
    return float(ordered[speakers - 1] + ordered[speakers]) / 2


@pytest.mark.parametrize("stand_in", ["ignore", "zero"])
def test_who_speaks_alone_is_measured_by_the_silent(stand_in):
    scales = [1, 1, 1, 1e6, 1]
    _, updates = move("full", scales)
    threshold = between(updates, 1)
    moved, _ = move(f"fixed:{threshold}+{stand_in}", scales)
    longest = np.sort(lengths(updates))[-2]
    # With `zero`, the silent four fifths of the mean stay where they are.
    expected = 2 * longest if stand_in == "ignore" else 3 * longest / NODES
    assert np.linalg.norm(moved) == pytest.approx(expected, rel=1e-4)
    assert moved @ updates[BAD] == pytest.approx(expected * lengths(updates)[BAD], rel=1e-4)


@pytest.mark.parametrize("codec", ["eden:1", "eden:0.3", "quantize:4"])
def test_who_reports_less_than_is_decoded_is_measured_by_that(codec):
    """A norm that the codec may just have stretched so much passes, and shortens nothing."""
    scales = [1, 1, 1, 8, 1]

    def understate(content):
        factor = 0.55 if codec.startswith("quantize") else 0.4
        restate(content, norm=factor * protocol.read_said(content).report.norm)

    lie = bad(understate)
    for policy in (f"fixed:0+ignore+{codec}", f"random:1+zero+{codec}"):
        honest, _ = move(policy, scales, size=300)
        moved, _ = move(policy, scales, tamper=lie, size=300)
        free, _ = move(f"full+{codec}", scales, size=300)
        steps = [float(np.linalg.norm(step)) for step in (honest, moved, free)]
        assert steps[1] <= 1.2 * steps[0]
        assert steps[2] > 1.5 * steps[0]


def test_where_the_silent_have_nothing_to_say_one_who_speaks_is_heard():
    moved, updates = move("fixed:0+ignore", [0, 0, 0, 1, 0])
    np.testing.assert_allclose(moved, updates[BAD], rtol=1e-5)


def test_speakers_with_nothing_to_say_measure_nobody():
    """They are made to speak in the end, and would else make all others as short as that."""
    moved, updates = move("full", [0, 0, 0, 1, 0])
    for policy in ("random:1+zero", "random:1+ignore"):
        np.testing.assert_allclose(move(policy, [0, 0, 0, 1, 0])[0], moved, rtol=1e-5)
    np.testing.assert_allclose(moved, updates[BAD] / NODES, rtol=1e-5)


def test_where_nobody_speaks_the_silent_are_measured_by_each_other():
    limits = Limits(norm=3.0)
    assert limits.longest([], [1.0, 2.0, 0.0, 1e17]) == 3 * 2.0
    assert limits.longest([], [0.0, 0.0]) == limits.longest([], []) == np.inf


def test_a_sparse_update_is_not_too_long_for_a_codec_that_keeps_it():
    """Such a codec shortens dense updates: decoded, they do not say how long others may be."""
    size = 10_000
    wanted = targets(size=size)
    wanted[BAD] = 0
    wanted[BAD, :10] = 1
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    policy = "random:1+ignore+top_k:0.001"
    grid = LocalGrid(pulled(wanted, [10] * NODES, rate=1.0), NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy, seed=1)
    result = strategy.start(grid, model(size), num_rounds=1)
    np.testing.assert_allclose(flat(result.arrays)[:10], wanted[BAD, :10] / NODES, rtol=1e-2)


def reply(node: int, spoke: bool, chance: float, examples: float = 100.0) -> Reply:
    message = SimpleNamespace(metadata=SimpleNamespace(src_node_id=node))
    weights = [np.zeros(1)] if spoke else None
    return Reply(message, "m", MetricRecord(), examples, weights=weights, norm=1.0,
                 probability=chance)  # fmt: skip


@pytest.mark.parametrize(("speakers", "chance", "others"), [(6, 0.6, 0.05), (1, 0.05, 0.05)])
def test_honest_nodes_weigh_what_they_have_however_likely_they_were_to_speak(
    speakers, chance, others
):
    found = [reply(k, k < speakers, chance if k < speakers else others) for k in range(10)]
    Limits(weight=10.0).bound_weights(found, "num-examples")
    assert [one.examples for one in found] == [100.0] * 10
    silent = 10 - speakers
    assert [one.weight for one in found] == pytest.approx(
        [100 / chance] * speakers + [100] * silent
    )


def test_a_chance_that_is_no_honest_one_buys_no_weight():
    found = [*(reply(k, True, 0.5) for k in range(9)), reply(9, True, 1e-6)]
    Limits(weight=10.0).bound_weights(found, "num-examples")
    assert found[9].weight == pytest.approx(10 * 200)
    found = [*(reply(k, True, 0.5) for k in range(9)), reply(9, False, 0.5, examples=1e6)]
    Limits(weight=10.0).bound_weights(found, "num-examples")
    assert found[9].weight == pytest.approx(2 * 100)


@pytest.mark.parametrize(("speakers", "limit"), [(5, 3.0), (4, 2.4), (3, 2.0)])
def test_the_fewer_speak_the_shorter_each_must_be(speakers, limit):
    scales = [1, 1, 1, 1e6, 1]
    _, updates = move("full", scales)
    threshold = between(updates, speakers) if speakers < NODES else 0.0
    moved, _ = move(f"fixed:{threshold}+ignore", scales)
    norms = lengths(updates)
    spoke = np.sort(np.flatnonzero(norms > threshold))
    updates[BAD] *= limit * np.sort(norms[spoke])[3 * (speakers - 1) // 4] / norms[BAD]
    np.testing.assert_allclose(moved, updates[spoke].mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("stand_in", "speakers", "most"), [("ignore", 5, 200), ("ignore", 2, 80), ("zero", 2, 200)]
)
def test_the_fewer_speak_the_less_each_may_weigh(stand_in, speakers, most):
    scales, examples = [1, 1, 1, 2, 1], [20, 20, 20, 10**9, 20]
    _, updates = move("full", scales)
    threshold = between(updates, speakers) if speakers < NODES else 0.0
    moved, _ = move(f"fixed:{threshold}+{stand_in}", scales, examples)
    weights = np.where(np.arange(NODES) == BAD, most, 20)
    spoke = lengths(updates) > threshold
    total = weights[spoke].sum() if stand_in == "ignore" else weights.sum()
    np.testing.assert_allclose(moved, (weights * spoke) @ updates / total, rtol=1e-4, atol=1e-6)


def test_what_was_encoded_is_measured_and_not_what_a_node_says_of_its_update():
    def tamper(node, reply):
        if node == BAD:
            restate(reply.content, norm=1.0)
        return reply

    policy, scales = "adaptive+ou+top_k:0.9,feedback=true", [1, 1, 1, 1e6, 1]
    moved, updates = move(policy, scales, tamper=tamper)
    honest = np.delete(lengths(updates), BAD)
    assert np.linalg.norm(moved) < 3 * honest.max()

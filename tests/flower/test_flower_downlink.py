"""The way down on the wire: what nodes get, what they say that they have, and restarts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, context, flat, model, pulled, record
from flwr.app import ArrayRecord, Message
from flwr.serverapp import strategy as flower
from test_flower import EXAMPLES, NODES
from test_flower import targets as drawn

from taciturn.core import downlink as core
from taciturn.core import server
from taciturn.core.policy import parse
from taciturn.flower import Taciturn, downlink, protocol

SIZE, SEED, ROUNDS = 4200, 7, 5  # two blocks of `eden`, one of them not full
POLICY = "full+down=eden:0.5"


def targets(size: int) -> np.ndarray:
    return drawn(size=size)


def fed(**options) -> flower.FedAvg:
    return flower.FedAvg(fraction_evaluate=0.0, min_available_nodes=1, **options)


class Recording(LocalGrid):
    """Keeps what every node was sent, and the public model that its app saw."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.requests: list[dict[int, Message]] = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages:
            self.requests.append({m.metadata.dst_node_id: m for m in messages})
        return super().send_and_receive(messages, timeout=timeout)

    def whole(self, round: int) -> list[int]:
        """The nodes that were sent the model whole."""
        return [node for node, message in sorted(self.requests[round - 1].items())
                if "since" not in message.content[downlink.RECORD]]  # fmt: skip


def run(policy=POLICY, rounds=ROUNDS, grid=None, inner=None, **options):
    strategy = Taciturn(inner or fed(), policy, seed=SEED, **options)
    grid = grid or Recording(pulled(targets(SIZE), EXAMPLES), NODES)
    result = strategy.start(grid, model(SIZE), num_rounds=rounds)
    return strategy, grid, result


def by_hand(text: str, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """θ and P of the core's own functions."""
    policy = parse(text)
    state = server.init(policy, np.zeros(SIZE, np.float32))
    total = np.float32(sum(EXAMPLES))
    for t in range(rounds):
        mean = np.zeros(SIZE, np.float32)
        for target, n in zip(targets(SIZE), EXAMPLES, strict=True):
            mean += np.float32(n) * (np.float32(0.5) * (target - state.public))
        state = state._replace(weights=state.weights + mean / total)
        state = core.publish(policy, state, downlink.key_of(SEED, t))
    return state.weights, state.public


@pytest.mark.parametrize("codec", ["eden:0.5", "eden:2", "top_k:0.1", "quantize:2", "float16"])
def test_a_federation_is_the_core(codec):
    text = f"full+down={codec}"
    strategy, grid, result = run(text)
    weights, public = by_hand(text, ROUNDS)
    np.testing.assert_allclose(flat(result.arrays), public, atol=1e-4)
    np.testing.assert_allclose(flat(strategy._downlink.weights), weights, atol=1e-4)
    assert np.abs(weights - public).max() > 1e-5
    assert all(row["rejected"] == 0 for row in strategy.history)
    # The first time everyone gets the model, and then a message.
    assert grid.whole(1) == list(range(NODES))
    assert [grid.whole(t) for t in range(2, ROUNDS + 1)] == [[]] * (ROUNDS - 1)
    message = parse(text).down.nbytes(SIZE)
    for row in strategy.history[1:]:
        assert NODES * message <= row["bytes_down"] <= NODES * (message + 128)
        assert row["bytes_down_full"] > NODES * 4 * SIZE
    for node in grid.contexts.values():
        kept = node.state.array_records[downlink.RECORD]
        assert set(kept) == set(model(SIZE))
    # What nodes kept is the model that they trained from in the last round, bit for bit.
    _, _, earlier = run(text, ROUNDS - 1)
    np.testing.assert_array_equal(flat(grid.contexts[0].state[downlink.RECORD]),
                                  flat(earlier.arrays))  # fmt: skip


def test_off_nothing_changes_not_a_bit():
    with_name, _, one = run("full+eden:1+down=float32")
    without, grid, two = run("full+eden:1")
    np.testing.assert_array_equal(flat(one.arrays), flat(two.arrays))
    assert with_name.history == without.history
    for message in grid.requests[0].values():
        assert downlink.RECORD not in message.content
        assert "arrays" in message.content
        assert set(message.content["arrays"]) == set(model(SIZE))
    assert not grid.contexts[0].state.array_records
    assert without.history[0]["bytes_down_full"] == sum(
        without.history[0][key] for key in ("bytes_down", "overhead_down")
    )


class Missing(Recording):
    """A grid in which nodes are away in some rounds."""

    def __init__(self, away, forget=None) -> None:
        super().__init__(pulled(targets(SIZE), EXAMPLES), NODES)
        self.away, self.forget = away, forget or {}

    def send_and_receive(self, messages, *, timeout=None):
        round = len(self.requests) + 1
        self.late = {node for node, rounds in self.away.items() if round in rounds}
        for node in self.forget.get(round, ()):
            self.contexts[node] = context(node)
        return super().send_and_receive(messages, timeout=timeout)


def test_who_was_away_gets_the_messages_since():
    grid = Missing({1: (2, 3, 4)})
    strategy, _, _ = run(rounds=6, grid=grid)
    assert [grid.whole(t) for t in range(2, 7)] == [[]] * 5
    message = grid.requests[4][1].content
    assert message[downlink.RECORD]["since"] == 0
    assert message[downlink.RECORD]["version"] == 4
    nbytes = parse(POLICY).down.nbytes(SIZE)
    assert message["arrays"]["taciturn.messages"].numpy().size == 4 * nbytes
    assert [row["rejected"] for row in strategy.history] == [0] * 6
    assert [row["missing"] for row in strategy.history] == [0, 1, 1, 1, 0, 0]


def test_who_forgot_is_rejected_once_and_gets_the_model():
    grid = Missing({}, forget={3: (2,)})
    strategy, _, _ = run(grid=grid)
    assert [row["rejected"] for row in strategy.history] == [0, 0, 1, 0, 0]
    assert [grid.whole(t) for t in range(2, 6)] == [[], [], [2], []]


def test_another_model_is_rejected_and_gets_it_whole_from_then_on():
    def tamper(node, reply):
        (metrics,) = protocol.metrics_of(reply.content).values()
        version, checksum = metrics[protocol.HAS]
        if node == 1 and version == 2:
            metrics[protocol.HAS] = [version, checksum + 1]
        return reply

    grid = Recording(pulled(targets(SIZE), EXAMPLES), NODES, tamper=tamper)
    strategy, _, _ = run(grid=grid)
    assert [row["rejected"] for row in strategy.history] == [0, 0, 1, 0, 0]
    assert [grid.whole(t) for t in range(2, 6)] == [[], [], [1], [1]]


def test_the_server_assumes_nothing():
    """A node that says nothing of what it has gets the model whole, and counts."""
    app = pulled(targets(SIZE), EXAMPLES, mods=[])
    strategy, grid, _ = run(grid=Recording(app, NODES))
    assert [grid.whole(t) for t in range(1, 6)] == [list(range(NODES))] * 5
    assert [row["spoke"] for row in strategy.history] == [NODES] * 5


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedMedian, flower.FedAdam])
def test_inner_strategies_see_their_own_model_and_what_was_learned(inner):
    """Every reply is θ + Δ_k, though the client trained from P."""
    seen = []

    class Watching(inner):
        def configure_train(self, server_round, arrays, config, grid):
            seen.append(("theta", flat(arrays)))
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            seen.append(("replies", [flat(r.content["arrays"]) for r in replies]))
            return super().aggregate_train(server_round, replies)

    spy = Watching(fraction_evaluate=0.0, min_available_nodes=1)
    strategy = Taciturn(spy, "full+down=eden:0.1", seed=SEED)
    grid = Recording(pulled(targets(SIZE), EXAMPLES), NODES)
    publics = [np.zeros(SIZE, np.float32)]

    publish = downlink.Downlink.publish

    def spied(self, weights):
        found = publish(self, weights)
        publics.append(flat(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downlink.Downlink, "publish", spied)
        strategy.start(grid, model(SIZE), num_rounds=3)
    thetas = [value for name, value in seen if name == "theta"]
    assert np.abs(thetas[2] - publics[2]).max() > 1e-3
    replies = [value for name, value in seen if name == "replies"]
    for theta, public, each in zip(thetas, publics, replies, strict=False):
        updates = [np.float32(0.5) * (target - public) for target in targets(SIZE)]
        if len(each) == 1:
            updates = [np.average(updates, axis=0, weights=EXAMPLES)]
        for reply, update in zip(each, updates, strict=True):
            np.testing.assert_allclose(reply, theta + update, atol=1e-4)


def test_evaluation_uses_the_public_model():
    _, grid, result = run(inner=flower.FedAvg(min_available_nodes=1), rounds=3, min_clients=1)
    evaluations = grid.requests[1::2]
    assert len(evaluations) == 3
    for node, request in evaluations[-1].items():
        assert request.content[downlink.RECORD]["version"] == 3
        assert request.content[downlink.RECORD]["since"] == 2
        np.testing.assert_array_equal(
            flat(grid.contexts[node].state[downlink.RECORD]), flat(result.arrays)
        )
    # Whoever was told for a test needs no message to train.
    assert grid.requests[2][0].content["arrays"]["taciturn.messages"].numpy().size == 0
    assert set(result.evaluate_metrics_clientapp[3]) == {"accuracy", "loss"}


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam])
def test_a_restart_is_bit_equal(tmp_path, inner):
    def make(folder):
        return Taciturn(
            inner(fraction_evaluate=0.0, min_available_nodes=1),
            "full+top_k:0.1,feedback=true+down=eden:0.5", seed=SEED, folder=folder,
        )  # fmt: skip

    def grid():
        return Recording(pulled(targets(SIZE), EXAMPLES), NODES)

    whole, once = make(tmp_path / "a"), grid()
    result = whole.start(once, model(SIZE), num_rounds=6)
    first, second = grid(), grid()
    make(tmp_path / "b").start(first, model(SIZE), num_rounds=3)
    second.contexts = first.contexts
    again = make(tmp_path / "b")
    resumed = again.start(second, model(SIZE), num_rounds=6)
    np.testing.assert_array_equal(flat(resumed.arrays), flat(result.arrays))
    assert again._downlink.log == whole._downlink.log
    assert again._downlink.version == whole._downlink.version == 6
    np.testing.assert_array_equal(flat(again._downlink.weights), flat(whole._downlink.weights))
    # What nodes have is not assumed after a restart.
    assert second.whole(1) == list(range(NODES))
    assert second.whole(2) == []


@pytest.mark.parametrize("head", ["head", "['head']['bias']", "he*d?"])
def test_arrays_that_always_travel_do(head):
    """Whatever they are called: names of JAX's pytrees look like patterns."""
    start = ArrayRecord(dict(model(6)) | dict(record(**{head: np.ones(2, np.float32)})))
    wide = [np.concatenate([target, [4.0, 4.0]]).astype("f4") for target in targets(6)]
    grid = Recording(pulled(wide, EXAMPLES), NODES)
    strategy = Taciturn(fed(), POLICY, seed=SEED, exclude="*he*")
    result = strategy.start(grid, start, num_rounds=3)
    assert set(grid.requests[2][0].content["arrays"]) == {head, "taciturn.messages"}
    assert list(result.arrays) == list(start)
    np.testing.assert_allclose(result.arrays[head].numpy(), 1 + 3 * (1 - 0.5**3))

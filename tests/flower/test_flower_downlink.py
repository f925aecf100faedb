"""The way down on the wire: what nodes get, what they say that they have, and restarts."""

import federation
import numpy as np
import pytest
from federation import EXAMPLES, NODES, LocalGrid, context, flat, model, pulled, record
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import strategy as flower

from taciturn import TaciturnError
from taciturn.core.policy import parse
from taciturn.flower import downlink, protocol

SIZE, ROUNDS = 4200, 5  # two blocks of `eden`, one of them not full
POLICY = "full+down=eden:0.5"
TARGETS = federation.targets(size=SIZE)
MESSAGES = "taciturn.messages"


class Recording(LocalGrid):
    """Keeps what every node was sent. Node 1 is away in some rounds, forgets all before one, or
    loses its reply in one; where it is `behind`, its state is stored a round late."""

    def __init__(self, app=None, away=(), forget=0, lost=0, behind=False, **options) -> None:
        super().__init__(app or pulled(TARGETS), NODES, **options)
        self.requests: list[dict[int, Message]] = []
        self.away, self.forget, self.lost = away, forget, lost
        self.stored = RecordDict() if behind else None

    def send_and_receive(self, messages, *, timeout=None):
        messages, round = list(messages), len(self.requests) + 1
        self.late = {1} if round in self.away else set()
        if round == self.forget:
            self.contexts[1] = context(1)
        if messages:
            self.requests.append({m.metadata.dst_node_id: m for m in messages})
            if self.stored is not None:
                self.stored, self.contexts[1].state = self.contexts[1].state, self.stored
        replies, lost = super().send_and_receive(messages, timeout=timeout), round == self.lost
        return [reply for reply in replies if reply.metadata.src_node_id != 1 or not lost]

    def messages(self, node: int) -> list[float | None]:
        """How many messages a node was sent in each round; None for the model."""
        found = [requests[node].content["arrays"].get(MESSAGES) for requests in self.requests]
        length = parse(POLICY).down.nbytes(SIZE)
        return [None if sent is None else sent.numpy().size / length for sent in found]

    def kept(self, node: int) -> ArrayRecord:
        return self.contexts[node].state.array_records[downlink.RECORD]


def run(policy=POLICY, rounds=ROUNDS, grid=None, inner=flower.FedAvg, **options):
    return federation.run(policy, rounds, inner, TARGETS, grid or Recording(), **options)


@pytest.mark.parametrize("codec", ["eden:0.5", "top_k:0.1", "sparse_ternary:0.1", "float16"])
def test_a_federation_is_the_core(codec):
    text = f"full+down={codec}"
    strategy, result, _ = run(text)
    state, _, _ = federation.plain_loop(text, TARGETS, ROUNDS)
    np.testing.assert_allclose(flat(result.arrays), state.public, atol=1e-4)
    np.testing.assert_allclose(flat(strategy._downlink.weights), state.weights, atol=1e-4)
    assert np.abs(state.weights - state.public).max() > 1e-5
    assert all(row["rejected"] == 0 for row in strategy.history)
    message = parse(text).down.nbytes(SIZE)
    for row in strategy.history[1:]:
        assert NODES * message <= row["bytes_down"] <= NODES * (message + 128)
        assert row["bytes_down_full"] > NODES * 4 * SIZE


def test_off_nothing_changes_not_a_bit():
    with_name, one, _ = run("full+eden:1+down=float32")
    without, two, grid = run("full+eden:1")
    np.testing.assert_array_equal(flat(one.arrays), flat(two.arrays))
    assert with_name.history == without.history
    for message in grid.requests[0].values():
        assert downlink.RECORD not in message.content
        assert set(message.content["arrays"]) == set(model())
    assert not grid.contexts[0].state.array_records
    row = without.history[0]
    assert row["bytes_down_full"] == row["bytes_down"] + row["overhead_down"]


def of_another_model(node, reply):
    (metrics,) = protocol.metrics_of(reply.content).values()
    version, checksum = metrics[protocol.HAS]
    if node == 1 and version == 2:
        metrics[protocol.HAS] = [version, checksum + 1]
    return reply


@pytest.mark.parametrize(
    ("happens", "kept", "rejected", "messages"),
    [({"away": (2, 3, 4)}, None, None, [None, 1, 2, 3, 4, 1, 1]),
     ({"away": (2, 3, 4)}, 3, None, [None, 1, 2, 3, None, 1, 1]),  # so many are not kept
     ({"lost": 2}, None, None, [None, 1, 2, 1, 1, 1, 1]),  # it has more than is known
     ({"forget": 3}, None, 3, [None, 1, 1, None, None, 2, 2]),
     ({"behind": True}, None, 2, [None, 1, None, None, 2, 2, 2]),
     ({"tamper": of_another_model}, None, 3, [None, 1, 1, None, None, None, None])],
)  # fmt: skip
def test_a_node_gets_the_messages_that_it_lacks_or_the_model(happens, kept, rejected, messages):
    """When node 1 is rejected, and how many messages it gets; the others get each."""
    strategy, _, grid = run(rounds=7, grid=Recording(**happens), kept_messages=kept)
    assert [row["rejected"] for row in strategy.history] == [t == rejected for t in range(1, 8)]
    away = [t in grid.away or t == grid.lost for t in range(1, 8)]
    assert [row["missing"] for row in strategy.history] == away
    others = [None, *6 * [1]]
    assert [grid.messages(node) for node in range(NODES)] == [others, messages, *3 * [others]]


def test_the_server_assumes_nothing():
    """A node that says nothing of what it has gets the model whole, and counts."""
    strategy, _, grid = run(grid=Recording(pulled(TARGETS, mods=[])))
    assert [grid.messages(node) for node in range(NODES)] == [[None] * 5] * NODES
    assert [row["spoke"] for row in strategy.history] == [NODES] * 5


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedMedian, flower.FedAdam])
def test_inner_strategies_see_their_own_model_and_what_was_learned(inner):
    """Every reply is θ + Δ_k, though the client trained from P."""

    class Watching(inner):
        def configure_train(self, server_round, arrays, config, grid):
            self.theta = flat(arrays)
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            self.given = [flat(reply.content["arrays"]) for reply in replies]
            return super().aggregate_train(server_round, replies)

    spy = Watching(fraction_evaluate=0.0)
    _, _, grid = run("full+down=eden:0.1", 3, inner=spy)
    public = flat(grid.kept(0))
    assert np.abs(spy.theta - public).max() > 1e-3
    updates = np.float32(0.5) * (TARGETS - public)
    if len(spy.given) == 1:
        updates = [np.average(updates, axis=0, weights=EXAMPLES)]
    for given, update in zip(spy.given, updates, strict=True):
        np.testing.assert_allclose(given, spy.theta + update, atol=1e-4)


def test_evaluation_uses_the_public_model():
    _, result, grid = run(inner=flower.FedAvg(), rounds=3)
    evaluations = grid.requests[1::2]
    assert len(evaluations) == 3
    for node, request in evaluations[-1].items():
        assert request.content[downlink.RECORD]["version"] == 3
        assert request.content[downlink.RECORD]["since"] == 2
        np.testing.assert_array_equal(flat(grid.kept(node)), flat(result.arrays))
    # Whoever was told for a test needs no message to train.
    assert grid.requests[2][0].content["arrays"][MESSAGES].numpy().size == 0
    assert set(result.evaluate_metrics_clientapp[3]) == {"accuracy", "loss"}


def test_a_restart_is_bit_equal(tmp_path):
    whole, first, second = Recording(), Recording(), Recording()
    policy = "full+top_k:0.1,feedback=true+down=eden:0.5"
    expected, result, _ = run(policy, 6, whole, flower.FedAdam)
    run(policy, 3, first, flower.FedAdam, folder=tmp_path)
    second.contexts = first.contexts
    strategy, resumed, _ = run(policy, 6, second, flower.FedAdam, folder=tmp_path)
    np.testing.assert_array_equal(flat(resumed.arrays), flat(result.arrays))
    ours, theirs = strategy._downlink, expected._downlink
    assert (ours.log, ours.version) == (theirs.log, theirs.version)
    np.testing.assert_array_equal(flat(ours.weights), flat(theirs.weights))
    assert second.messages(0) == [None, 1, 1]  # what nodes have is not assumed


@pytest.mark.parametrize("head", ["head", "['head']['bias']", "he*d?"])
def test_arrays_that_always_travel_do(head):
    """Whatever they are called: names of JAX's pytrees look like patterns."""
    start = ArrayRecord(dict(model()) | dict(record(**{head: np.ones(2, np.float32)})))
    wide = [np.append(target, [4.0, 4.0]).astype("f4") for target in federation.targets()]
    _, result, grid = run(rounds=3, grid=Recording(pulled(wide)), start=start, exclude="*he*")
    assert set(grid.requests[2][0].content["arrays"]) == {head, MESSAGES}
    assert list(result.arrays) == list(start)
    np.testing.assert_allclose(result.arrays[head].numpy(), 1 + 3 * (1 - 0.5**3))


def test_requests_with_two_array_records_and_messages_of_another_length_are_refused():
    strategy, _, grid = run(rounds=2)
    request = grid.requests[1][0]
    request.content["arrays"][MESSAGES] = record(a=np.zeros(7, np.uint8))["a"]
    with pytest.raises(TaciturnError, match="the messages have 7 bytes"):
        downlink.receive(request, grid.contexts[0])
    request.content["more"] = record()
    with pytest.raises(TaciturnError, match="needs requests with one ArrayRecord, got 2"):
        strategy._downlink.to(request)

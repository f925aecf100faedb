"""What one node can do to a federation, and what it cannot."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, config, context, flat, model, pulled, record, restate
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from test_flower import COMPARING, EXAMPLES, NODES, SIZE, Spy, targets

from taciturn.flower import Taciturn, speak
from taciturn.flower.records import cast

BAD = 3


def lying(norm=None, **metrics):
    """What node `BAD` claims instead of the truth."""

    def tamper(node, reply):
        if node == BAD:
            if norm is not None:
                restate(reply.content, norm=norm)
            reply.content["metrics"].update(
                {name.replace("_", "-"): value for name, value in metrics.items()}
            )
        return reply

    return tamper


def silent(examples, norm=0.0):
    """Node `BAD` says nothing, and how much it weighs."""

    def tamper(node, reply):
        if node == BAD:
            reply.content.pop("arrays", None)
            restate(reply.content, b"", norm=norm)
            reply.content["metrics"]["num-examples"] = examples
        return reply

    return tamper


def run(policy, tamper=None, rounds=1, inner=None, grid=None, **options):
    grid = grid or LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
    strategy = Taciturn(inner or flower.FedAvg(fraction_evaluate=0.0), policy, **options)
    return strategy, strategy.start(grid, model(SIZE), num_rounds=rounds)


# What a node weighs.


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
@pytest.mark.parametrize(("limit", "most"), [(10.0, 300.0), (2.0, 60.0), (None, 1e9)])
def test_nobody_weighs_more_than_so_many_times_the_median(inner, limit, most):
    inner = inner(fraction_evaluate=0.0)
    _, result = run("full", lying(num_examples=1e9), inner=inner, weight_limit=limit)
    weights = np.array([10, 20, 30, most, min(50, most)])
    expected = 0.5 * weights @ targets() / weights.sum()
    np.testing.assert_allclose(flat(result.arrays), expected, rtol=1e-5)
    if isinstance(inner, Spy):
        assert inner.seen[BAD].content["metrics"]["num-examples"] == pytest.approx(most)


def test_a_silent_node_weighs_twice_the_median_at_the_most():
    lengths = 0.5 * np.linalg.norm(targets(), axis=1)
    _, result = run(f"fixed:{lengths.min() / 2}+zero", silent(1e6))
    weights = np.array([10, 20, 30, 60, 50])
    moved = np.where(np.arange(NODES) == BAD, 0, weights) @ targets() * 0.5
    np.testing.assert_allclose(flat(result.arrays), moved / weights.sum(), rtol=1e-5)


def test_where_nobody_may_be_silent_nobody_is(caplog):
    strategy, result = run("full", silent(1e6))
    assert (strategy.history[0]["rejected"], strategy.history[0]["spoke"]) == (1, 4)
    others = np.array([10, 20, 30, 0, 50])
    expected = 0.5 * others @ targets() / others.sum()
    np.testing.assert_allclose(flat(result.arrays), expected, rtol=1e-5)
    assert "It is silent, and `full` lets it be so no more" in caplog.text


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
@pytest.mark.parametrize("policy", ["adaptive+ou", "adaptive+ou+quantize:8"])
@pytest.mark.parametrize("whole", [True, False])
def test_no_update_counts_as_longer_than_three_of_the_upper_quartile(inner, policy, whole):
    wanted = targets()
    wanted[BAD] *= 1e6
    grid = LocalGrid(pulled(wanted, EXAMPLES, mods=[] if whole else None), NODES)
    _, result = run(policy, grid=grid, inner=inner(fraction_evaluate=0.0))
    updates = 0.5 * wanted.astype(float)
    norms = np.linalg.norm(updates, axis=1)
    updates[BAD] *= 3 * np.sort(np.delete(norms, BAD))[3] / norms[BAD]
    expected = np.array(EXAMPLES) @ updates / sum(EXAMPLES)
    tolerance = 0.02 if "quantize" in policy else 1e-5
    assert np.linalg.norm(flat(result.arrays) - expected) < tolerance * np.linalg.norm(expected)


def test_where_all_speak_and_where_replies_are_compared_lengths_are_as_they_are():
    assert math.isinf(Taciturn(flower.FedAvg(), "full").limits.norm)
    assert math.isinf(Taciturn(flower.FedMedian()).limits.norm)
    assert Taciturn(flower.FedAvg()).limits.norm == 3.0


# Thresholds.


def test_the_default_is_a_budget_and_robust_where_replies_are_compared():
    assert str(Taciturn(flower.FedAvg()).policy) == "budget"
    policy = Taciturn(flower.FedMedian()).policy
    assert str(policy) == "adaptive,robust=true,at_most=10+ignore"


@pytest.mark.parametrize("name", COMPARING)
def test_strategies_that_compare_have_robust_thresholds(name):
    kind, options = COMPARING[name]
    policy = Taciturn(kind(**options), "adaptive,k=0+ou").policy
    assert str(policy) == "adaptive,k=0,robust=true+ignore"
    assert str(Taciturn(kind(**options), "random:0.5").policy) == "random:0.5+ignore"


def test_a_silent_node_that_claims_a_long_update_takes_no_bytes_from_the_others():
    """No threshold bounds what it claims under `budget`, where bytes follow the mean of n·m."""
    typical = [
        float(run("budget:45B,per=client", tamper)[0]._memory.rule.typical)
        for tamper in (silent(30, 1.0), silent(30, 1e12))
    ]
    assert typical[1] < 3 * typical[0]


@pytest.mark.parametrize(
    "tamper", [lying(num_examples=1e9), silent(1e6, 1e9), silent(1e-6), lying(num_examples=1e-6)]
)
@pytest.mark.parametrize("name", ["FedAvg", "FedMedian"])
def test_one_node_neither_silences_the_others_nor_makes_them_all_speak(name, tamper):
    grid = LocalGrid(pulled(targets(nodes=10), [20] * 10), 10, tamper=tamper)
    inner = getattr(flower, name)(fraction_evaluate=0.0)
    strategy, _ = run("adaptive,k=0,robust=true+ou", rounds=12, inner=inner, grid=grid)
    spoke = [row["spoke"] for row in strategy.history[4:]]
    assert min(spoke) >= 3
    assert max(spoke) <= 8


# Silence.


def counting_silence(rounds, tamper=None, forget=False):
    """Thresholds above all norms: who speaks does so because it must."""
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
    if forget:  # as nodes do that are started again

        def app(message, _):
            return pulled(targets(), EXAMPLES)(message, context(message.metadata.dst_node_id))

        grid.app = app
    strategy, _ = run("adaptive,k=-50,robust=true,at_most=3+ou", rounds=rounds, grid=grid)
    return strategy


@pytest.mark.parametrize("forget", [False, True])
def test_nobody_is_silent_for_ever(forget):
    strategy = counting_silence(11, forget=forget)
    assert [row["spoke"] for row in strategy.history] == [5, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0]
    assert strategy.nodes[0].last_spoke == 10
    assert (strategy.nodes[0].spoke, strategy.nodes[0].silent) == (4, 7)
    assert strategy.nodes.rows(11)[0]["rounds_since"] == 1


def test_who_stays_silent_all_the_same_is_rejected_and_missed(caplog):
    strategy = counting_silence(11, silent(30, 0.1))
    assert [row["rejected"] for row in strategy.history] == [0, 0, 0] + [1] * 8
    assert (strategy.nodes[BAD].spoke, strategy.nodes[BAD].silent) == (0, 3)
    assert "It is silent, and `adaptive` lets it be so no more" in caplog.text
    assert f"node {BAD} was asked 11 times, was silent 3 times and has never been" in caplog.text


# Numbers.


@pytest.mark.parametrize(
    ("claim", "message"),
    [({"num_examples": 1e18}, r"`num-examples` must be in \(1e-18, 1e18\), got 1e\+18"),
     ({"norm": 2e18}, r"must be in \[0, 1e18\), got 2e\+18"),
     ({"loss": math.nan}, "The metric `loss` must be finite, got nan"),
     ({"loss": [1.0, math.inf]}, "The metric `loss` must be finite, got")],
)  # fmt: skip
def test_numbers_out_of_bounds_are_named(claim, message, caplog):
    strategy, _ = run("adaptive+ou", lying(**claim))
    assert strategy.history[0]["rejected"] == 1
    assert re.search(message, caplog.text)


class Exploding(flower.FedAvg):
    to = math.inf

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round == 2:
            arrays = record(a=arrays["a"].numpy(), b=np.full(arrays["b"].shape, self.to))
        return arrays, metrics


@pytest.mark.parametrize("to", [math.inf, 1e300])  # the second is none of float32
def test_a_step_that_is_not_finite_is_not_taken(to, caplog, monkeypatch):
    monkeypatch.setattr(Exploding, "to", to)
    _, once = run("full", rounds=1, inner=Exploding(fraction_evaluate=0.0))
    _, twice = run("full", rounds=2, inner=Exploding(fraction_evaluate=0.0))
    np.testing.assert_array_equal(flat(once.arrays), flat(twice.arrays))
    assert "Exploding made weights of round 2 that are not finite, first in `b`" in caplog.text


def test_a_mean_that_the_models_type_cannot_hold_is_not_taken(caplog):
    """What a code says of a large update is larger here and there."""
    wanted = np.full((NODES, 300), 6e4, np.float16)
    grid = LocalGrid(pulled(wanted, EXAMPLES, rate=1.0), NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full+eden:1", seed=0)
    result = strategy.start(grid, record(w=np.zeros(300, np.float16)), num_rounds=1)
    assert strategy.history[0]["spoke"] == NODES
    assert not flat(result.arrays).any()
    assert "FedAvg made weights of round 1 that are not finite, first in `w`" in caplog.text


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [("int64", [9.3e18, -9.3e18, 2.6], [2**63 - 1, -(2**63), 3]),
     ("int32", [3e9, -3e9, 2.4], [2**31 - 1, -(2**31), 2]),
     ("uint8", [256.0, -1.0, 254.6], [255, 0, 255]),
     ("uint64", [2e19, -1.0, 7.0], [2**64 - 1, 0, 7])],
)  # fmt: skip
def test_counters_stop_at_the_most_that_they_hold(dtype, values, expected):
    found = cast(record(a=np.array(values)), record(a=np.zeros(3, dtype)))["a"].numpy()
    assert found.dtype == dtype
    assert found.tolist() == expected


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
def test_of_two_nodes_with_different_metrics_both_count(inner, caplog):
    def tamper(node, reply):
        reply.content["metrics"][f"own-{node}"] = 1.0
        return reply

    grid = LocalGrid(pulled(targets(nodes=2), [10, 20]), 2, tamper=tamper)
    strategy, result = run("full", grid=grid, inner=inner(fraction_evaluate=0.0))
    assert (strategy.history[0]["spoke"], strategy.history[0]["rejected"]) == (2, 0)
    assert result.train_metrics_clientapp[1]["train_loss"] == pytest.approx(5 / 3)
    assert "own-0" not in result.train_metrics_clientapp[1]
    assert "nodes report different metrics; ['num-examples', 'train_loss'] are kept" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"accuracy": math.nan}, {"more": 1.0}, {"num-examples": 0}, {"num-examples": [1]},
     {"loss": [1.0, 2.0]}],
)  # fmt: skip
def test_no_evaluation_stops_the_run(wrong):
    def tamper(node, reply):
        if node == BAD and "arrays" not in reply.content:
            reply.content["metrics"].update(wrong)
        return reply

    strategy, _ = run("full", tamper, 2, flower.FedAvg())
    assert [row["accuracy"] for row in strategy.history] == [0.5, 0.5]


# What is refused, and what is said.


def test_a_request_with_two_array_records_warns(caplog):
    app = ClientApp(mods=[speak()])

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
        return Message(content, reply_to=message)

    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "fixed:1+zero")
    grid = LocalGrid(app, 2)
    messages = list(strategy.configure_train(1, model(SIZE), config(), grid))
    for message in messages:
        message.content["more"] = ArrayRecord({})
    replies = grid.send_and_receive(messages)
    assert "the request has 2 ArrayRecords" in caplog.text
    strategy.aggregate_train(1, replies)
    assert strategy.history[0]["spoke"] == 2
    assert "does not do as it was asked: the request has 2 ArrayRecords" in caplog.text

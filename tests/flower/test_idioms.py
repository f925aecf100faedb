"""What somebody who knows Flower expects of a strategy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, model, pulled, record
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from test_flower import EXAMPLES, NODES, SIZE, targets

from taciturn.flower import Taciturn, speak


def run(inner, policy, rounds=1, grid=None, **nodes):
    grid = grid or LocalGrid(pulled(targets(), EXAMPLES), NODES, **nodes)
    strategy = Taciturn(inner, policy)
    return strategy, strategy.start(grid, model(SIZE), num_rounds=rounds)


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, flower.FedMedian])
def test_flowers_line_about_replies_is_there_once_and_true(inner, caplog):
    run(inner(fraction_evaluate=0.0), "fixed:2.5+ou", late=[0], broken=[1])
    lines = [line for line in caplog.messages if "results and" in line]
    assert lines == ["aggregate_train: Received 3 results and 1 failures"]


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, flower.FedMedian])
def test_functions_of_ones_own_see_a_record_per_client(inner):
    seen = []

    def largest(contents, key):
        seen.append([content["metrics"][key] for content in contents])
        return MetricRecord({"worst": max(c["metrics"]["train_loss"] for c in contents)})

    lengths = np.sort(0.5 * np.linalg.norm(targets(), axis=1))
    strategy, result = run(
        inner(fraction_evaluate=0.0, train_metrics_aggr_fn=largest),
        f"fixed:{lengths[1:3].mean()}+ou",
    )
    assert strategy.history[0]["silent"] == 2
    assert seen == [EXAMPLES]
    assert result.train_metrics_clientapp[1]["worst"] == 5.0
    assert strategy.history[0]["train_worst"] == 5.0
    assert strategy.inner.train_metrics_aggr_fn is largest


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, flower.FedAvgM])
def test_counters_move_whatever_the_optimiser(inner):
    app = ClientApp(mods=[speak()])

    @app.train()
    def train(message, context):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        trained = record(a=arrays["a"] + np.float32(1), count=arrays["count"] + 7)
        metrics = MetricRecord({"num-examples": 10})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    strategy = Taciturn(inner(fraction_evaluate=0.0), "full")
    first = record(a=np.zeros(3, "f4"), count=np.array([5]))
    result = strategy.start(LocalGrid(app, 2), first, num_rounds=3)
    assert result.arrays["count"].numpy().tolist() == [26]
    assert result.arrays["count"].dtype == "int64"


def test_any_metric_is_in_the_history():
    def more(node, reply):
        if "arrays" not in reply.content:  # an evaluation
            reply.content["metrics"].update({"f1": 0.25, "spoke": 3.0})
        return reply

    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=more)
    strategy, _ = run(flower.FedAvg(), "full", 2, grid)
    row = strategy.history[-1]
    assert (row["accuracy"], row["f1"]) == (0.5, 0.25)
    assert row["app_spoke"] == pytest.approx(3.0)
    assert row["train_loss"] == pytest.approx(11 / 3)
    assert row["spoke"] == NODES

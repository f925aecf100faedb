"""What somebody who knows Flower expects of a strategy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import EXAMPLES, NODES, LocalGrid, app_of, record, run, targets
from flwr.app import MetricRecord
from flwr.serverapp import strategy as flower

from taciturn import track

SOME = [flower.FedAvg, flower.FedAdam, flower.FedMedian]


@pytest.mark.parametrize("inner", SOME)
def test_flowers_line_about_replies_is_there_once_and_true(inner, caplog):
    run("fixed:2.5+ou", 1, inner, late=[0], broken=[1])
    lines = [line for line in caplog.messages if "results and" in line]
    assert lines == ["aggregate_train: Received 3 results and 1 failures"]


@pytest.mark.parametrize("inner", SOME)
def test_functions_of_ones_own_see_a_record_per_client(inner):
    seen = []

    def largest(contents, key):
        seen.append(tuple(content["metrics"][key] for content in contents))
        return MetricRecord({"worst": max(c["metrics"]["train_loss"] for c in contents)})

    lengths = np.sort(0.5 * np.linalg.norm(targets(), axis=1))
    inner = inner(fraction_evaluate=0.0, train_metrics_aggr_fn=largest)
    strategy, result, _ = run(f"fixed:{lengths[1:3].mean()}+ou", 1, inner)
    assert strategy.history[0]["silent"] == 2
    assert seen == [EXAMPLES]
    assert result.train_metrics_clientapp[1]["worst"] == 5.0
    assert strategy.history[0]["train_worst"] == 5.0
    assert strategy.inner.train_metrics_aggr_fn is largest


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, flower.FedAvgM])
def test_counters_move_whatever_the_optimiser_and_keep_their_shape(inner, tmp_path):
    def step(k, arrays):
        grown = {"a": arrays["a"] + np.float32(1), "scale": arrays["scale"] + np.float32(1)}
        return grown | {"count": arrays["count"] + 7}, {"num-examples": 10}

    first = record(a=np.zeros(3, "f4"), scale=np.array(1.0, "f4"), count=np.array(5))
    for rounds in (2, 3):  # the second time from a folder
        grid = LocalGrid(app_of(step), 2)
        _, result, _ = run("full", rounds, inner, grid=grid, start=first, folder=tmp_path)
    assert result.arrays["count"].numpy().tolist() == 26
    assert result.arrays["count"].dtype == "int64"
    assert {name: tuple(array.shape) for name, array in result.arrays.items()} == {
        "a": (3,), "scale": (), "count": ()
    }  # fmt: skip


def test_any_metric_is_in_the_history():
    def more(node, reply):
        if "arrays" not in reply.content:  # an evaluation
            reply.content["metrics"].update({"f1": 0.25, "spoke": 3.0})
        return reply

    strategy, _, _ = run("full", 2, flower.FedAvg(), tamper=more)
    row = strategy.history[-1]
    assert (row["accuracy"], row["f1"], row["app_spoke"]) == (0.5, 0.25, pytest.approx(3.0))
    assert row["train_loss"] == pytest.approx(11 / 3)
    assert row["spoke"] == NODES


def test_a_tracker_gets_every_round(tmp_path, monkeypatch):
    got, closed, policy = [], [], "adaptive,k=0+ou"
    monkeypatch.setattr(track, "require", lambda module, extra: pytest)  # any module
    monkeypatch.setitem(
        track._OPEN, "mlflow",
        lambda library, run, folder, settings: track.Run(got.extend, lambda: closed.append(run)),
    )  # fmt: skip
    strategy, _, _ = run(
        policy, 3, track="mlflow", folder=tmp_path,
        evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": t / 10}),
    )  # fmt: skip
    assert closed == [policy]
    seen = {}
    for round, figures in got:
        seen.setdefault(round, {}).update(figures)
    assert list(seen) == [1, 2, 3]
    for row in strategy.history:
        known = {key: value for key, value in row.items() if key != "round" and value == value}
        assert seen[row["round"]] == pytest.approx(known)
    assert seen[3]["accuracy"] == 0.3

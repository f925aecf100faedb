"""The server's side: what it counts, what it rejects, and what it writes down."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled, record, restate
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from test_flower import EXAMPLES, NODES, SIZE, Spy, targets

from taciturn.core import parallel
from taciturn.flower import Taciturn, byte_counts, mod, protocol, records, speak

BAD = 3


def bad(change):
    """A node whose reply is changed on its way."""

    def tamper(node, reply):
        if node == BAD:
            content = RecordDict(dict(reply.content))
            content["metrics"] = type(reply.content["metrics"])(dict(reply.content["metrics"]))
            if "arrays" in content:
                content["arrays"] = ArrayRecord(dict(reply.content["arrays"]))
            reply = Message(content=content, metadata=reply.metadata)
            reply = change(content) or reply
        return reply

    return tamper


def put(**arrays):
    return lambda content: content["arrays"].update(record(**arrays))


def say(**metrics):
    return lambda content: content["metrics"].update(
        {name.replace("_", "-"): value for name, value in metrics.items()}
    )


def headed(header):
    """An array whose header is this text: NumPy reads it as Python."""
    text = header.encode() + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24)
    return lambda c: c["arrays"].update({"b": Array("float32", (6,), "numpy.ndarray", data)})


GARBAGE = {
    "a header that is half an expression": headed("("),
    "a header with odd indents": headed("  1\n 2"),
    "a header nested too deeply": headed("-" * 3900 + "1"),
    "a header without a type": headed("{'descr': (), 'fortran_order': False, 'shape': (6,)}"),
    "a header of a shape beyond all": headed(
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**22},)}}"
    ),
    "metrics with the name of the arrays": lambda c: (
        c.pop("arrays"),
        c.update({"arrays": c.pop("metrics")}),
    )[2:],
    "no arrays of that name": lambda c: c["arrays"].pop("a") and None,
    "an array too many": put(c=np.zeros(2, np.float32)),
    "another shape": put(b=np.zeros(3, np.float32)),
    "text for numbers": put(b=np.array(["x"] * 6)),
    "NaN": put(b=np.full(6, np.nan, np.float32)),
    "infinity": put(b=np.full(6, np.inf, np.float32)),
    "overflow": put(b=np.full(6, 3e38, np.float32)),
    "a norm that does not fit": lambda c: restate(c, norm=1e-3),
    "a norm that is NaN": lambda c: restate(c, norm=math.nan),
    "a norm below zero": lambda c: restate(c, norm=-1.0),
    "half a report": lambda c: c["metrics"].update({protocol.REPORT: bytes(31)}),
    "a number for a report": lambda c: c["metrics"].update({protocol.REPORT: 1.0}),
    "text for a metric": lambda c: c["metrics"].update({"train_loss": "low"}),
    "no examples": say(num_examples=0),
    "infinitely many examples": say(num_examples=math.inf),
    "more examples than there are": say(num_examples=1e39),
    "hardly an example": say(num_examples=1e-39),
    "a list of examples": say(num_examples=[1]),
    "a norm beyond float32": lambda c: (restate(c, norm=1e39), c.pop("arrays"))[2:],
    "a dtype that is none": lambda c: c["arrays"].update(
        {"b": Array("float31", (6,), "numpy.ndarray", c["arrays"]["b"].data)}
    ),
    "whole numbers for weights": put(b=np.ones(6, np.int64)),
    "objects": lambda c: c["arrays"].update(
        {
            "b": Array(
                "object", (6,), "numpy.ndarray", Array(np.zeros(6)).data.replace(b"<f8", b"|O8")
            )
        }
    ),
    "no count": lambda c: c["metrics"].pop("num-examples") and None,
    "other metrics": say(more=1.0),
    "a list for a metric": lambda c: c["metrics"].update({"train_loss": [1.0, 2.0]}),
    "no metrics": lambda c: c.pop("metrics") and None,
    "two records": lambda c: c.update({"more": record(a=np.zeros(1))}),
    "broken bytes": lambda c: c["arrays"].update(
        {"b": Array("float32", (6,), "numpy.ndarray", b"garbage")}
    ),
    "cut bytes": lambda c: c["arrays"].update(
        {"b": Array("float32", (6,), "numpy.ndarray", c["arrays"]["b"].data[:-1])}
    ),
    "another library's bytes": lambda c: c["arrays"].update(
        {"b": Array("float32", (6,), "pickle", c["arrays"]["b"].data)}
    ),
    "a lie about the shape": lambda c: c["arrays"].update(
        {"b": Array("float32", (6,), "numpy.ndarray", Array(np.zeros(9, "f4")).data)}
    ),
}


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_rejected_and_the_round_goes_on(kind, inner, caplog):
    wanted = targets()
    app = pulled(wanted, EXAMPLES)
    grid = LocalGrid(app, NODES, tamper=bad(GARBAGE[kind]))
    strategy = Taciturn(inner(fraction_evaluate=0.0), "adaptive+ou")
    result = strategy.start(grid, model(SIZE), num_rounds=1)
    assert strategy.history[0]["rejected"] == 1
    assert strategy.history[0]["spoke"] == NODES - 1
    assert f"the reply of node {BAD} is rejected" in caplog.text
    others = [k for k in range(NODES) if k != BAD]
    weights = np.array(EXAMPLES, float)[others]
    expected = 0.5 * (weights @ wanted[others]) / weights.sum()
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)
    assert math.isfinite(strategy.history[0]["norm_mean"])


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam])
@pytest.mark.parametrize("number", [1e300, 1e20, math.inf])
def test_arrays_that_always_travel_fit_the_models_type(inner, number):
    """A float64 that is finite is none as float32, and squares of 1e20 are not."""
    tamper = bad(put(b=np.full(SIZE - SIZE // 4 * 2, number)))
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
    strategy = Taciturn(inner(fraction_evaluate=0.0), "full", exclude="b")
    result = strategy.start(grid, model(SIZE), num_rounds=2)
    assert [row["rejected"] for row in strategy.history] == [1, 1]
    assert 0 < np.abs(result.arrays["b"].numpy()).max() < 10


@pytest.mark.parametrize("loss", [-1.0, math.nan, math.inf])
def test_a_loss_that_has_no_power_is_rejected(loss):
    tamper = bad(lambda content: content["metrics"].update({"train_loss": loss}))
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
    strategy = Taciturn(flower.QFedAvg(client_learning_rate=0.5, fraction_evaluate=0.0), "full")
    result = strategy.start(grid, model(SIZE), num_rounds=1)
    assert strategy.history[0]["rejected"] == 1
    assert np.linalg.norm(flat(result.arrays)) > 0


def test_an_encoded_norm_counts_with_feedback_alone():
    """One who says a tiny norm, and another one that fits its update, is not believed."""
    fits = float(0.5 * np.linalg.norm(targets()[BAD]))
    tamper = bad(lambda content: restate(content, norm=1e-9, encoded_norm=fits))
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full+quantize:8")
    strategy.start(grid, model(SIZE), num_rounds=1)
    assert strategy.history[0]["rejected"] == 1


def test_how_likely_a_node_was_to_speak_is_the_rules_word_and_not_its_own(monkeypatch):
    ends = []
    for tamper in (None, bad(lambda content: restate(content, probability=1e-6))):
        monkeypatch.setattr(mod, "_uniform", np.random.default_rng(1).random)
        grid = LocalGrid(pulled(targets(), EXAMPLES), NODES, tamper=tamper)
        strategy = Taciturn(
            flower.FedAvg(fraction_evaluate=0.0), "optimal:0.5+zero", weight_limit=None
        )
        ends.append(flat(strategy.start(grid, model(SIZE), num_rounds=4).arrays))
        assert strategy.nodes[BAD].spoke > 0
        assert min(row["spoke"] for row in strategy.history) < NODES
    np.testing.assert_array_equal(*ends)


def test_who_was_not_asked_is_rejected(caplog):
    app = pulled(targets(), EXAMPLES)
    grid = LocalGrid(app, NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0))
    messages = list(strategy.configure_train(1, model(SIZE), record_config(), grid))
    replies = grid.send_and_receive(messages)
    strategy._round.asked = {0, 1, 2, 3}
    strategy.aggregate_train(1, [*replies, replies[0]])
    assert strategy.history[0]["rejected"] == 2
    assert strategy.history[0]["spoke"] == 4


def record_config():
    from flwr.app import ConfigRecord

    return ConfigRecord({"lr": 0.1})


def run(policy, wanted=None, rounds=1, inner=None, **options):
    grid = options.pop("grid", None)
    wanted = targets() if wanted is None else wanted
    nodes = {key: options.pop(key) for key in ("late", "broken") if key in options}
    grid = grid or LocalGrid(pulled(wanted, EXAMPLES), NODES, **nodes)
    start = options.pop("start", model(SIZE))
    strategy = Taciturn(inner or flower.FedAvg(fraction_evaluate=0.0), policy, **options)
    return strategy, strategy.start(grid, start, num_rounds=rounds)


def test_errors_and_missing_replies_are_counted_apart_and_left_out():
    wanted = targets()
    strategy, result = run("full", wanted, late=[0], broken=[1, 2])
    row = strategy.history[0]
    assert (row["asked"], row["spoke"], row["silent"]) == (5, 2, 0)
    assert (row["errors"], row["missing"], row["rejected"]) == (2, 1, 0)
    expected = 0.5 * (40 * wanted[3] + 50 * wanted[4]) / 90
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
def test_errors_and_missing_replies_can_be_stood_in_for(inner):
    wanted = targets()
    inner = inner(fraction_evaluate=0.0)
    strategy, result = run("full+zero", wanted, late=[0], broken=[1, 2], absent="stand-in",
                           inner=inner)  # fmt: skip
    assert strategy.history[0]["silent"] == 0
    # Three stand-ins of no step, each with the mean weight of the two others.
    expected = 0.5 * (40 * wanted[3] + 50 * wanted[4]) / (90 + 3 * 45)
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)


def test_a_capped_stand_in_for_the_missing_is_as_long_as_the_others_are():
    wanted = targets()
    strategy, _ = run("full+ou,cap=true", wanted, rounds=4, late=[0], absent="stand-in",
                      inner=Spy(fraction_evaluate=0.0))  # fmt: skip
    stood_in = strategy.inner.seen[-1].content["arrays"]
    sent = flat(strategy._round.sent)
    length = np.linalg.norm(flat(stood_in) - sent)
    assert 0 < length <= strategy.history[-1]["norm_mean"] * (1 + 1e-5)


@pytest.mark.parametrize("policy", ["full", "full+zero", "budget"])
def test_a_round_in_which_nobody_answers_changes_nothing(policy):
    strategy, result = run(policy, late=range(5), absent="stand-in", rounds=2)
    assert not flat(result.arrays).any()
    assert strategy.history[1]["missing"] == 5
    assert "taciturn.norm_mean" in result.train_metrics_clientapp[2]


@pytest.mark.parametrize(("least", "moves"), [(2, True), (3, False)])
def test_with_too_few_clients_the_model_stays(least, moves):
    strategy, result = run("adaptive,k=0+ou", late=[0], broken=[1, 2], min_clients=least)
    assert flat(result.arrays).any() == moves
    # The rule learns from the norms, the stand-in from nothing.
    assert strategy._memory.rule.threshold == pytest.approx(strategy.history[0]["norm_mean"])
    assert (strategy._memory.stand_in.t == 1) == moves


def test_silent_clients_count_towards_the_least_unless_they_are_ignored():
    for stand_in, moves in (("last", True), ("ignore", False)):
        policy = f"adaptive,k=-100+{stand_in}"  # in the first round all speak, in the second none
        _, once = run(policy, min_clients=5)
        strategy, twice = run(policy, min_clients=5, rounds=2)
        assert [row["silent"] for row in strategy.history] == [0, 5]
        assert (flat(twice.arrays) != flat(once.arrays)).any() == moves
    learned, _ = run("fixed:1e9+ou", min_clients=5)
    assert learned._memory.stand_in.t == 1
    ignored, _ = run("fixed:1e9+ou", min_clients=6)
    assert ignored._memory.stand_in.t == 0


def test_a_client_without_the_mod_always_speaks():
    wanted = targets()
    grid = LocalGrid(pulled(wanted, EXAMPLES, mods=[]), NODES)
    strategy, result = run("fixed:1e9+ou", wanted, grid=grid)
    assert strategy.history[0]["spoke"] == NODES
    expected = 0.5 * np.array(EXAMPLES) @ wanted / sum(EXAMPLES)
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)


def layered(examples, silent):
    """Clients with a counter and a head; those in `silent` hardly move their body."""
    app = ClientApp(mods=[speak()])

    @app.train()
    def train(message, context):
        k = context.node_config["partition-id"]
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        trained = record(
            body=arrays["body"] + np.float32(0.01 if k in silent else 1.0),
            head=arrays["head"] + np.float32(k),
            count=arrays["count"] + k,
        )
        metrics = MetricRecord({"num-examples": examples[k]})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
def test_excluded_layers_and_counters_are_averaged_over_all(inner):
    examples = [1, 2, 3, 4]
    app = layered(examples, silent={0, 1})
    start = record(body=np.zeros(4, "f4"), head=np.zeros(2, "f4"), count=np.array([10, 20]))
    strategy = Taciturn(inner(fraction_evaluate=0.0), "fixed:1+zero", exclude=["head"])
    result = strategy.start(LocalGrid(app, 4), start, num_rounds=1)
    assert strategy.history[0]["silent"] == 2
    arrays = {name: array.numpy() for name, array in result.arrays.items()}
    np.testing.assert_allclose(arrays["body"], 0.7)  # 7 of 10 examples moved by 1
    np.testing.assert_allclose(arrays["head"], 2.0)  # Σ n·k / Σ n
    np.testing.assert_array_equal(arrays["count"], [12, 22])
    assert arrays["count"].dtype == np.int64


@pytest.mark.parametrize("array", [
    {"head": np.array([1.0, np.nan], np.float32)}, {"head": np.zeros(3, "f4")},
    {"count": np.array(["1", "2"])},
])  # fmt: skip
def test_what_always_travels_is_checked_too(array):
    app = layered([1, 2, 3, 4], silent={0, 1, BAD})
    start = record(body=np.zeros(4, "f4"), head=np.zeros(2, "f4"), count=np.array([10, 20]))
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "fixed:1+zero", exclude=["head"])
    strategy.start(LocalGrid(app, 4, tamper=bad(put(**array))), start, num_rounds=1)
    assert strategy.history[0]["rejected"] == 1
    assert strategy.history[0]["silent"] == 2


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedMedian])
def test_who_is_left_out_of_the_mean_still_reports_and_sends_what_always_travels(inner):
    """To a strategy that compares replies the silent say nothing."""
    examples, silent = np.array([1, 2, 3, 4]), {0, 1}
    start = record(body=np.zeros(4, "f4"), head=np.zeros(2, "f4"), count=np.array([10, 20]))

    def tamper(node, reply):
        reply.content["metrics"]["own"] = float(node)
        return reply

    grid = LocalGrid(layered(examples.tolist(), silent), 4, tamper=tamper)
    strategy = Taciturn(inner(fraction_evaluate=0.0), "fixed:1+ignore", exclude="head",
                        min_clients=1)  # fmt: skip
    result = strategy.start(grid, start, num_rounds=1)
    everyone = 2.0  # Σ n·k / Σ n
    expected = everyone if inner is flower.FedAvg else (3 * 2 + 4 * 3) / 7
    assert result.train_metrics_clientapp[1]["own"] == pytest.approx(expected)
    expected = everyone if inner is flower.FedAvg else 2.5
    np.testing.assert_allclose(result.arrays["head"].numpy(), expected)


@pytest.mark.parametrize("stand_in", ["ignore", "zero", "last", "ou", "ou,cap=true"])
def test_a_strategy_of_ones_own_weighs_who_speaks_by_chance_as_the_mean_does(stand_in, monkeypatch):
    """Also where the speakers count for more than all: no stand-in has a negative weight."""
    ends, spoke = [], []
    for inner in (flower.FedAvg, Spy):
        monkeypatch.setattr(mod, "_uniform", np.random.default_rng(0).random)
        inner = inner(fraction_evaluate=0.0)
        strategy, result = run(f"optimal:0.5+{stand_in}", rounds=8, inner=inner)
        spoke = [row["spoke"] for row in strategy.history]
        ends.append(flat(result.arrays))
    assert len(set(spoke)) > 2
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-4, atol=1e-6)


def test_a_clients_own_chance_counts(monkeypatch):
    """The mean over both draws of its own rule is the mean of all."""

    def own(message, context, call_next):
        mod = speak("random:0.5" if context.node_id == BAD else None)
        return mod(message, context, call_next)

    def end(draw, mods):
        monkeypatch.setattr(mod, "_uniform", lambda: draw)
        grid = LocalGrid(pulled(targets(), EXAMPLES, mods=mods), NODES)
        _, result = run("optimal:0.5+zero", grid=grid, weight_limit=None, norm_limit=None)
        return flat(result.arrays)

    both = [end(draw, [own]) for draw in (0.0, 0.9)]
    assert (both[0] != both[1]).all()
    np.testing.assert_allclose(np.mean(both, axis=0), end(0.0, None), rtol=1e-5)


def test_the_log_says_what_was_uploaded_and_early_where_little_is_saved(caplog):
    strategy, _ = run("adaptive,k=9+ou", rounds=12)
    total = {key: sum(row[key] for row in strategy.history) for key in strategy.history[0]}
    up, own, full = total["bytes_up"], total["overhead_up"], total["bytes_up_full"]
    assert (
        f"uploaded {up + own:,} of {full:,} bytes ({100 * (up + own) / full:.3g} %)" in caplog.text
    )
    assert f"of which messages {up:,}, Flower's own {own:,}." in caplog.text
    assert caplog.text.count("after 10 rounds, the upload is") == 1
    caplog.clear()
    run("fixed:1e9+zero", np.ones((NODES, 5000), "f4"), rounds=12, start=model(5000))
    assert "the upload is" not in caplog.text


def test_a_reply_has_few_bytes_beside_its_code():
    strategy, _ = run("budget", np.ones((NODES, 5000), "f4"), start=model(5000))
    assert 0 < strategy.history[0]["overhead_up"] / NODES < 400


def written(message):
    return sum(len(item.deflate()) for item in get_all_nested_objects(message).values())


@pytest.mark.parametrize("arrays", [
    {}, {"a": np.random.default_rng(0).random(5)},
    {"a": np.random.default_rng(1).random((700, 900)), "b": np.arange(3), "c": np.array(2.5)},
])  # fmt: skip
def test_sizes_are_those_of_the_bytes_that_flower_writes(arrays):
    content = RecordDict({"metrics": MetricRecord({"num-examples": 3, "list": [1.0, 2.0]})})
    if arrays:
        content["arrays"] = record(**arrays)
    assert byte_counts.message_bytes(Message(content, 3, "train")) == written(
        Message(content, 3, "train")
    )


def test_bytes_are_counted_as_they_cross():
    lengths = np.sort(np.linalg.norm(targets(), axis=1)) / 2
    policy = f"fixed:{lengths[1:3].mean()}+zero"
    _, result = run(policy)
    grid = LocalGrid(pulled(targets(), EXAMPLES), NODES)
    again = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy)
    messages = list(again.configure_train(1, model(SIZE), record_config(), grid))
    replies = grid.send_and_receive(messages)
    up, down = sum(map(written, replies)), sum(map(written, messages))
    full = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full")
    told = list(full.configure_train(1, model(SIZE), record_config(), grid))
    everything = sum(map(written, grid.send_and_receive(told)))
    again.aggregate_train(1, replies)
    row = again.history[0]
    assert 0 < row["silent"] < NODES
    assert row["bytes_up"] + row["overhead_up"] == up
    assert row["bytes_down"] + row["overhead_down"] == down
    assert row["bytes_up_full"] == everything
    for key in ("bytes_up", "overhead_up", "bytes_up_full", "bytes_down", "overhead_down"):
        assert f"taciturn.{key}" in result.train_metrics_clientapp[1]


def test_threads_give_the_same_sums(monkeypatch):
    draws = np.random.default_rng(0)
    sent = [draws.standard_normal(size, np.float32) for size in (70_001, 5, 0, 33_000)]
    trained = [[x + draws.standard_normal(len(x), np.float32) for x in sent] for _ in range(3)]
    examples = [1.0, 2.0, 3.5]
    total, again = (np.full(103_006, np.nan, np.float32) for _ in range(2))
    norms = records.measure(sent, trained, np.float32, examples, total)
    updates = np.stack([np.concatenate(t) - np.concatenate(sent) for t in trained])
    np.testing.assert_allclose(norms, np.linalg.norm(updates, axis=1), rtol=1e-5)
    np.testing.assert_allclose(total, examples @ updates, atol=1e-4)
    monkeypatch.setattr(parallel, "_ALONE", 1)
    monkeypatch.setattr(parallel, "WORKERS", 3)
    several = records.measure(sent, trained, np.float32, examples, again)
    np.testing.assert_allclose(several, norms, rtol=1e-6)
    np.testing.assert_array_equal(again, total)

"""The server's side: what it counts, what it rejects, and what it writes down."""

import math
import tracemalloc

import federation as fed
import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from taciturn.core import arrays as core_arrays
from taciturn.federation import client, layout
from taciturn.federation.protocol import Report
from taciturn.federation.replies import Reply
from taciturn.flower import Taciturn, protocol, records, speak


def put(**arrays):
    return lambda content: content["arrays"].update(fed.record(**arrays))


def said(code=None, **numbers):
    """Other numbers in the report, or what a function makes of the code."""
    return lambda content: fed.restate(content, code and code(fed.said(content).code), **numbers)


def written_as(data, dtype="float32", kind="numpy.ndarray"):
    """An array with these bytes, or with what a function makes of the node's own."""

    def tamper(content):
        found = data(content["arrays"]["b"].data) if callable(data) else data
        content["arrays"]["b"] = Array(dtype, (6,), kind, found)

    return tamper


def headed(header):
    """An array whose header is this text: NumPy reads it as Python."""
    text = header.encode() + b"\n"
    return written_as(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24))


def swapped(content):
    arrays, metrics = content.pop("arrays"), content.pop("metrics")
    content["arrays"], content["metrics"] = metrics, arrays


def scaled(value):
    return said(lambda code: code[:-4] + np.float32(value).tobytes())


def in_array(code: Array):
    """Puts this array in the place of the code."""

    def tamper(content):
        fed.restate(content, b"")
        content["arrays"][protocol.CODE] = code

    return tamper


def in_a_code(content):
    """The right update, as a code that nobody asked for."""
    del content["arrays"]["a"], content["arrays"]["b"]
    fed.restate(content, UPDATE.tobytes())


WANTED = fed.targets(size=fed.SIZE + 4)
UPDATE = np.float32(0.5) * WANTED[fed.BAD, : fed.SIZE]
START = fed.record(**fed.numpy(fed.model()), head=np.zeros(2, "f4"), count=np.array([10, 20]))
GARBAGE = {
    "adaptive+ou": {
        "a header that is half an expression": headed("("),
        "a header nested too deeply": headed("-" * 3900 + "1"),
        "a header of a shape beyond all": headed(
            f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**22},)}}"
        ),
        "metrics with the name of the arrays": swapped,
        "no arrays of that name": lambda c: c["arrays"].pop("a"),
        "an array too many": put(c=np.zeros(2, np.float32)),
        "another shape": put(b=np.zeros(3, np.float32)),
        "text for numbers": put(b=np.array(["x"] * 6)),
        "NaN": put(b=np.full(6, np.nan, np.float32)),
        "overflow": put(b=np.full(6, 3e38, np.float32)),
        "whole numbers for weights": put(b=np.ones(6, np.int64)),
        "NaN in what always travels": put(head=np.array([1.0, np.nan], "f4")),
        "another shape of what always travels": put(head=np.zeros(3, "f4")),
        # A float64 that is finite is none as float32, and optimisers square what they are given.
        "overflow of what always travels": put(head=np.full(2, 1e300)),
        "a head that is too long": put(head=np.full(2, 1e20)),
        "text for a counter": put(count=np.array(["1", "2"])),
        "a counter that is NaN": put(count=np.array([1.0, np.nan])),
        "a norm that does not fit": said(norm=1e-3),
        "a norm that is NaN": said(norm=math.nan),
        "a norm below zero": said(norm=-1.0),
        "a norm beyond float32": said(norm=1e39),
        "half a report": fed.claim(protocol.REPORT, b"\x02" + bytes(8)),
        "a number for a report": fed.claim(protocol.REPORT, 1.0),
        "text for a metric": fed.claim("train_loss", "low"),
        "a list for a metric": fed.claim("train_loss", [1.0, 2.0]),
        "a metric that is not finite": fed.claim("train_loss", math.nan),
        "no examples": fed.claim("num-examples", 0),
        "more examples than there are": fed.claim("num-examples", 1e39),
        "hardly an example": fed.claim("num-examples", 1e-39),
        "a list of examples": fed.claim("num-examples", [1]),
        "no count": lambda c: c["metrics"].pop("num-examples"),
        "other metrics": fed.claim("more", 1.0),
        "no metrics": lambda c: c.pop("metrics"),
        "two records": lambda c: c.update({"more": fed.record(a=np.zeros(1))}),
        "a dtype that is none": written_as(lambda data: data, "float31"),
        "objects": written_as(Array(np.zeros(6)).data.replace(b"<f8", b"|O8"), "object"),
        "broken bytes": written_as(b"garbage"),
        "cut bytes": written_as(lambda data: data[:-1]),
        "another library's bytes": written_as(lambda data: data, kind="pickle"),
        "a lie about the shape": written_as(Array(np.zeros(9, "f4")).data),
    },
    "full+eden:1": {
        "a code cut short": said(lambda code: code[:-1]),
        "no code": said(lambda code: b""),
        "a code that is too long": said(lambda code: code + b"0"),
        "a NaN scale": scaled(np.nan),
        "a huge scale": scaled(3e38),
        "a scale that does not fit the norm": scaled(1e3),
        "a norm that does not fit the code": said(norm=1e-3),
        # Without feedback, an encoded norm that fits is not believed.
        "a tiny norm and another": said(norm=1e-9, encoded_norm=float(np.linalg.norm(UPDATE))),
        "weights beside the code": put(**fed.numpy(fed.model())),
        "an array of other numbers": in_array(Array(np.zeros(42, "f4"))),
        "an array of broken bytes": in_array(Array("uint8", (42,), "numpy.ndarray", b"garbage")),
    },
    "full": {"a code that nobody asked for": in_a_code},
    "optimal:0.5+zero": {"a chance of 0": said(own=0.0)},
}
KINDS = [
    pytest.param(policy, change, id=kind)
    for policy, kinds in GARBAGE.items()
    for kind, change in kinds.items()
]


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
@pytest.mark.parametrize(("policy", "change"), KINDS)
def test_garbage_is_rejected_and_the_round_goes_on(policy, change, inner, caplog):
    """As if the node had failed."""

    def play(**who):
        strategy, result, _ = fed.run(policy, 1, inner, WANTED, start=START, exclude="head", **who)
        return strategy.history[0], fed.flat(result.arrays)

    row, moved = play(tamper=fed.bad(change))
    assert (row["rejected"], row["spoke"]) == (1, fed.NODES - 1)
    assert f"the reply of node {fed.BAD} is rejected" in caplog.text
    left_out, expected = play(broken=[fed.BAD])
    np.testing.assert_array_equal(moved, expected)
    assert row["norm_mean"] == left_out["norm_mean"]


def test_a_loss_below_0_is_rejected_where_a_power_of_it_weighs():
    inner = flower.QFedAvg(0.5, fraction_evaluate=0.0)
    strategy, _, _ = fed.run("full", 1, inner, tamper=fed.bad(fed.claim("train_loss", -1.0)))
    assert (strategy.history[0]["rejected"], strategy.history[0]["spoke"]) == (1, fed.NODES - 1)


def test_how_likely_a_node_was_to_speak_is_the_rules_word_and_not_its_own(monkeypatch):
    ends = []
    for tamper in (None, fed.bad(lambda content: fed.restate(content, probability=1e-6))):
        monkeypatch.setattr(client, "_uniform", np.random.default_rng(1).random)
        strategy, result, _ = fed.run("optimal:0.5+zero", 4, tamper=tamper, weight_limit=None)
        ends.append(fed.flat(result.arrays))
        assert strategy.nodes[f"{fed.BAD}"].spoke > 0
        assert min(row["spoke"] for row in strategy.history) < fed.NODES
    np.testing.assert_array_equal(*ends)


def test_sums_do_not_depend_on_who_answers_first():
    class Reversed(fed.LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            return super().send_and_receive(messages, timeout=timeout)[::-1]

    for policy in ("full", "full+eden:1"):
        app = fed.pulled(fed.targets())
        grids = (fed.LocalGrid(app, fed.NODES), Reversed(app, fed.NODES))
        ends = [fed.flat(fed.run(policy, 3, grid=grid)[1].arrays) for grid in grids]
        np.testing.assert_array_equal(*ends)


def test_who_was_not_asked_or_had_answered_is_rejected():
    grid = fed.LocalGrid(fed.pulled(fed.targets()), fed.NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0))
    messages = list(strategy.configure_train(1, fed.model(), ConfigRecord(), grid))
    replies = grid.send_and_receive(messages)
    strategy._round.asked = set("0123")
    strategy.aggregate_train(1, [*replies, replies[0]])
    assert strategy.history[0]["rejected"] == 2
    assert strategy.history[0]["spoke"] == 4


@pytest.mark.parametrize(("policy", "absent"), [("full", "ignore"), ("full+zero", "stand-in")])
@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
def test_errors_and_missing_replies_are_counted_apart_and_can_be_stood_in_for(
    policy, absent, inner
):
    wanted = fed.targets()
    strategy, result, _ = fed.run(policy, 1, inner, late=[0], broken=[1, 2], absent=absent)
    row = strategy.history[0]
    assert (row["asked"], row["spoke"], row["silent"]) == (5, 2, 0)
    assert (row["errors"], row["missing"], row["rejected"]) == (2, 1, 0)
    # Three stand-ins of no step, each with the mean weight of the two others.
    total = 90 if absent == "ignore" else 90 + 3 * 45
    expected = 0.5 * (40 * wanted[3] + 50 * wanted[4]) / total
    np.testing.assert_allclose(fed.flat(result.arrays), expected, atol=1e-6)


def test_a_capped_stand_in_for_the_missing_is_as_long_as_the_others_are():
    strategy, _, _ = fed.run("full+ou,cap=true", 4, fed.Spy, late=[0], absent="stand-in")
    stood_in = strategy.inner.seen[-1].content["arrays"]
    length = np.linalg.norm(fed.flat(stood_in) - fed.flat(fed.record(**strategy._round.sent)))
    assert 0 < length <= strategy.history[-1]["norm_mean"] * (1 + 1e-5)


@pytest.mark.parametrize("policy", ["full+zero", "budget"])
def test_a_round_in_which_nobody_answers_changes_nothing(policy):
    strategy, result, _ = fed.run(policy, 2, late=range(5), absent="stand-in")
    assert not fed.flat(result.arrays).any()
    assert strategy.history[1]["missing"] == 5
    assert "taciturn.norm_mean" in result.train_metrics_clientapp[2]


@pytest.mark.parametrize(
    ("stand_in", "least", "moves"),
    [("ou", 5, True), ("ou", 6, False), ("ignore", 3, True), ("ignore", 4, False)],
)
def test_with_too_few_clients_the_model_stays(stand_in, least, moves):
    """The silent count towards the least unless they are ignored; three of five speak."""
    lengths = np.sort(np.linalg.norm(fed.targets(), axis=1)) / 2
    strategy, result, _ = fed.run(f"fixed:{lengths[1:3].mean()}+{stand_in}", min_clients=least)
    assert (strategy.history[0]["spoke"], strategy.history[0]["silent"]) == (3, 2)
    assert fed.flat(result.arrays).any() == moves
    assert stand_in == "ignore" or strategy.memory.stand_in.t == moves


def test_a_round_of_too_few_teaches_the_rule_alone():
    strategy, _, _ = fed.run("adaptive,k=0+ou", late=[0], broken=[1, 2], min_clients=3)
    assert strategy.memory.rule.threshold == pytest.approx(strategy.history[0]["norm_mean"])
    assert strategy.memory.stand_in.t == 0


@pytest.mark.parametrize(
    ("inner", "stand_in"),
    [
        (flower.FedAvg, "zero"),
        (fed.Spy, "zero"),
        (flower.FedAvg, "ignore"),
        (flower.FedMedian, "zero"),
    ],
)
def test_excluded_layers_counters_and_metrics_are_averaged_over_all(inner, stand_in):
    """To a strategy that compares replies the silent say nothing."""

    def step(k, arrays):  # two hardly move their body
        moved = {name: array + array.dtype.type(k) for name, array in arrays.items()}
        moved["body"] = arrays["body"] + np.float32(0.01 if k < 2 else 1.0)
        return moved, {"num-examples": k + 1, "own": float(k)}

    start = fed.record(body=np.zeros(4, "f4"), head=np.zeros(2, "f4"), count=np.array([10, 20]))
    options = {"start": start, "exclude": ["head"], "min_clients": 1}
    grid = fed.LocalGrid(fed.app_of(step), 4)
    strategy, result, _ = fed.run(f"fixed:1+{stand_in}", 1, inner, grid=grid, **options)
    assert strategy.history[0]["silent"] == 2
    arrays, own = fed.numpy(result.arrays), result.train_metrics_clientapp[1]["own"]
    assert arrays["count"].dtype == np.int64
    if inner is flower.FedMedian:
        assert own == pytest.approx((3 * 2 + 4 * 3) / 7)
        np.testing.assert_allclose(arrays["head"], 2.5)
        return
    # Seven of ten examples moved by 1.
    np.testing.assert_allclose(arrays["body"], 0.7 if stand_in == "zero" else 1.0)
    np.testing.assert_allclose(arrays["head"], 2.0)  # Σ n·k / Σ n
    np.testing.assert_array_equal(arrays["count"], [12, 22])
    assert own == pytest.approx(2.0)


@pytest.mark.parametrize("stand_in", ["ignore", "zero", "ou,cap=true"])
def test_a_strategy_of_ones_own_weighs_who_speaks_by_chance_as_the_mean_does(stand_in, monkeypatch):
    """Also where the speakers count for more than all: no stand-in has a negative weight."""
    ends, spoke = [], []
    for inner in (flower.FedAvg, fed.Spy):
        monkeypatch.setattr(client, "_uniform", np.random.default_rng(0).random)
        strategy, result, _ = fed.run(f"optimal:0.5+{stand_in}", 8, inner)
        spoke = [row["spoke"] for row in strategy.history]
        ends.append(fed.flat(result.arrays))
    assert len(set(spoke)) > 2
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-4, atol=1e-6)


def test_a_clients_own_chance_counts(monkeypatch):
    """The mean over both draws of its own rule is the mean of all."""

    def own(message, context, call_next):
        mod = speak("random:0.5" if context.node_id == fed.BAD else None)
        return mod(message, context, call_next)

    def end(draw, mods):
        monkeypatch.setattr(client, "_uniform", lambda: draw)
        _, result, _ = fed.run("optimal:0.5+zero", mods=mods, weight_limit=None, norm_limit=None)
        return fed.flat(result.arrays)

    both = [end(draw, [own]) for draw in (0.0, 0.9)]
    assert (both[0] != both[1]).all()
    np.testing.assert_allclose(np.mean(both, axis=0), end(0.0, None), rtol=1e-5)


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
def test_of_two_nodes_with_different_metrics_both_count(inner, caplog):
    def tamper(node, reply):
        reply.content["metrics"][f"own-{node}"] = 1.0
        return reply

    wanted = fed.targets(nodes=2)
    strategy, result, _ = fed.run("full", inner=inner, wanted=wanted, tamper=tamper)
    assert (strategy.history[0]["spoke"], strategy.history[0]["rejected"]) == (2, 0)
    assert result.train_metrics_clientapp[1]["train_loss"] == pytest.approx(5 / 3)
    assert "own-0" not in result.train_metrics_clientapp[1]
    assert "nodes report different metrics; ['num-examples', 'train_loss'] are kept" in caplog.text


@pytest.mark.parametrize("wrong", [{"accuracy": math.nan}, {"more": 1.0}, {"num-examples": 0}])
def test_no_evaluation_stops_the_run(wrong):
    def tamper(content):
        if "arrays" not in content:
            content["metrics"].update(wrong)

    strategy, _, _ = fed.run("full", 2, flower.FedAvg(), tamper=fed.bad(tamper), broken=[0])
    assert [row["accuracy"] for row in strategy.history] == [0.5, 0.5]


class Exploding(flower.FedAvg):
    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round == 2:
            arrays = fed.record(a=arrays["a"].numpy(), b=np.full(arrays["b"].shape, 1e300))
        return arrays, metrics


def test_a_step_that_is_not_finite_in_the_models_type_is_not_taken(caplog):
    ends = [fed.flat(fed.run("full", rounds, Exploding)[1].arrays) for rounds in (1, 2)]
    np.testing.assert_array_equal(*ends)
    assert "Exploding made weights of round 2 that are not finite, first in `b`" in caplog.text
    # What a code says of a large update is larger here and there: so is their mean.
    wanted = np.full((fed.NODES, 300), 6e4, np.float16)
    grid = fed.LocalGrid(fed.pulled(wanted, rate=1.0), fed.NODES)
    start = fed.record(w=np.zeros(300, np.float16))
    strategy, result, _ = fed.run("full+eden:1", grid=grid, start=start)
    assert strategy.history[0]["spoke"] == fed.NODES
    assert not fed.flat(result.arrays).any()
    assert "FedAvg made weights of round 1 that are not finite, first in `w`" in caplog.text


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [("int64", [9.3e18, -9.3e18, 2.6], [2**63 - 1, -(2**63), 3]),
     ("uint8", [256.0, -1.0, 254.6], [255, 0, 255]),
     ("uint64", [2e19, -1.0, 7.0], [2**64 - 1, 0, 7]), ("bool", [0.4, 0.6, 1.0], [0, 1, 1])],
)  # fmt: skip
def test_counters_stop_at_the_most_that_they_hold(dtype, values, expected):
    found = layout.cast(np.array(values), np.dtype(dtype))
    assert found.dtype == dtype
    assert found.tolist() == expected


def written(message):
    return sum(len(item.deflate()) for item in get_all_nested_objects(message).values())


def test_bytes_are_counted_as_they_cross():
    wanted, fulls = fed.targets(size=300), []
    lengths = np.sort(np.linalg.norm(wanted, axis=1)) / 2
    for policy in (f"fixed:{lengths[1:3].mean()}+zero", "full+eden:1", "full"):
        grid = fed.LocalGrid(fed.pulled(wanted), fed.NODES)
        strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy)
        messages = list(strategy.configure_train(1, fed.model(300), ConfigRecord(), grid))
        replies = grid.send_and_receive(messages)
        up = sum(map(written, replies))
        strategy.aggregate_train(1, replies)
        row = strategy.history[0]
        assert row["bytes_up"] + row["overhead_up"] == up
        assert row["bytes_down"] + row["overhead_down"] == sum(map(written, messages))
        assert (0 < row["silent"] < fed.NODES) == policy.startswith("fixed")
        if "eden" in policy:
            assert row["bytes_up"] == fed.NODES * strategy.policy.codec.nbytes(300)
        fulls.append(row["bytes_up_full"])
    assert fulls[0] == fulls[2] == up
    assert abs(fulls[1] - up) < 10 * fed.NODES


def test_threads_give_the_same_sums(monkeypatch):
    draws = np.random.default_rng(0)
    sent = [draws.standard_normal(size, np.float32) for size in (70_001, 5, 0, 33_000)]
    trained = [[x + draws.standard_normal(len(x), np.float32) for x in sent] for _ in range(3)]
    examples = [1.0, 2.0, 3.5]
    total, again = (np.full(103_006, np.nan, np.float32) for _ in range(2))
    norms = layout.measure(sent, trained, examples, total)
    updates = np.stack([np.concatenate(t) - np.concatenate(sent) for t in trained])
    np.testing.assert_allclose(norms, np.linalg.norm(updates, axis=1), rtol=1e-5)
    np.testing.assert_allclose(total, examples @ updates, atol=1e-4)
    monkeypatch.setattr(core_arrays, "_ALONE", 1)
    monkeypatch.setattr(core_arrays, "WORKERS", 3)
    several = layout.measure(sent, trained, examples, again)
    np.testing.assert_allclose(several, norms, rtol=1e-6)
    np.testing.assert_array_equal(again, total)


def test_what_is_around_a_code_takes_at_most_400_bytes():
    """In Flower's simulation, with the metrics of the transformer's example and the longest ids."""
    request = Message(RecordDict(), dst_node_id=2**64 - 1, message_type="train", group_id="45")
    ids = {"_run_id": 2**64 - 1, "_src_task_id": 2**64 - 1, "_message_id": "0" * 36}
    request.metadata.__dict__.update(ids)
    metrics = MetricRecord({"train_loss": 4.1, "num-examples": 60})
    reply, form = RecordDict({"metrics": metrics}), protocol.form_of("metrics", metrics)
    protocol.write_report(reply, Report(0.2, 0.2), bytes(4000), form)
    assert records.message_bytes(Message(reply, reply_to=request)) <= 4400
    read = Reply("")
    protocol.read_reply(read, reply, form)
    assert (read.name, read.metrics, read.code) == ("metrics", dict(metrics), bytes(4000))


def test_names_of_metrics_travel_once():
    strategy, _, _ = fed.run("full+eden:1", 2)
    first, second = (row["overhead_up"] for row in strategy.history)
    assert second < first - fed.NODES * len("metrics" + "num-examples" + "train_loss")
    assert [row["train_loss"] for row in strategy.history] == [3 + 2 / 3] * 2


def test_the_new_model_is_written_once():
    arrays = fed.record(**{f"layer{i}": np.ones(1 << 16, "f4") for i in range(16)})
    update = np.ones(1 << 20, "f4")
    known = layout.Layout.of(records.arrays_of(arrays))
    tracemalloc.start()
    moved = records.moved(known, arrays, update)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * 4 * (1 << 20)
    assert all((array.numpy() == 2).all() for array in moved.values())

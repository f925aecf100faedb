"""The mod and the wrapper in one process, round for round against the plain loop."""

import logging
from dataclasses import replace

import federation as fed
import flwr.server.strategy as legacy
import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import strategy as flower
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn import TaciturnError, track
from taciturn.core.codecs import Form, from_bytes, to_bytes
from taciturn.core.policy import RULES, parse
from taciturn.core.rules import Rule, Threshold
from taciturn.core.tally import OVERHEAD
from taciturn.federation import aggregation, client
from taciturn.federation.protocol import Request
from taciturn.federation.replies import Reply
from taciturn.flower import Taciturn, compatibility, protocol, speak

ALONE = {"fraction_evaluate": 0.0}
SIZE = 300
TARGETS = fed.targets(size=SIZE)
CODED, FEEDBACK = "full+eden:1", "full+top_k:0.05,feedback=true"
LENGTHS = np.sort(0.5 * np.linalg.norm(fed.targets(), axis=1))  # of the first updates
TWO_SILENT = f"fixed:{LENGTHS[1:3].mean()}+ou"
CODECS = ["float16", "bfloat16", "quantize:4", "eden:1", "eden:0.3", "top_k:0.1",
          "sparse_ternary:0.2", "peaks:0.2", "peaks:100B"]  # fmt: skip
BUDGETS = {
    "budget": 1200 + OVERHEAD,  # the model in float32, which is shorter than 8 kB
    "budget:12%": 0.12 * (1200 + OVERHEAD),
    "budget:900B": 900 / fed.NODES,
    "budget:150B,per=client": 150,
    "budget:4kB,per=run": 1000 / fed.NODES,
}
POLICIES = [
    "full", "adaptive,k=0+ou", "adaptive,k=-0.5+last", "adaptive,k=0+ignore",
    "adaptive,k=0+ou,mode=paper", "adaptive,k=0+ou,cap=true", *BUDGETS,
    *(f"{rest}+{codec}" for rest in ("full", "adaptive,k=0+ou") for codec in CODECS),
    FEEDBACK, "full+sparse_ternary:0.2,feedback=true",
    "adaptive,k=0+ignore+top_k:0.05,feedback=true",
    "adaptive,k=0+ignore+sparse_ternary:0.2,feedback=true",
]  # fmt: skip


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_model_is_that_of_the_plain_loop(policy, inner, monkeypatch):
    """And so is what a codec leaves out: it stays on the node, and silence leaves it alone."""
    monkeypatch.setattr(client, "_uniform", lambda: 0.0)  # who may speak does, as in the loop
    wanted = TARGETS
    if "cap" in policy:  # what stands in is then longer than the short updates
        wanted = np.linspace(0.2, 2, fed.NODES, dtype="f4")[:, None] * wanted[0]
    # Of two numbers that float16 may round to, the two may take different ones.
    rounds, close = (4, 1e-5) if "float16" in policy else (6, 1e-6)
    state, kept, spoke = fed.plain_loop(policy, wanted, rounds)
    # The loop has no limits.
    strategy, result, grid = fed.run(policy, rounds, inner, wanted, norm_limit=None)
    np.testing.assert_allclose(fed.flat(result.arrays), state.weights, rtol=close, atol=close)
    assert [row["spoke"] for row in strategy.history] == spoke
    assert [row["rejected"] for row in strategy.history] == [0] * rounds
    assert "adaptive" not in policy or min(spoke) < fed.NODES  # or nothing was tested
    for node, residual in enumerate(kept if "feedback" in policy else ()):
        found = grid.contexts[node].state["taciturn.residual"]["next"].numpy()
        np.testing.assert_allclose(found, residual, atol=1e-4)
    counted = parse(policy).stand_in.counts and spoke[-1] < fed.NODES
    if inner is fed.Spy and spoke[-1] + counted:  # it must see complete replies
        seen = [reply.content for reply in strategy.inner.seen]
        assert len(seen) == spoke[-1] + counted
        assert all(list(content["arrays"]) == ["a", "b"] for content in seen)
        assert all(set(content["metrics"]) == {"num-examples", "train_loss"} for content in seen)
        total = sum(content["metrics"]["num-examples"] for content in seen)
        assert total == sum(fed.EXAMPLES if counted else fed.EXAMPLES[-spoke[-1] :])


def stepping(inner):
    """A step for `plain_loop`: that of a strategy which is given complete replies."""
    arrays = fed.model()

    def step(t, complete):
        nonlocal arrays
        grid = fed.LocalGrid(fed.pulled(complete, rate=1.0, mods=[]), fed.NODES)
        replies = grid.send_and_receive(inner.configure_train(t, arrays, ConfigRecord(), grid))
        found = fed.numpy(inner.aggregate_train(t, replies)[0])
        arrays = fed.record(**{name: array.astype("f4") for name, array in found.items()})
        return fed.flat(arrays)

    return step


@pytest.mark.parametrize(
    ("kind", "options"),
    [(flower.FedProx, {"proximal_mu": 0.1}),
     (flower.FedAvgM, {"server_learning_rate": 0.8, "server_momentum": 0.5}),
     (flower.FedAdam, {}), (flower.FedYogi, {}), (flower.FedAdagrad, {}),
     (flower.QFedAvg, {"client_learning_rate": 0.5})],
)  # fmt: skip
def test_strategies_that_average_see_each_silent_client_through_its_stand_in(
    kind, options, monkeypatch
):
    monkeypatch.setattr("gc.collect", lambda: 0)  # QFedAvg asks for it at every reply
    inner, policy = kind(**options, **ALONE), "adaptive,k=0+ou"
    state, _, _ = fed.plain_loop(policy, fed.targets(), 6, stepping(kind(**options, **ALONE)))
    strategy, result, _ = fed.run(policy, 6, inner)
    assert 0 < strategy.history[-1]["silent"] < fed.NODES
    np.testing.assert_allclose(fed.flat(result.arrays), state.weights, atol=2e-6)
    mean = np.average([1, 2, 3, 4, 5], weights=fed.EXAMPLES)
    assert result.train_metrics_clientapp[6]["train_loss"] == pytest.approx(mean)
    assert {array.dtype for array in result.arrays.values()} == {"float32"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(flower.Krum, {}), (flower.MultiKrum, {"num_nodes_to_select": 2}), (flower.Bulyan, {}),
     (flower.FedMedian, {}), (flower.FedTrimmedAvg, {"beta": 0.4})],
)  # fmt: skip
def test_strategies_that_compare_replies_never_see_a_stand_in(kind, options):
    inner = type(kind.__name__, (fed.Recorded, kind), {})(**ALONE, **options)
    strategy, result, _ = fed.run(TWO_SILENT, 1, inner)
    assert strategy.history[0]["silent"] == 2
    assert len(inner.seen) == 3
    assert str(strategy.policy) == f"fixed:{LENGTHS[1:3].mean()}+ignore"
    robust = Taciturn(kind(**options), "adaptive,k=0+ou").policy
    assert str(robust) == "adaptive,k=0,robust=true+ignore"
    shortest = np.argsort(np.linalg.norm(fed.targets(), axis=1))[:2]
    grid = fed.LocalGrid(fed.pulled(fed.targets(), mods=[]), fed.NODES, late=shortest)
    plain = kind(**ALONE, **options).start(grid, fed.model(), num_rounds=1)
    np.testing.assert_allclose(fed.flat(result.arrays), fed.flat(plain.arrays), atol=1e-6)


def test_a_strategy_of_ones_own_can_be_said_to_compare():
    strategy, _, _ = fed.run("adaptive,k=0+ou", 8, fed.Spy, compares=True)
    assert len(strategy.inner.seen) < fed.NODES - 1


ASKED = 8


@pytest.mark.parametrize(
    ("inner", "replies"),
    [(flower.Bulyan(), 3), (flower.Bulyan(num_malicious_nodes=2), 11),
     (flower.Krum(num_malicious_nodes=1), 5), (flower.MultiKrum(num_nodes_to_select=5), 3),
     (flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5), 6),
     (flower.FedTrimmedAvg(beta=0.3), 4), (flower.FedTrimmedAvg(beta=1 / 49), 50),
     (flower.FedTrimmedAvg(beta=0.0), 1), (flower.FedMedian(), 1)],
)  # fmt: skip
def test_what_a_strategy_needs(inner, replies):
    assert compatibility.needs(inner) == replies


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_the_trimmed_mean_trims_as_many_as_the_strategy_bears(bad):
    for replies in range(2, 40):
        trimmed = compatibility.trimmed_mean(flower.Bulyan(num_malicious_nodes=bad), replies)
        assert int(trimmed.beta * replies) == min(max(bad, 1), (replies - 1) // 2)


def few(inner, speakers, policy="fixed:{}+ou"):
    """The first step where the longest so many updates are spoken, the very longest of them bad."""
    wanted = np.random.default_rng(3).standard_normal((ASKED, 6)).astype(np.float32)
    wanted *= np.arange(1, ASKED + 1)[:, None] / np.linalg.norm(wanted, axis=1, keepdims=True)
    wanted[-1] *= 1e6
    policy = policy.format((ASKED - speakers + 0.5) / 2)
    strategy, result, _ = fed.run(policy, 1, inner, wanted, examples=(20,) * ASKED)
    assert strategy.history[0]["spoke"] == speakers
    spoke = np.where(np.arange(ASKED)[:, None] >= ASKED - speakers, 0.5 * wanted, 0.0)
    return fed.flat(result.arrays), spoke, result.train_metrics_clientapp[1]


@pytest.mark.parametrize(
    ("kind", "options", "speakers", "trimmed"),
    [(flower.Bulyan, {"num_malicious_nodes": 1}, 6, 1),
     (flower.MultiKrum, {"num_malicious_nodes": 1, "num_nodes_to_select": 5}, 5, 1),
     (flower.FedTrimmedAvg, {"beta": 0.2}, 4, 1),
     (flower.Krum, {"num_malicious_nodes": 2}, 6, 2)],
)  # fmt: skip
def test_with_too_few_speakers_a_trimmed_mean_takes_its_place(
    kind, options, speakers, trimmed, caplog
):
    def count(records, weighted_by):  # a function of the user's sees the silent, too, and each once
        return MetricRecord({"clients": len(records)})

    inner = kind(train_metrics_aggr_fn=count, **ALONE, **options)
    moved, spoke, metrics = few(inner, speakers)
    assert (metrics["clients"], inner.train_metrics_aggr_fn) == (ASKED, count)
    expected = np.sort(spoke, axis=0)[trimmed : ASKED - trimmed].mean(0)
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)
    needed = compatibility.needs(kind(**options))
    assert f"{speakers} spoke in round 1, and {kind.__name__} needs {needed} replies" in caplog.text
    assert f"Replies that {kind.__name__} needs: {needed}" in caplog.text


def test_where_nobody_may_be_silent_a_strategy_does_as_in_plain_flower(caplog):
    moved, _, _ = few(flower.Bulyan(num_malicious_nodes=3, **ALONE), ASKED, "full")
    np.testing.assert_array_equal(moved, fed.flat(fed.model(6)))  # it skips the round
    assert "takes its place" not in caplog.text


def test_the_default_is_a_budget_and_everyone_where_replies_are_compared():
    assert str(Taciturn(flower.FedAvg()).policy) == "budget"
    assert str(Taciturn(flower.FedMedian()).policy) == "full+ignore+eden:3"


@pytest.mark.parametrize("side", ["ServerSide", "ClientSide"])
@pytest.mark.parametrize("clipping", ["Fixed", "Adaptive"])
def test_central_privacy_is_refused_inside_and_outside(clipping, side):
    wrap = getattr(flower, name := f"DifferentialPrivacy{side}{clipping}Clipping")
    arguments = (0.1, 1.0, fed.NODES) if clipping == "Fixed" else (0.1, fed.NODES)
    sentence = f"{name} cannot be combined with Taciturn: its noise"
    with pytest.raises(TaciturnError, match=sentence):
        Taciturn(wrap(flower.FedAvg(), *arguments))
    outside = wrap(Taciturn(flower.FedAvg(**ALONE)), *arguments)
    grid = fed.LocalGrid(fed.pulled(fed.targets()), fed.NODES)
    with pytest.raises(TaciturnError, match=sentence):
        outside.start(grid, fed.model(), num_rounds=1)
    assert grid.received == []


class Starting(flower.FedAvg):
    def start(self, *arguments, **options):
        return super().start(*arguments, **options)


@pytest.mark.parametrize(
    ("inner", "options", "message"),
    [("FedAvg", {}, "must be a Flower Strategy, got 'FedAvg'"),
     (legacy.FedAvg(), {}, r"`from flwr.serverapp.strategy import FedAvg` is"),
     (Starting(), {}, "Starting has a `start` of its own"),
     (flower.FedXgbBagging(), {}, "collects trees: there is no mean"),
     (flower.FedXgbCyclic(), {}, "collects trees: there is no mean"),
     (None, {"absent": "drop"}, "`absent` must be ignore or stand-in, got 'drop'"),
     (None, {"min_clients": 0}, "`min_clients` must be at least 1, got 0"),
     (None, {"policy": "adaptve"}, "Did you mean `adaptive`"),
     (None, {"policy": "adaptive+own"}, "`own` needs an update of every node"),
     (None, {"weight_limit": 0.5}, "`weight_limit`"), (None, {"seed": -1}, "`seed`"),
     (None, {"norm_limit": "much"}, "`norm_limit`"),
     (None, {"kept_messages": -1}, "`kept_messages` must be"),
     (None, {"track": "mlflw"}, "no tracker called `mlflw`")],
)  # fmt: skip
def test_what_cannot_be_is_refused(inner, options, message):
    with pytest.raises(TaciturnError, match=message):
        Taciturn(inner or flower.FedAvg(), **options)


def test_a_model_without_weights_is_refused():
    with pytest.raises(TaciturnError, match="floating-point arrays that are not excluded"):
        fed.run(exclude="*")


def test_privacy_on_the_client_works_when_the_mod_is_first_and_is_noticed_when_it_is_not(caplog):
    private, noiseless = LocalDpMod(0.5, 1e-4, 1.0, 1e-5), LocalDpMod(0.1, 0.0, 1.0, 1e-5)
    strategy, _, _ = fed.run("full", 2, mods=[speak(), private])
    assert [row["spoke"] for row in strategy.history] == [fed.NODES, fed.NODES]
    assert strategy.history[0]["norm_mean"] == pytest.approx(0.5, rel=0.01)
    strategy, result, _ = fed.run("full", mods=[noiseless, speak()])
    assert strategy.history[0]["rejected"] == fed.NODES
    assert not fed.flat(result.arrays).any()
    assert "must be the first of its mods" in caplog.text


@pytest.mark.parametrize("inner", [flower.FedAvg, flower.FedAdam, flower.FedMedian])
def test_flower_counts_replies_once_and_functions_of_ones_own_see_a_record_per_client(
    inner, caplog
):
    seen = []

    def largest(contents, key):
        seen.append(tuple(content["metrics"][key] for content in contents))
        return MetricRecord({"worst": max(c["metrics"]["train_loss"] for c in contents)})

    inner = inner(**ALONE, train_metrics_aggr_fn=largest)
    strategy, result, _ = fed.run(TWO_SILENT, 1, inner)
    assert strategy.history[0]["silent"] == 2
    assert seen == [fed.EXAMPLES]
    assert result.train_metrics_clientapp[1]["worst"] == strategy.history[0]["train_worst"] == 5.0
    assert inner.train_metrics_aggr_fn is largest
    fed.run(TWO_SILENT, 1, inner, late=[0], broken=[1])
    lines = [line.partition("Received ")[2] for line in caplog.messages if "results and" in line]
    assert lines == ["5 results and 0 failures", "3 results and 1 failures"]


def test_a_tracker_gets_every_round(tmp_path, monkeypatch):
    got, closed = [], []
    opened = track.Run(got.extend, lambda: closed.append(True))
    monkeypatch.setattr(track, "require", lambda module, extra: pytest)  # any module
    monkeypatch.setitem(track._OPEN, "mlflow", lambda *_: opened)
    strategy, result, _ = fed.run(
        "adaptive,k=0+ou", 3, track="mlflow", folder=tmp_path,
        evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": t / 10}),
    )  # fmt: skip
    assert closed == [True]
    for row in strategy.history:
        seen = {name: x for t, figures in got if t == row["round"] for name, x in figures.items()}
        known = {key: value for key, value in row.items() if key != "round" and value == value}
        assert seen == pytest.approx(known)
    row, metrics = strategy.history[2], result.train_metrics_clientapp[3]
    assert row["accuracy"] == 0.3
    assert metrics["taciturn.bytes_up"] == row["bytes_up"]
    assert metrics["train_loss"] == row["train_loss"] > 0


def test_the_log_says_what_was_uploaded_and_early_where_little_is_saved(caplog):
    strategy, _, _ = fed.run("adaptive,k=9+ou", rounds=12)
    total = {key: sum(row[key] for row in strategy.history) for key in strategy.history[0]}
    up, own, full = total["bytes_up"], total["overhead_up"], total["bytes_up_full"]
    share = f"uploaded {up + own:,} of {full:,} bytes ({100 * (up + own) / full:.3g} %)"
    assert f"{share}, of which messages {up:,}, Flower's own {own:,}." in caplog.text
    assert caplog.text.count("after 10 rounds, the upload is") == 1
    caplog.clear()
    fed.run("fixed:1e9+zero", rounds=12, wanted=np.ones((fed.NODES, 5000), "f4"))
    assert "the upload is" not in caplog.text


def test_a_round_is_one_line_of_the_log(caplog):
    fed.run("full+eden:1", tamper=fed.bad(fed.claim("num-examples", 0)))
    (line,) = (text for text in caplog.messages if text.startswith("Taciturn: round 1: "))
    assert "4 of 5 spoke, 0 silent, 1 rejected, 0 errors, 0 missing; uploaded " in line
    assert "Rejected: `num-examples` must be in" in line


# Codecs on the wire.


def request(codec=CODED, **changes):
    """What a node is asked in round 1."""
    policy = parse(codec)
    return replace(Request(policy.rule, (), policy.codec, (), "n", fed.SEED, 1), **changes)


def test_a_residual_waits_until_the_server_has_taken_the_code():
    """Of a code that was rejected, nothing is left out: the model has nothing of it."""
    seen = []

    def tamper(node, reply):
        if node == fed.BAD:
            state = grid.contexts[fed.BAD].state.array_records["taciturn.residual"]
            seen.append(fed.numpy(state))
            if len(seen) == 2:
                reply.content[protocol.PACKED][protocol.REPORT] = b""
        return reply

    grid = fed.LocalGrid(fed.pulled(TARGETS), fed.NODES, tamper=tamper)
    strategy, _, _ = fed.run(FEEDBACK, 4, grid=grid, wanted=TARGETS)
    assert [row["rejected"] for row in strategy.history] == [0, 1, 0, 0]
    first, second, third, fourth = seen
    assert not first["accepted"].any()
    np.testing.assert_array_equal(second["accepted"], first["next"])
    np.testing.assert_array_equal(third["accepted"], first["next"])
    np.testing.assert_array_equal(fourth["accepted"], third["next"])
    # That of a model of another size is dropped.
    wanted = TARGETS[:, :80]
    grid.app, grid.tamper = fed.pulled(wanted), lambda node, reply: reply
    strategy, _, _ = fed.run(FEEDBACK, grid=grid, wanted=wanted)
    assert strategy.history[0]["spoke"] == fed.NODES


def test_codecs_of_ones_own_may_have_numbers_of_16_bits():
    """Only arrays that say so hold upper bf16, of which these would not be finite."""
    codec = replace(parse("full+float16").codec, forms=lambda size: (Form("<u2", (size,)),))
    code = np.full(3, 0x7F80, np.uint16)
    (read,) = from_bytes(codec, to_bytes(codec, (code,), 3), 3)
    np.testing.assert_array_equal(read, code)


@pytest.mark.parametrize("text", BUDGETS)
def test_a_budget_is_spent(text, monkeypatch):
    monkeypatch.setattr(client, "_uniform", lambda: 0.0)  # who may speak does
    strategy, _, _ = fed.run(text, 4, wanted=TARGETS, norm_limit=None)
    assert [row["spoke"] for row in strategy.history] == [fed.NODES] * 4
    spent = [row["bytes_up"] / fed.NODES + OVERHEAD for row in strategy.history]
    # Of so few weights there are few lengths: a code may be half as long as it could be.
    assert 0.6 * BUDGETS[text] <= np.mean(spent) <= 1.05 * BUDGETS[text]


def test_what_comes_whole_is_charged_as_what_the_mod_would_have_sent():
    """Not as nothing, and not as what it takes: the others could not make up for that."""
    debts = [float(fed.run("budget:12%", 3, wanted=TARGETS, mods=mods)[0].memory.rule.debt)
             for mods in (None, [])]  # fmt: skip
    assert debts[1] == pytest.approx(debts[0], abs=0.5)
    assert debts[1] > -1


def test_a_code_that_is_longer_than_the_rule_gives_is_rejected(caplog):
    """It is a code like any other, in float32, of the update that was measured."""
    longer = (np.float32(0.5) * TARGETS[fed.BAD]).tobytes()
    tamper = fed.bad(lambda content: fed.restate(content, longer))
    for text, rejected in (("budget:12%", 1), ("budget:100%", 0)):
        strategy, _, _ = fed.run(text, wanted=TARGETS, tamper=tamper)
        assert strategy.history[0]["rejected"] == rejected
    assert "its code has 1200 bytes, and `budget` gave it" in caplog.text


def test_a_codecs_noise_is_not_in_the_second_moments_of_fedadam():
    """With it, steps would be several times too short."""
    found = {}
    for text in ("full", "budget:2%"):
        wanted = np.ones((fed.NODES, 5000), "f4")
        strategy, _, _ = fed.run(text, 2, flower.FedAdam, wanted)
        found[text] = sum(v.sum() for v in strategy.inner.v_t.values())
    assert 0.8 < found["budget:2%"] / found["full"] < 1.3


def test_a_code_that_is_too_long_for_one_object_is_an_array(monkeypatch):
    _, expected, _ = fed.run(CODED, 1, fed.Spy, TARGETS)
    monkeypatch.setattr(protocol, "CHUNK", 2)
    strategy, result, grid = fed.run(CODED, 1, fed.Spy, TARGETS)
    assert set(grid.received[0].content["arrays"]) == {protocol.CODE}
    assert strategy.history[0]["bytes_up"] >= fed.NODES * parse(CODED).codec.nbytes(SIZE)
    np.testing.assert_array_equal(fed.flat(result.arrays), fed.flat(expected.arrays))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_models_of_other_precision(dtype):
    strategy, result, _ = fed.run(
        "full+quantize:8", wanted=TARGETS, start=fed.record(w=np.zeros(SIZE, dtype))
    )
    assert strategy.history[0]["spoke"] == fed.NODES
    assert result.arrays["w"].dtype == dtype
    np.testing.assert_allclose(result.arrays["w"].numpy(), fed.mean_of(TARGETS), atol=0.03)


@pytest.mark.parametrize("text", CODECS)
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=80), norm=st.floats(0, 1e3), as_long=st.booleans())
def test_any_bytes_of_any_codec_are_rejected_or_counted(text, data, norm, as_long):
    """The sum of a round stays as it was, or gets an update of the norm that was reported."""
    asked, total = request(f"full+{text}"), np.ones(SIZE)
    about = dict.fromkeys(("config", "layout", "limits", "sent"))
    heard = aggregation.Round(**about, request=asked, log=logging.getLogger())
    length = asked.codec.nbytes(SIZE)
    data = (data * length)[:length].ljust(length, b"\0") if as_long else data
    reply = Reply(f"{fed.BAD}", {}, code=data, examples=20.0, norm=norm, encoded_norm=norm)
    counted = aggregation._add_coded(heard, reply, total, False)
    assert bool(heard.rejected) == (not counted)
    moved = np.linalg.norm(total - 1) / reply.weight
    low, high = asked.codec.norm_range(norm, SIZE)
    assert low - 1e-3 <= moved <= high + 1e-3 if counted else moved == 0


def test_a_client_of_another_protocol_says_so_and_counts(caplog):
    """One node is of a later version, the others are not: its weights travel whole."""

    class Grid(fed.LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            for message in messages:
                if message.metadata.dst_node_id == fed.BAD:
                    message.content[protocol.REQUEST]["protocol"] = 99
            return super().send_and_receive(messages, timeout=timeout)

    strategy, _, grid = fed.run(CODED, 1, fed.Spy, TARGETS, Grid(fed.pulled(TARGETS), fed.NODES))
    assert strategy.history[0]["spoke"] == fed.NODES
    assert "the server, taciturn 0.1.0, speaks version 99 of the protocol" in caplog.text
    forms = [set(reply.content.get("arrays", ())) for reply in grid.received]
    assert forms == [{"a", "b"} if k == fed.BAD else set() for k in range(fed.NODES)]
    seen = strategy.inner.seen
    assert [list(reply.content) for reply in seen] == [["arrays", "metrics"]] * fed.NODES


@pytest.mark.parametrize("policy", [CODED, "fixed:1e9+ou"])
def test_a_client_without_the_mod_is_named_once_and_always_counts(policy, caplog):
    strategy, _, grid = fed.run(policy, 3, wanted=TARGETS, mods=[], norm_limit=None)
    assert [row["spoke"] for row in strategy.history] == [fed.NODES] * 3
    line = "nodes without `speak()` among their mods send their weights whole, in every round: 0, 1"
    assert caplog.text.count(line) == 1
    _, result, _ = fed.run(policy, wanted=TARGETS, grid=grid, norm_limit=None)
    np.testing.assert_allclose(fed.flat(result.arrays), fed.mean_of(TARGETS), atol=1e-6)


def test_keys_differ_between_rounds_and_nodes():
    others = [request(), request(round=2), request(seed=8), request(seed=fed.SEED + 2**40)]
    keys = {tuple(asked.key(node)) for asked in others for node in ("1", "2", f"{1 + 2**40}")}
    assert len(keys) == 12


def test_a_rule_that_looks_at_the_loss_needs_one(monkeypatch, caplog):
    worried = Rule("worried", init=lambda size, rounds: Threshold(2.5),
                   speaks=lambda own, context: own.loss > context.threshold,
                   looks_at=("loss",))  # fmt: skip
    monkeypatch.setitem(RULES, "worried", lambda: worried)  # both sides know it
    policy = replace(parse("full+ignore"), rule=worried)
    strategy, _, _ = fed.run(policy, wanted=TARGETS)  # their losses are 1, 2, 3, 4 and 5
    assert strategy.history[0]["spoke"] == 3
    monkeypatch.setattr(client, "_LOSSES", ("nothing",))
    strategy, _, _ = fed.run(policy, wanted=TARGETS)
    assert strategy.history[0]["spoke"] == fed.NODES
    assert "`worried` looks at the loss: report it as `nothing`" in caplog.text

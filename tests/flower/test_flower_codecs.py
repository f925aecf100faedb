"""Codecs on the wire: what travels, what the server makes of it, and what it rejects."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled, record, restate
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import strategy as flower
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flower import EXAMPLES, NODES, Spy, targets
from test_replies import BAD, bad

from taciturn.core import client, server, tally
from taciturn.core import messages as written
from taciturn.core.codecs import Form, from_bytes, to_bytes
from taciturn.core.policy import parse, spell
from taciturn.core.rules import Rule, Threshold
from taciturn.flower import Taciturn, aggregation, mod, protocol
from taciturn.flower.protocol import Request
from taciturn.flower.replies import Reply

SIZE = 300
SEED = 7
CODECS = ["float16", "bfloat16", "quantize:4", "eden:1", "eden:0.3", "eden:3", "top_k:0.1",
          "sparse_ternary:0.2", "peaks:0.2", "peaks:100B"]  # fmt: skip
CODED = "full+eden:1"


def plain_loop(text, wanted, rounds):
    """The weights after rounds of the core, and what its clients keep."""
    policy, kept = parse(text), [None] * len(wanted)
    state = server.init(policy, np.zeros(wanted.shape[1], np.float32), rounds=rounds)
    for t in range(1, rounds + 1):
        config = server.open(policy, state.memory, len(wanted))
        request = Request(policy.rule, config.context, policy.codec, (), "n", SEED, t)
        heard = tally.start(state.weights)
        for k, target in enumerate(wanted):
            trained = state.weights + np.float32(0.5) * (target - state.weights)
            said = client.respond(
                policy.rule, state.weights, trained, EXAMPLES[k], config.context, 0.0
            )
            key = request.key(k)
            read, kept[k] = client.through(said, policy.codec, key, kept[k])
            heard = tally.add(heard, read, config, policy.codec)
        state, _ = server.close(policy, state, heard)
    return state.weights, kept


FEEDBACK = ["top_k:0.05,feedback=true", "sparse_ternary:0.2,feedback=true"]


@pytest.mark.parametrize("codec", FEEDBACK)
def test_what_a_codec_leaves_out_stays_on_the_node(codec):
    """Node and plain loop keep the same; silence leaves it alone; the server checks both norms."""
    wanted = targets(size=SIZE)
    for policy in (f"full+{codec}", f"adaptive,k=0+ignore+{codec}"):
        # The loop has no limits: `test_limits.py` is about those.
        strategy, result, grid = run(policy, 6, wanted=wanted, norm_limit=None)
        expected, kept = plain_loop(policy, wanted, 6)
        np.testing.assert_allclose(flat(result.arrays), expected, rtol=1e-5, atol=1e-5)
        assert sum(row["rejected"] for row in strategy.history) == 0
        for node, residual in enumerate(kept):
            state = grid.contexts[node].state["taciturn.residual"]["next"].numpy()
            np.testing.assert_allclose(state, residual, atol=1e-4)


def test_a_node_that_falls_a_round_behind_does_no_harm():
    """A node that dies loses what it kept in its last round, and says a part of it twice."""

    class Forgetful(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            before = dict(self.contexts[BAD].state)
            replies = super().send_and_receive(messages, timeout=timeout)
            self.rounds = getattr(self, "rounds", 0) + bool(replies)
            if self.rounds % 3 == 0:
                self.contexts[BAD].state.clear()
                self.contexts[BAD].state.update(before)
            return replies

    wanted, policy = targets(size=SIZE), "full+top_k:0.05,feedback=true"
    goal = np.array(EXAMPLES) @ wanted / sum(EXAMPLES)
    away = []
    for grid in (LocalGrid, Forgetful):
        strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy, seed=SEED)
        federation = grid(pulled(wanted, EXAMPLES, rate=0.05), NODES)
        result = strategy.start(federation, model(SIZE), num_rounds=60)
        assert sum(row["rejected"] for row in strategy.history) == 0
        away.append(np.linalg.norm(flat(result.arrays) - goal) / np.linalg.norm(goal))
    undisturbed, behind = away
    assert undisturbed < 0.2
    assert behind < 0.3


def test_a_residual_waits_until_the_server_has_taken_the_code():
    """Of a code that was rejected, nothing is left out: the model has nothing of it."""
    seen = []

    def tamper(node, reply):
        if node == BAD:
            state = grid.contexts[BAD].state.array_records["taciturn.residual"]
            seen.append({name: array.numpy() for name, array in state.items()})
            if len(seen) == 2:
                reply.content["metrics"]["num-examples"] = 0
        return reply

    grid = LocalGrid(pulled(targets(size=SIZE), EXAMPLES), NODES, tamper=tamper)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full+top_k:0.05,feedback=true")
    strategy.start(grid, model(SIZE), num_rounds=4)
    assert [row["rejected"] for row in strategy.history] == [0, 1, 0, 0]
    first, second, third, fourth = seen
    assert not first["accepted"].any()
    np.testing.assert_array_equal(second["accepted"], first["next"])
    np.testing.assert_array_equal(third["accepted"], first["next"])
    np.testing.assert_array_equal(fourth["accepted"], third["next"])


def test_codecs_of_ones_own_may_have_numbers_of_16_bits():
    """Only arrays that say so hold upper bf16, of which these would not be finite."""
    codec = dataclasses.replace(
        parse("full+float16").codec, forms=lambda size: (Form("<u2", (size,)),)
    )
    code = np.full(3, 0x7F80, np.uint16)
    (read,) = from_bytes(codec, to_bytes(codec, (code,), 3), 3)
    np.testing.assert_array_equal(read, code)


def test_a_residual_of_another_size_is_dropped():
    _, _, grid = run("full+top_k:0.05,feedback=true", 2)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full+top_k:0.05,feedback=true")
    grid.app = pulled(targets(size=80), EXAMPLES)
    strategy.start(grid, model(80), num_rounds=1)
    assert strategy.history[0]["spoke"] == NODES


def run(text, rounds=1, inner=None, wanted=None, tamper=None, **options):
    wanted = targets(size=SIZE) if wanted is None else wanted
    grid = LocalGrid(pulled(wanted, EXAMPLES), NODES, tamper=tamper)
    inner = flower.FedAvg(fraction_evaluate=0.0) if inner is None else inner
    strategy = Taciturn(inner, text, seed=SEED, **options)
    result = strategy.start(grid, model(SIZE), num_rounds=rounds)
    return strategy, result, grid


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
def test_a_federation_is_the_plain_loop(codec, inner):
    wanted = targets(size=SIZE)
    for policy in (f"full+{codec}", f"adaptive,k=0+ou+{codec}", f"adaptive,k=0+ignore+{codec}"):
        strategy, result, _ = run(policy, 4, inner(fraction_evaluate=0.0), wanted)
        expected, _ = plain_loop(policy, wanted, 4)
        np.testing.assert_allclose(flat(result.arrays), expected, rtol=1e-5, atol=1e-5)
        assert sum(row["rejected"] for row in strategy.history) == 0


BUDGETS = {
    "budget": 1200 + written.OVERHEAD,  # the model in float32, which is shorter than 8 kB
    "budget:12%": 0.12 * (1200 + written.OVERHEAD),
    "budget:900B": 900 / NODES,
    "budget:150B,per=client": 150,
    "budget:4kB,per=run": 1000 / NODES,
}


@pytest.mark.parametrize("text", BUDGETS)
def test_a_budget_is_spent_and_its_model_is_that_of_the_plain_loop(text, monkeypatch):
    monkeypatch.setattr(mod, "_uniform", lambda: 0.0)  # who may speak does, as in the loop
    wanted, rounds = targets(size=SIZE), 4
    strategy, result, _ = run(text, rounds, wanted=wanted, norm_limit=None)
    expected, _ = plain_loop(text, wanted, rounds)
    np.testing.assert_allclose(flat(result.arrays), expected, rtol=1e-5, atol=1e-5)
    assert [row["spoke"] for row in strategy.history] == [NODES] * rounds
    spent = [row["bytes_up"] / NODES + written.OVERHEAD for row in strategy.history]
    # Of so few weights there are few lengths: a code may be half as long as it could be.
    assert 0.6 * BUDGETS[text] <= np.mean(spent) <= 1.05 * BUDGETS[text]


def test_what_comes_whole_is_charged_as_what_the_mod_would_have_sent():
    """Not as nothing, and not as what it takes: the others could not make up for that."""
    wanted, debts = targets(size=SIZE), []
    for mods in (None, []):
        grid = LocalGrid(pulled(wanted, EXAMPLES, mods=mods), NODES)
        strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "budget:12%", seed=SEED)
        strategy.start(grid, model(SIZE), num_rounds=3)
        debts.append(float(strategy._memory.rule.debt))
    assert debts[1] == pytest.approx(debts[0], abs=0.5)
    assert debts[1] > -1


def test_a_code_that_is_longer_than_the_rule_gives_is_rejected(caplog):
    """It is a code like any other, in float32, of the update that was measured."""
    wanted = targets(size=SIZE)
    longer = (np.float32(0.5) * wanted[BAD]).tobytes()

    def tamper(node, reply):
        if node == BAD:
            restate(reply.content, longer)
        return reply

    for text, rejected in (("budget:12%", 1), ("budget:100%", 0)):
        strategy, _, _ = run(text, 1, wanted=wanted, tamper=tamper)
        assert strategy.history[0]["rejected"] == rejected
    assert "its code has 1200 bytes, and `budget` gave it" in caplog.text


def test_the_bytes_in_the_history_are_those_that_travel():
    strategy, _, grid = run(CODED, inner=Spy(fraction_evaluate=0.0))
    row, codec = strategy.history[0], parse(CODED).codec
    assert [list(reply.content) for reply in grid.received] == [["metrics"]] * NODES
    assert row["bytes_up"] == NODES * codec.nbytes(SIZE)
    plain, _, _ = run("full")
    extra = row["bytes_up_full"] - plain.history[0]["bytes_up"] - plain.history[0]["overhead_up"]
    assert abs(extra) < 10 * NODES


def test_other_arrays_travel_as_they_are():
    start = record(w=np.zeros(200, np.float32), head=np.zeros(50, np.float32), steps=np.array([3]))
    wanted = targets(size=251)
    grid = LocalGrid(pulled(wanted, EXAMPLES), NODES)
    strategy = Taciturn(Spy(fraction_evaluate=0.0), CODED, exclude="head")
    result = strategy.start(grid, start, num_rounds=1)
    for reply in grid.received:
        assert set(reply.content["arrays"]) == {"head", "steps"}
    expected = 0.5 * np.array(EXAMPLES) @ wanted[:, 200:250] / sum(EXAMPLES)
    np.testing.assert_allclose(result.arrays["head"].numpy(), expected, atol=1e-5)
    assert result.arrays["steps"].numpy().dtype == np.int64


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_models_of_other_precision(dtype):
    wanted = targets(size=SIZE)
    start = record(w=np.zeros(SIZE, dtype))
    grid = LocalGrid(pulled(wanted, EXAMPLES), NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), "full+quantize:8")
    result = strategy.start(grid, start, num_rounds=1)
    assert strategy.history[0]["spoke"] == NODES
    assert result.arrays["w"].dtype == dtype
    expected = 0.5 * np.array(EXAMPLES) @ wanted / sum(EXAMPLES)
    np.testing.assert_allclose(result.arrays["w"].numpy(), expected, atol=0.03)


def change(edit):
    """A node whose code is another one."""

    def tamper(content):
        restate(content, edit(protocol.read_said(content).code))

    return tamper


def scales(value):
    return change(lambda code: code[:-4] + np.float32(value).tobytes())


GARBAGE = {
    "cut short": change(lambda code: code[:-1]),
    "nothing": change(lambda code: b""),
    "too long": change(lambda code: code + b"0"),
    "a NaN scale": scales(np.nan),
    "an infinite scale": scales(np.inf),
    "a huge scale": scales(3e38),
    "a scale that does not fit the norm": scales(1e3),
    "a norm that does not fit": lambda c: restate(c, norm=1e-3),
    "weights beside the code": lambda c: c.update({"arrays": model(SIZE)}),
    "an array of other numbers": lambda c: (
        restate(c, b""),
        c.update({"arrays": record(**{protocol.CODE: np.zeros(42, "f4")})}),
    )[2:],
    "an array of broken bytes": lambda c: (
        restate(c, b""),
        c.update(
            {
                "arrays": ArrayRecord(
                    {protocol.CODE: Array("uint8", (42,), "numpy.ndarray", b"garbage")}
                )
            }
        ),
    )[2:],
}


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_bad_code_is_rejected_and_nothing_else_happens(kind, inner, caplog):
    strategy, result, _ = run(CODED, inner=inner(fraction_evaluate=0.0), tamper=bad(GARBAGE[kind]))
    assert (strategy.history[0]["rejected"], strategy.history[0]["spoke"]) == (1, NODES - 1)
    assert f"the reply of node {BAD} is rejected" in caplog.text
    silenced, without, _ = run(
        CODED, inner=inner(fraction_evaluate=0.0),
        tamper=bad(lambda c: c["metrics"].update({"num-examples": 0})),
    )  # fmt: skip
    np.testing.assert_array_equal(flat(result.arrays), flat(without.arrays))
    assert silenced.history[0]["norm_mean"] == strategy.history[0]["norm_mean"]


def test_a_code_that_nobody_asked_for_is_rejected():
    def tamper(content):
        restate(content, bytes(9))
        del content["arrays"]

    strategy, _, _ = run("full", tamper=bad(tamper))
    assert (strategy.history[0]["rejected"], strategy.history[0]["spoke"]) == (1, NODES - 1)


def any_bytes(codec, data, as_long):
    """These bytes, or as many of them as a code has."""
    length = codec.nbytes(SIZE)
    return (data * length)[:length].ljust(length, b"\0") if as_long else data


def add_any_bytes(text, data, norm, as_long):
    """The sum of a round stays as it was, or gets an update of the norm that was reported."""
    codec, heard, total = parse(f"full+{text}").codec, aggregation.RoundReplies(), np.ones(SIZE)
    message = SimpleNamespace(metadata=SimpleNamespace(src_node_id=BAD))
    said = Reply(message, "m", MetricRecord(), 20.0, code=any_bytes(codec, data, as_long),
                 norm=norm)  # fmt: skip
    request = Request(parse("full").rule, (), codec, (), "n", SEED, 1)
    counted = aggregation._add_coded(heard, said, SimpleNamespace(request=request), total, False)
    assert heard.rejected == (not counted)
    moved = np.linalg.norm(total - 1) / said.weight
    low, high = codec.norm_range(norm, SIZE)
    assert low - 1e-3 <= moved <= high + 1e-3 if counted else moved == 0


anything = given(data=st.binary(max_size=80), norm=st.floats(0, 1e3), as_long=st.booleans())


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=100, deadline=None)
@anything
def test_any_bytes_of_any_codec_are_rejected_or_counted(codec, data, norm, as_long):
    add_any_bytes(codec, data, norm, as_long)


def test_a_client_that_does_not_know_the_codec_says_so_and_the_round_goes_on(caplog, monkeypatch):
    def too_old(name, config):
        if name == "codec":
            config = config.replace("eden", "telepathy")
        return parse_part(name, config)

    parse_part = protocol.parse_part
    monkeypatch.setattr(protocol, "parse_part", too_old)
    strategy, result, grid = run(CODED, inner=Spy(fraction_evaluate=0.0))
    assert strategy.history[0]["spoke"] == NODES
    assert set(grid.received[0].content["arrays"]) == {"a", "b"}
    assert "node 0 does not do as it was asked: There is no codec called" in caplog.text
    expected = 0.5 * np.array(EXAMPLES) @ targets(size=SIZE) / sum(EXAMPLES)
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)


@pytest.mark.parametrize("inner", [flower.FedAvg, Spy])
def test_a_client_of_another_protocol_says_so_and_counts(inner, caplog):
    """One node is of a later version, the others are not: its weights travel whole."""

    class Grid(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            for message in messages:
                if message.metadata.dst_node_id == BAD:
                    message.content[protocol.REQUEST]["protocol"] = 99
            return super().send_and_receive(messages, timeout=timeout)

    wanted = targets(size=SIZE)
    spy = inner(fraction_evaluate=0.0)
    strategy = Taciturn(spy, CODED, seed=SEED)
    grid = Grid(pulled(wanted, EXAMPLES), NODES)
    strategy.start(grid, model(SIZE), num_rounds=1)
    assert strategy.history[0]["spoke"] == NODES
    assert "the server, taciturn 0.1.0, speaks version 99 of the protocol" in caplog.text
    if isinstance(spy, Spy):
        forms = [set(reply.content.get("arrays", ())) for reply in grid.received]
        assert forms == [{"a", "b"} if k == BAD else set() for k in range(NODES)]
        assert [list(reply.content) for reply in spy.seen] == [["arrays", "metrics"]] * NODES


@pytest.mark.parametrize("policy", [CODED, "adaptive+ou"])
def test_a_client_without_the_mod_is_named_once_and_counts(policy, caplog):
    wanted = targets(size=SIZE)
    grid = LocalGrid(pulled(wanted, EXAMPLES, mods=[]), NODES)
    strategy = Taciturn(flower.FedAvg(fraction_evaluate=0.0), policy, norm_limit=None)
    strategy.start(grid, model(SIZE), num_rounds=3)
    line = "nodes without `speak()` among their mods send their weights whole, in every round: 0, 1"
    assert caplog.text.count(line) == 1
    result = strategy.start(grid, model(SIZE), num_rounds=1)
    expected = 0.5 * np.array(EXAMPLES) @ wanted / sum(EXAMPLES)
    np.testing.assert_allclose(flat(result.arrays), expected, atol=1e-6)


def test_a_server_that_starts_again_draws_on(tmp_path):
    _, whole, _ = run(CODED, 4)
    folder = tmp_path / "run"
    run(CODED, 2, folder=folder)
    wanted = targets(size=SIZE)
    again = Taciturn(flower.FedAvg(fraction_evaluate=0.0), CODED, folder=folder)  # no seed
    result = again.start(LocalGrid(pulled(wanted, EXAMPLES), NODES), model(SIZE), num_rounds=4)
    np.testing.assert_array_equal(flat(result.arrays), flat(whole.arrays))


def test_keys_differ_between_rounds_and_nodes():
    asked = Request(parse("full").rule, (), parse("eden:1").codec, (), "n", SEED, 1)
    others = [asked, dataclasses.replace(asked, round=2), dataclasses.replace(asked, seed=8),
              dataclasses.replace(asked, seed=SEED + 2**40)]  # fmt: skip
    keys = {tuple(request.key(node)) for request in others for node in (1, 2, 1 + 2**40)}
    assert len(keys) == 12


def test_a_node_remembers_how_long_it_was_silent(monkeypatch):
    """A rule of one's own that both sides know: silent, silent, and everyone speaks."""
    patient = Rule("patient", init=lambda size, rounds: Threshold(1e9),
                   speaks=lambda own, context: own.silence >= 2,
                   looks_at=("silence",))  # fmt: skip
    policy = dataclasses.replace(parse("full+ignore"), rule=patient)
    monkeypatch.setitem(protocol.parse_part.__globals__["RULES"], "patient", lambda: patient)
    assert spell(patient) == "patient"
    strategy, _, _ = run(policy, 6)
    assert [row["spoke"] for row in strategy.history] == [0, 0, NODES, 0, 0, NODES]


def test_a_rule_that_looks_at_the_loss_needs_one(monkeypatch, caplog):
    worried = Rule("worried", init=lambda size, rounds: Threshold(2.5),
                   speaks=lambda own, context: own.loss > context.threshold,
                   looks_at=("loss",))  # fmt: skip
    policy = dataclasses.replace(parse("full+ignore"), rule=worried)
    monkeypatch.setitem(protocol.parse_part.__globals__["RULES"], "worried", lambda: worried)
    strategy, _, _ = run(policy)  # their losses are 1, 2, 3, 4 and 5
    assert strategy.history[0]["spoke"] == 3
    monkeypatch.setattr(mod, "_LOSSES", ("nothing",))
    strategy, _, _ = run(policy)
    assert strategy.history[0]["spoke"] == NODES
    assert "`worried` looks at the loss: report it as `nothing`" in caplog.text

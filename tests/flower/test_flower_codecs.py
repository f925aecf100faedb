"""Codecs on the wire: what travels, what the server makes of it, and what it rejects."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import federation as fed
import numpy as np
import pytest
from flwr.serverapp import strategy as flower
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flower import CODECS

from taciturn.core.codecs import Form, from_bytes, to_bytes
from taciturn.core.policy import RULES, parse
from taciturn.core.rules import Rule, Threshold
from taciturn.core.tally import OVERHEAD
from taciturn.federation import aggregation, client
from taciturn.federation.protocol import Request
from taciturn.federation.replies import Reply
from taciturn.flower import protocol

SIZE = 300
CODED, FEEDBACK = "full+eden:1", "full+top_k:0.05,feedback=true"
TARGETS = fed.targets(size=SIZE)


def run(policy, rounds=1, inner=flower.FedAvg, wanted=TARGETS, **options):
    return fed.run(policy, rounds, inner, wanted, **options)


def request(codec=CODED, **changes):
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
    strategy, _, _ = run(FEEDBACK, 4, grid=grid)
    assert [row["rejected"] for row in strategy.history] == [0, 1, 0, 0]
    first, second, third, fourth = seen
    assert not first["accepted"].any()
    np.testing.assert_array_equal(second["accepted"], first["next"])
    np.testing.assert_array_equal(third["accepted"], first["next"])
    np.testing.assert_array_equal(fourth["accepted"], third["next"])
    # That of a model of another size is dropped.
    wanted = TARGETS[:, :80]
    grid.app, grid.tamper = fed.pulled(wanted), lambda node, reply: reply
    strategy, _, _ = run(FEEDBACK, grid=grid, wanted=wanted)
    assert strategy.history[0]["spoke"] == fed.NODES


def test_codecs_of_ones_own_may_have_numbers_of_16_bits():
    """Only arrays that say so hold upper bf16, of which these would not be finite."""
    codec = replace(parse("full+float16").codec, forms=lambda size: (Form("<u2", (size,)),))
    code = np.full(3, 0x7F80, np.uint16)
    (read,) = from_bytes(codec, to_bytes(codec, (code,), 3), 3)
    np.testing.assert_array_equal(read, code)


BUDGETS = {
    "budget": 1200 + OVERHEAD,  # the model in float32, which is shorter than 8 kB
    "budget:12%": 0.12 * (1200 + OVERHEAD),
    "budget:900B": 900 / fed.NODES,
    "budget:150B,per=client": 150,
    "budget:4kB,per=run": 1000 / fed.NODES,
}


@pytest.mark.parametrize("text", BUDGETS)
def test_a_budget_is_spent(text, monkeypatch):
    monkeypatch.setattr(client, "_uniform", lambda: 0.0)  # who may speak does
    strategy, _, _ = run(text, 4, norm_limit=None)
    assert [row["spoke"] for row in strategy.history] == [fed.NODES] * 4
    spent = [row["bytes_up"] / fed.NODES + OVERHEAD for row in strategy.history]
    # Of so few weights there are few lengths: a code may be half as long as it could be.
    assert 0.6 * BUDGETS[text] <= np.mean(spent) <= 1.05 * BUDGETS[text]


def test_what_comes_whole_is_charged_as_what_the_mod_would_have_sent():
    """Not as nothing, and not as what it takes: the others could not make up for that."""
    debts = [float(run("budget:12%", 3, mods=mods)[0].memory.rule.debt) for mods in (None, [])]
    assert debts[1] == pytest.approx(debts[0], abs=0.5)
    assert debts[1] > -1


def test_a_code_that_is_longer_than_the_rule_gives_is_rejected(caplog):
    """It is a code like any other, in float32, of the update that was measured."""
    longer = (np.float32(0.5) * TARGETS[fed.BAD]).tobytes()
    tamper = fed.bad(lambda content: fed.restate(content, longer))
    for text, rejected in (("budget:12%", 1), ("budget:100%", 0)):
        strategy, _, _ = run(text, tamper=tamper)
        assert strategy.history[0]["rejected"] == rejected
    assert "its code has 1200 bytes, and `budget` gave it" in caplog.text


def test_a_codecs_noise_is_not_in_the_second_moments_of_fedadam():
    """With it, steps would be several times too short."""
    found = {}
    for text in ("full", "budget:2%"):
        wanted = np.ones((fed.NODES, 5000), "f4")
        strategy, _, _ = run(text, 2, flower.FedAdam, wanted)
        found[text] = sum(v.sum() for v in strategy.inner.v_t.values())
    assert 0.8 < found["budget:2%"] / found["full"] < 1.3


def test_a_code_that_is_too_long_for_one_object_is_an_array(monkeypatch):
    _, expected, _ = run(CODED, inner=fed.Spy)
    monkeypatch.setattr(protocol, "CHUNK", 2)
    strategy, result, grid = run(CODED, inner=fed.Spy)
    assert set(grid.received[0].content["arrays"]) == {protocol.CODE}
    assert strategy.history[0]["bytes_up"] >= fed.NODES * parse(CODED).codec.nbytes(SIZE)
    np.testing.assert_array_equal(fed.flat(result.arrays), fed.flat(expected.arrays))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_models_of_other_precision(dtype):
    strategy, result, _ = run("full+quantize:8", start=fed.record(w=np.zeros(SIZE, dtype)))
    assert strategy.history[0]["spoke"] == fed.NODES
    assert result.arrays["w"].dtype == dtype
    np.testing.assert_allclose(result.arrays["w"].numpy(), fed.mean_of(TARGETS), atol=0.03)


@pytest.mark.parametrize("text", CODECS)
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=80), norm=st.floats(0, 1e3), as_long=st.booleans())
def test_any_bytes_of_any_codec_are_rejected_or_counted(text, data, norm, as_long):
    """The sum of a round stays as it was, or gets an update of the norm that was reported."""
    asked, total = request(f"full+{text}"), np.ones(SIZE)
    now = SimpleNamespace(request=asked, log=logging.getLogger())
    heard, length = aggregation.RoundReplies(now), asked.codec.nbytes(SIZE)
    data = (data * length)[:length].ljust(length, b"\0") if as_long else data
    reply = Reply(f"{fed.BAD}", {}, code=data, examples=20.0, norm=norm, encoded_norm=norm)
    counted = aggregation._add_coded(heard, reply, total, False)
    assert bool(heard.rejected) == (not counted)
    moved = np.linalg.norm(total - 1) / reply.weight
    low, high = asked.codec.norm_range(norm, SIZE)
    assert low - 1e-3 <= moved <= high + 1e-3 if counted else moved == 0


@pytest.mark.parametrize("inner", [flower.FedAvg, fed.Spy])
def test_a_client_of_another_protocol_says_so_and_counts(inner, caplog):
    """One node is of a later version, the others are not: its weights travel whole."""

    class Grid(fed.LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            for message in messages:
                if message.metadata.dst_node_id == fed.BAD:
                    message.content[protocol.REQUEST]["protocol"] = 99
            return super().send_and_receive(messages, timeout=timeout)

    strategy, _, grid = run(CODED, inner=inner, grid=Grid(fed.pulled(TARGETS), fed.NODES))
    assert strategy.history[0]["spoke"] == fed.NODES
    assert "the server, taciturn 0.1.0, speaks version 99 of the protocol" in caplog.text
    forms = [set(reply.content.get("arrays", ())) for reply in grid.received]
    if inner is fed.Spy:
        assert forms == [{"a", "b"} if k == fed.BAD else set() for k in range(fed.NODES)]
        seen = strategy.inner.seen
        assert [list(reply.content) for reply in seen] == [["arrays", "metrics"]] * fed.NODES


@pytest.mark.parametrize("policy", [CODED, "fixed:1e9+ou"])
def test_a_client_without_the_mod_is_named_once_and_always_counts(policy, caplog):
    strategy, _, grid = run(policy, 3, mods=[], norm_limit=None)
    assert [row["spoke"] for row in strategy.history] == [fed.NODES] * 3
    line = "nodes without `speak()` among their mods send their weights whole, in every round: 0, 1"
    assert caplog.text.count(line) == 1
    _, result, _ = run(policy, grid=grid, norm_limit=None)
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
    strategy, _, _ = run(policy)  # their losses are 1, 2, 3, 4 and 5
    assert strategy.history[0]["spoke"] == 3
    monkeypatch.setattr(client, "_LOSSES", ("nothing",))
    strategy, _, _ = run(policy)
    assert strategy.history[0]["spoke"] == fed.NODES
    assert "`worried` looks at the loss: report it as `nothing`" in caplog.text

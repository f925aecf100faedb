"""The client's side: what leaves the device, and what a site lets through."""

import math
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from federation import LocalGrid, app_of, context, numpy, record, run, said
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable import inflatable_object as inflatable
from flwr.supernode import start_client_internal as internal

from taciturn import TaciturnError, adaptive
from taciturn.core import server
from taciturn.core.policy import parse
from taciturn.federation.protocol import Report, Request
from taciturn.flower import protocol, speak, supernode

SENT = {"w": np.zeros((2, 2), np.float32), "b": np.zeros(3, np.float32)}


def request(policy="fixed:1", **changes):
    """What a server asks in its first round."""
    policy = parse(policy)
    memory = server.remember(policy, np.zeros(7, np.float32), 3)
    config = server.open(policy, memory, 2)
    asked = Request(policy.rule, config.context, policy.codec, (), "num-examples", 0, 1)
    return replace(asked, **changes)


def ask(trained, mod=None, asked=None, sent=SENT, change=None, more=None):
    """The reply that leaves a client whose app returns `trained`."""
    message = Message(RecordDict({"arrays": record(**sent)}), 7, "train")
    if asked is not False:
        message = protocol.ask(message, asked or request())
        message.content[protocol.REQUEST].update(change or {})
    message.content.update(more or {})

    def app(message, context):
        assert protocol.REQUEST not in message.content
        if isinstance(trained, Error):
            return Message(trained, reply_to=message)
        content = RecordDict({"metrics": MetricRecord({"num-examples": 5})})
        if trained is not None:
            content["arrays"] = record(**trained)
        # An app may do with its copy of the message what it likes.
        message.content["arrays"].clear()
        return Message(content, reply_to=message)

    return (mod or speak())(message, context(0), app)


def step(size, **others):
    """A model that lies `size` away from what was sent."""
    w = np.zeros((2, 2), np.float32)
    w[0, 1] = size
    return SENT | {"w": w} | others


@pytest.mark.parametrize("size", [0.5, 1.5])
def test_an_update_leaves_with_its_norm_where_that_is_above_the_threshold(size):
    reply = ask(step(size))
    assert said(reply.content).report == Report(size, size)
    assert dict(said(reply.content).metrics) == {"num-examples": 5}
    if size < 1:
        assert list(reply.content) == ["metrics"]
    else:
        np.testing.assert_array_equal(reply.content["arrays"]["w"].numpy(), step(1.5)["w"])


def test_the_order_of_elements_in_memory_and_their_precision_do_not_matter():
    sent = {"w": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))}
    trained = {"w": np.ascontiguousarray(sent["w"])}
    assert said(ask(trained, sent=sent).content).report.norm == 0.0
    trained = {name: array.astype(np.float64) for name, array in step(1.5).items()}
    assert said(ask(trained).content).report.norm == 1.5


def test_a_server_without_taciturn_gets_full_replies():
    reply = ask(step(0.5), asked=False)
    assert dict(reply.content["metrics"]) == {"num-examples": 5}
    assert "arrays" in reply.content


def test_an_error_is_passed_on():
    assert ask(Error(code=1, reason="no data")).error.reason == "no data"


@pytest.mark.parametrize("trained", [None, {"w": SENT["w"]}, SENT | {"b": np.zeros(4, "f4")}])
def test_what_does_not_fit_the_model_is_left_to_the_server(trained):
    reply = ask(trained)
    assert said(reply.content).report is None
    assert ("arrays" in reply.content) == (trained is not None)


def test_a_broken_update_is_not_sent():
    reply = ask(step(np.nan))
    assert math.isnan(said(reply.content).report.norm)
    assert not reply.content.array_records


def test_counters_and_excluded_layers_always_leave():
    sent = SENT | {"count": np.array(3), "head": np.zeros(2, np.float32)}
    trained = step(0.5, count=np.array(4), head=np.full(2, 9.0, np.float32))
    reply = ask(trained, sent=sent, asked=request(exclude=("he*",)))
    # The head moved far, but the norm is over what can be left out.
    assert said(reply.content).report.norm == 0.5
    assert set(reply.content["arrays"]) == {"count", "head"}
    assert reply.content["arrays"]["count"].numpy() == 4


@pytest.mark.parametrize(
    ("own", "size", "speaks"),
    [("full", 1.5, True), ("full", 0.5, False), ("fixed:2", 1.5, False), ("fixed:2", 2.5, True),
     ("fixed:0.1", 0.5, False), ("random:0", 2.5, False), ("random:1", 2.5, True)],
)  # fmt: skip
def test_a_rule_of_its_own_only_makes_a_client_quieter(own, size, speaks):
    assert bool(ask(step(size), speak(own)).content.array_records) == speaks


@pytest.mark.parametrize("rule", ["adaptive", adaptive(), 0.5])
def test_a_rule_that_needs_others_cannot_be_a_clients_own(rule):
    with pytest.raises(TaciturnError, match="must need nobody else"):
        speak(rule)


@pytest.mark.parametrize("policy", ["optimal:0.5+zero", "budget"])
def test_a_rule_of_its_own_must_be_random_where_speakers_count_more(policy):
    reply = ask(step(1.5), speak("fixed:0.1"), request(policy))
    assert 'speak("fixed")` cannot be combined with the server\'s rule' in reply.error.reason
    assert said(ask(step(1.5), speak("random:0.5"), request(policy)).content).report.own == 0.5


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"change": {"rule": "telepathy:2"}}, "There is no rule called `telepathy`"),
     ({"change": {"codec": "telepathy:2"}}, "There is no codec called `telepathy`"),
     ({"change": {"rule": "random:0.5"}}, "`random` needs the numbers ['probability']"),
     ({"more": {"more": record()}}, "the request has 2 ArrayRecords")],
)  # fmt: skip
def test_a_request_that_it_does_not_understand_makes_it_speak(change, problem, caplog):
    reply = ask(step(0.5), **change)
    assert "arrays" in reply.content
    assert problem in caplog.text
    assert problem in said(reply.content).remark


def python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_device_needs_no_simulator():
    code = "import sys, taciturn.flower; sys.exit(any(m in sys.modules for m in ('jax', 'optax')))"
    assert python(code).returncode == 0


def test_an_old_flower_is_refused():
    old = "import importlib.metadata as m; m.version = lambda name: '1.39.2'"
    found = python(f"{old}; import taciturn.flower").stderr
    assert "needs flwr 1.40 or later, this is 1.39.2. " in found
    assert 'nstall it with: pip install "' in found


def test_many_arrays_are_sent_as_one_to_nodes_that_have_the_mod():
    start = record(**{f"layer{i}": np.full((2, 3), i, "f4") for i in range(20)}, steps=np.int64(3))
    seen = []

    def step(k, arrays):
        seen.append(arrays)
        return {name: array + 1 for name, array in arrays.items()}, {"num-examples": 1}

    app = app_of(step)
    strategy, result, _ = run("full+float16", 2, grid=LocalGrid(app, 2), start=start)
    assert all(list(arrays) == list(start) for arrays in seen)
    np.testing.assert_array_equal(numpy(result.arrays)["layer7"], np.full((2, 3), 9.0))
    assert numpy(result.arrays)["steps"].dtype == np.int64
    whole, joined = (row["overhead_down"] for row in strategy.history)
    assert joined < 0.5 * whole
    # Without the mod, arrays come as they are.
    run("full+float16", 2, grid=LocalGrid(app_of(step, mods=[]), 2), start=start)
    assert all(list(arrays) == list(start) for arrays in seen)


# What a site lets through: `taciturn-supernode`.


def node_with(reply: Message) -> mock.MagicMock:
    """State and object store of a SuperNode that has one reply to send; `sent` is what it sends."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    tree, sent = inflatable.get_object_tree(reply), []
    objects = {name: x.deflate() for name, x in inflatable.get_all_nested_objects(reply).items()}

    def send(message, tree, seconds):
        sent.append(message)
        return {node.object_id for node in inflatable.iterate_object_tree(tree)}, "session"

    return mock.MagicMock(
        objects=objects, sent=sent, send=send, get=objects.get, get_object_tree=lambda name: tree,
        get_messages=lambda is_reply: [reply], get_messages_legacy=lambda is_reply: [reply],
        get_message_processing_duration=lambda message_id: 1.0,
        push_object=lambda run_id, session, name, content: sent.append(content),
    )  # fmt: skip


def reply_of(content, group: str = "1") -> Message:
    asked = Message(RecordDict(), dst_node_id=1, message_type="train", group_id=group)
    return Message(content, reply_to=asked)


def numbers(count: int) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({"x": [0.5] * count})})


@pytest.mark.parametrize(
    ("reply", "passes"),
    [(lambda: reply_of(numbers(10)), True), (lambda: reply_of(numbers(1000)), False),
     (lambda: reply_of(Error(code=0, reason="x" * 5000)), False),
     (lambda: reply_of(numbers(10), "x" * 5000), None)],
    ids=["short", "long", "a long error", "long metadata"],
)  # fmt: skip
def test_a_reply_that_is_too_long_is_an_error_that_says_why(reply, passes, monkeypatch, caplog):
    monkeypatch.setattr(internal, "_push_messages", internal._push_messages)  # put back at the end
    supernode.limit(2000)
    node = node_with(found := reply())
    internal._push_messages(
        state=node, object_store=node, send=node.send, push_object=node.push_object
    )
    node.delete.assert_called_once_with(found.metadata.message_id)  # whatever was sent
    if passes is None:
        assert node.sent == []
        assert "too much into the metadata" in caplog.text
        return
    message, *contents = node.sent
    assert message.has_error() is not passes
    assert sum(map(len, contents)) < 2000
    assert set(contents) == set(node.objects.values()) or "the 2,000 bytes" in message.error.reason


@pytest.mark.parametrize("amount", ["1%", "20", "100B"])
def test_the_limit_is_a_number_of_bytes(amount, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["taciturn-supernode", "--at-most", amount, "--insecure"])
    with pytest.raises(SystemExit):
        supernode.main()
    assert amount in capsys.readouterr().err

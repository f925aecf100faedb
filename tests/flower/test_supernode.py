"""What a site lets through: `taciturn-supernode`."""

import sys
from unittest import mock

import federation  # noqa: F401, sets whose messages these are
import pytest
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode import start_client_internal as flower

from taciturn.flower import supernode


def node_with(reply: Message) -> mock.MagicMock:
    """State and object store of a SuperNode that has one reply to send; `sent` is what it sends."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    tree, sent = get_object_tree(reply), []
    objects = {name: x.deflate() for name, x in get_all_nested_objects(reply).items()}

    def send(message, tree, seconds):
        sent.append(message)
        return {node.object_id for node in flower.iterate_object_tree(tree)}, "session"

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
    [
        (lambda: reply_of(numbers(10)), True),
        (lambda: reply_of(numbers(1000)), False),
        (lambda: reply_of(Error(code=0, reason="x" * 5000)), False),
        (lambda: reply_of(numbers(10), "x" * 5000), None),
    ],
    ids=["short", "long", "a long error", "long metadata"],
)
def test_a_reply_that_is_too_long_is_an_error_that_says_why(reply, passes, monkeypatch, caplog):
    monkeypatch.setattr(flower, "_push_messages", flower._push_messages)  # put back at the end
    supernode.limit(2000)
    node = node_with(found := reply())
    flower._push_messages(
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

"""What a site lets through: `taciturn-supernode`."""

import sys

import federation  # noqa: F401, sets whose messages these are
import pytest
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode import start_client_internal as flower

from taciturn.flower import supernode


class Node:
    """State and object store of a SuperNode that has one reply to send."""

    def __init__(self, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = self.id = reply.object_id
        self.tree = get_object_tree(reply)
        self.objects = {name: x.deflate() for name, x in get_all_nested_objects(reply).items()}
        self.reply, self.deleted, self.sent = reply, [], []

    def get_messages_legacy(self, is_reply: bool) -> list[Message]:
        return [self.reply]

    get_messages = get_messages_legacy  # its name in flwr 1.40

    def get_message_processing_duration(self, message_id: str) -> float:
        return 1.0

    def delete_messages(self, message_ids: list[str]) -> None:
        self.deleted += message_ids

    def get_object_tree(self, name: str):
        return self.tree

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def delete(self, name: str) -> None:
        self.deleted.append(name)

    def send(self, message: Message, tree, seconds: float) -> tuple[set[str], str]:
        self.sent.append(message)
        return {node.object_id for node in flower.iterate_object_tree(tree)}, "session"

    def push_object(self, run_id: int, session: str, name: str, content: bytes) -> None:
        self.sent.append(content)


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
    node = Node(reply())
    flower._push_messages(
        state=node, object_store=node, send=node.send, push_object=node.push_object
    )
    assert {node.id, ""} <= set(node.deleted)  # the app's reply, whatever was sent
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

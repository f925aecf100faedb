"""A SuperNode that holds its site's limit on every reply, whatever the app is.

Apps hand their replies to the SuperNode, which weighs each before a byte of it leaves, and sends an
error in place of one that is too long: in `_push_messages`, the one way to the SuperLink.
"""

import argparse
import sys
import time
from copy import copy
from logging import WARNING
from typing import Any

from flwr.app import Error, Message
from flwr.common.serde import message_to_proto
from flwr.supercore import log
from flwr.supercore.inflatable import inflatable_object as inflatable
from flwr.supernode import start_client_internal as supernode
from flwr.supernode.cli import flower_supernode

from taciturn.core.parts import Amount
from taciturn.errors import InputError

_LEAST = 1000  # bytes: an error that says why has 600


def main() -> None:
    """`taciturn-supernode --at-most 20kB`, and the options of `flower-supernode`."""
    parser = argparse.ArgumentParser(
        prog="taciturn-supernode", description=__doc__.splitlines()[0], allow_abbrev=False,
        epilog="All other options are those of flower-supernode.",
    )  # fmt: skip
    parser.add_argument("--at-most", required=True, help="what a reply may have, as in 20kB")
    options, sys.argv[1:] = parser.parse_known_args()
    try:
        amount = Amount.of(options.at_most)
        if amount.is_share or amount.value < _LEAST:
            raise InputError(f"`--at-most` is 1kB at least, as in 20kB, got {amount}.")
    except InputError as error:
        parser.error(f"{error}")
    limit(int(amount.value))
    flower_supernode()


def limit(most: int) -> None:
    """Makes SuperNodes of this process send no reply of more than so many bytes."""
    push_messages = supernode._push_messages

    def push_weighed(state: Any, object_store: Any, send: Any, push_object: Any) -> None:
        def send_weighed(message: Message, tree: Any, seconds: float) -> tuple[set[str], str]:
            contents: dict[str, bytes] = {}
            for node in inflatable.iterate_object_tree(tree):
                while (content := object_store.get(node.object_id)) == b"":
                    time.sleep(0.5)  # the app is still writing it
                contents[node.object_id] = content
                if _size(message, tree, contents) > most:
                    message, tree, contents = _refusal(message, most)
                    break
            if _size(message, tree, contents) > most:
                raise InputError("The app has put too much into the metadata of its reply.")
            wanted, session = send(message, tree, seconds)
            for name in wanted:
                push_object(message.metadata.run_id, session, name, contents[name])
            return set(), session  # nothing is left to send

        push_messages(
            state=state, object_store=object_store, send=send_weighed, push_object=push_object
        )

    supernode._push_messages = push_weighed


def _size(message: Message, tree: Any, contents: dict[str, bytes]) -> int:
    """The bytes of a message, of its object tree, and of the objects in it."""
    shell = message_to_proto(message).ByteSize() + tree.ByteSize()
    return int(shell + sum(map(len, contents.values())))


def _refusal(message: Message, most: int) -> tuple[Message, Any, dict[str, bytes]]:
    """The error in place of a message, its object tree, and its objects as they are sent."""
    reason = f"The reply has more than the {most:,} bytes that its site sends at most."
    log(WARNING, "Taciturn: %s", reason)
    error = Message(error=Error(code=0, reason=reason), metadata=copy(message.metadata))
    error.metadata.__dict__["_message_id"] = error.object_id
    objects = inflatable.get_all_nested_objects(error).items()
    return error, inflatable.get_object_tree(error), {name: x.deflate() for name, x in objects}

"""What a server knows of each node: how often it was asked, how often it spoke, and when last."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from logging import WARNING

import numpy as np
from flwr.supercore import log

from taciturn.flower.aggregation import RoundReplies

_PATIENCE = 10  # times that a node is asked and not heard before the log says so


@dataclass
class Node:
    """A node's record, over the rounds in which its reply counted."""

    asked: int = 0
    spoke: int = 0
    silent: int = 0
    in_a_row: int = 0  # how often it was silent since it last spoke
    last_spoke: int = 0  # the round in which it did; 0 if never
    without_mod: int = 0  # 1 once it has replied without `speak()`


class Nodes(dict[int, Node]):
    """Records by node id."""

    def __missing__(self, node: int) -> Node:
        return self.setdefault(node, Node())

    def note(self, round: int, asked: Iterable[int], heard: RoundReplies) -> None:
        """Adds a round. Says once which nodes lack the mod, and which are asked and never heard."""
        for node in asked:
            self[node].asked += 1
        new = []
        for reply in heard.speakers:
            own = self[reply.node]
            own.spoke, own.in_a_row, own.last_spoke = own.spoke + 1, 0, round
            if reply.without_mod and not own.without_mod:
                own.without_mod = 1
                new.append(f"{reply.node}")
        for reply in heard.silent:
            own = self[reply.node]
            own.silent, own.in_a_row = own.silent + 1, own.in_a_row + 1
        if new:
            log(WARNING, "Taciturn: nodes without `speak()` among their mods send their weights "
                "whole, in every round: %s.", ", ".join(new))  # fmt: skip
        for node in asked:
            own = self[node]
            if not own.spoke and own.asked == _PATIENCE + 1:
                log(WARNING, "Taciturn: node %d was asked %d times, was silent %d times and has "
                    "never been heard.", node, own.asked, own.silent)  # fmt: skip

    def rows(self, round: int) -> list[dict[str, int]]:
        """A row per node, with the rounds since it spoke: all of them if it never did."""
        return [{"node": node, "asked": own.asked, "spoke": own.spoke, "silent": own.silent,
                 "silent_in_a_row": own.in_a_row, "last_spoke": own.last_spoke,
                 "rounds_since": round - own.last_spoke}
                for node, own in sorted(self.items())]  # fmt: skip

    def table(self) -> np.ndarray:
        """A row per node, its id first."""
        rows = [(node, *astuple(own)) for node, own in sorted(self.items())]
        return np.array(rows, np.uint64).reshape(len(self), -1)

    @classmethod
    def of(cls, table: np.ndarray) -> "Nodes":
        """What `table` made."""
        return cls({int(row[0]): Node(*map(int, row[1:])) for row in table})

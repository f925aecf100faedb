"""What people see of a run: a row per round and per node, and lines in the log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from typing import Any

from taciturn.core.server import RoundInfo
from taciturn.federation.aggregation import Round

Rows = Sequence[Mapping[str, Any]]  # of rounds

_ENOUGH = 10  # rounds after which a run that saves little says so
_PATIENCE = 10  # times that a node is asked and not heard before the log says so
# Of `row`; an app's own columns have other names.
_COLUMNS = (
    "round", "asked", "spoke", "silent", "rejected", "errors", "missing",  # are counted
    "threshold", "norm_mean", "norm_std",  # are measured
    "bytes_up", "bytes_always", "overhead_up", "bytes_up_full",  # a `Traffic`
    "bytes_down", "overhead_down", "bytes_down_full",
)  # fmt: skip


def row(now: Round, info: RoundInfo) -> dict[str, Any]:
    """The row of a round."""
    counted = (now.request.round, len(now.asked), int(info.spoke), int(info.silent),
               len(now.rejected), now.errors, now.missing)  # fmt: skip
    measured = (float(info.threshold), float(info.norm_mean), float(info.norm_std))
    crossed = (*now.up, now.down.payload, now.down.overhead, now.down.full)
    return dict(zip(_COLUMNS, counted + measured + crossed, strict=True))


def numbers(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of an app as columns: under their names, unless a row has them; no NaN."""
    columns = {}
    for key, value in metrics.items():
        if isinstance(value, int | float) and not math.isnan(value):
            name = key if key.startswith(prefix) else prefix + key
            columns[f"app_{name}" if name in _COLUMNS else name] = float(value)
    return columns


def log_round(log: Logger, row: Mapping[str, Any], reasons: Sequence[str]) -> None:
    """Says in one line what came of a round, and why replies were rejected."""
    up, full = row["bytes_up"] + row["overhead_up"], row["bytes_up_full"]
    log.info("Taciturn: round %(round)d: %(spoke)d of %(asked)d spoke, %(silent)d silent, "
             "%(rejected)d rejected, %(errors)d errors, %(missing)d missing; %(sent)s",
             {**row, "sent": f"uploaded {up:,} bytes ({100 * up / max(full, 1):.3g} %)"
              + "".join(f". Rejected: {reason}" for reason in dict.fromkeys(reasons))})  # fmt: skip


def log_upload(log: Logger, rows: Rows, engine: str = "", rounds: int | None = None) -> None:
    """Says what was uploaded, beside what everyone's weights would have taken: at the end of a run,
    with the `engine` named, and once while its `rounds` run, if it is more than half."""
    up, own, full = (
        sum(row[key] for row in rows) for key in ("bytes_up", "overhead_up", "bytes_up_full")
    )
    share = 100 * (up + own) / full if full else 0.0
    if engine:
        log.info("Taciturn: uploaded %s of %s bytes (%.3g %%), of which messages %s, %s's own %s.",
                 f"{up + own:,}", f"{full:,}", share, f"{up:,}", engine, f"{own:,}")  # fmt: skip
    elif share > 50 and len(rows) == min(_ENOUGH, rounds or _ENOUGH):
        log.warning("Taciturn: after %d rounds, the upload is %.3g %% of what it would be if "
                    "everyone sent their weights.", len(rows), share)  # fmt: skip


@dataclass
class Node:
    """A node's record, over the rounds in which its reply counted."""

    asked: int = 0
    spoke: int = 0
    silent: int = 0
    in_a_row: int = 0  # how often it was silent since it last spoke
    last_spoke: int = 0  # the round in which it did; 0 if never
    without_mod: int = 0  # 1 once it has replied without `speak()`


class Nodes(dict[str, Node]):
    """Records by node: how often it was asked, how often it spoke, and when last."""

    def __missing__(self, node: str) -> Node:
        return self.setdefault(node, Node())

    def note(self, now: Round) -> None:
        """Adds a round. Says once which nodes lack the mod, and which are asked and never heard."""
        new = []
        for reply in now.speakers:
            own = self[reply.node]
            own.spoke, own.in_a_row, own.last_spoke = own.spoke + 1, 0, now.request.round
            if reply.report is None and reply.remark is None and not own.without_mod:
                own.without_mod = 1
                new.append(reply.node)
        for reply in now.silent:
            own = self[reply.node]
            own.silent, own.in_a_row = own.silent + 1, own.in_a_row + 1
        if new:
            now.log.warning("Taciturn: nodes without `speak()` among their mods send their weights "
                            "whole, in every round: %s.", ", ".join(new))  # fmt: skip
        for node in now.asked:
            own = self[node]
            own.asked += 1
            if not own.spoke and own.asked == _PATIENCE + 1:
                now.log.warning("Taciturn: node %s was asked %d times, was silent %d times and has "
                                "never been heard.", node, own.asked, own.silent)  # fmt: skip

    def rows(self, round: int) -> list[dict[str, Any]]:
        """A row per node, with the rounds since it spoke: all of them if it never did."""
        return [{"node": node, "asked": own.asked, "spoke": own.spoke, "silent": own.silent,
                 "silent_in_a_row": own.in_a_row, "last_spoke": own.last_spoke,
                 "rounds_since": round - own.last_spoke}
                for node, own in sorted(self.items())]  # fmt: skip

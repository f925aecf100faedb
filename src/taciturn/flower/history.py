"""What people see of a run: a row per round, and lines in the log."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import INFO, WARNING
from typing import Any, NamedTuple

from flwr.supercore import log

from taciturn.core.server import RoundInfo
from taciturn.flower.aggregation import Round, RoundReplies

_ROUND, _ROUNDS = "[ROUND %s/%s]", "\t├── Number of rounds: %d"  # Flower's own lines
_RECEIVED = "%s: Received %s results and %s failures"
_ENOUGH = 10  # rounds after which a run that saves little says so


class Row(NamedTuple):
    """What the history keeps of a round; an app's own columns have other names."""

    round: int
    asked: int
    spoke: int
    silent: int
    rejected: int
    errors: int
    missing: int
    threshold: float
    norm_mean: float
    norm_std: float
    bytes_up: int
    bytes_always: int
    overhead_up: int
    bytes_up_full: int
    bytes_down: int
    overhead_down: int
    bytes_down_full: int


def row(round: int, now: Round, heard: RoundReplies, info: RoundInfo) -> dict[str, Any]:
    """The row of a round."""
    norms = (float(info.threshold), float(info.norm_mean), float(info.norm_std))
    up = (heard.payload_up, heard.payload_always, heard.bytes_up - heard.payload_up)
    down = (now.payload_down, now.bytes_down - now.payload_down, now.bytes_down_full)
    return Row(
        round, len(now.asked), int(info.spoke), int(info.silent), heard.rejected, heard.errors,
        heard.missing, *norms, *up, heard.bytes_up_full, *down,
    )._asdict()  # fmt: skip


def numbers(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of an app as columns: under their names, unless a `Row` has them; no NaN."""
    columns = {}
    for key, value in metrics.items():
        if isinstance(value, int | float) and not math.isnan(value):
            name = key if key.startswith(prefix) else prefix + key
            columns[f"app_{name}" if name in Row._fields else name] = float(value)
    return columns


def log_upload(rows: Sequence[Mapping[str, Any]], ended: bool, rounds: int | None = None) -> None:
    """Says at the end of a run what was uploaded, beside what everyone's weights would have taken;
    and once while it runs, where that is more than half. `rounds` is how many the run has."""
    up, own, full = (
        sum(row[key] for row in rows) for key in ("bytes_up", "overhead_up", "bytes_up_full")
    )
    share = 100 * (up + own) / full if full else 0.0
    if ended:
        log(INFO, "Taciturn: uploaded %s of %s bytes (%.3g %%), of which messages %s, Flower's own "
            "%s.", f"{up + own:,}", f"{full:,}", share, f"{up:,}", f"{own:,}")  # fmt: skip
    elif share > 50 and len(rows) == min(_ENOUGH, rounds or _ENOUGH):
        log(WARNING, "Taciturn: after %d rounds, the upload is %.3g %% of what it would be if "
            "everyone sent their weights.", len(rows), share)  # fmt: skip


def log_round(row: Mapping[str, Any], reasons: Sequence[str]) -> None:
    """Says in one line what came of a round, and why replies were rejected."""
    up, full = row["bytes_up"] + row["overhead_up"], row["bytes_up_full"]
    log(INFO, "Taciturn: round %(round)d: %(spoke)d of %(asked)d spoke, %(silent)d silent, "
        "%(rejected)d rejected, %(errors)d errors, %(missing)d missing; %(sent)s",
        {**row, "sent": f"uploaded {up:,} bytes ({100 * up / max(full, 1):.3g} %)"
         + "".join(f". Rejected: {reason}" for reason in dict.fromkeys(reasons))})  # fmt: skip


@contextmanager
def counting_on(done: int, total: int) -> Iterator[None]:
    """A block in which Flower's rounds are counted over all starts."""

    def change(record: logging.LogRecord) -> bool:
        if record.msg == _ROUND and isinstance(record.args, tuple):
            record.args = (int(f"{record.args[0]}") + done, total)
        elif record.msg == _ROUNDS:
            record.args = (total,)
        return True

    with _filtered(change):
        yield


def received(results: int, failures: int) -> None:
    """Flower's line about the replies of a round."""
    log(INFO, _RECEIVED, "aggregate_train", results, failures)


@contextmanager
def received_already() -> Iterator[None]:
    """A block in which a strategy does not count what it was handed."""
    with _filtered(lambda record: record.msg != _RECEIVED):
        yield


@contextmanager
def _filtered(keep: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    logger = logging.getLogger("flwr")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)

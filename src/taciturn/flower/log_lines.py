"""Flower's own lines in the log: rounds counted over all starts, and replies once."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flwr.supercore import log

_ROUND, _ROUNDS = "[ROUND %s/%s]", "\t├── Number of rounds: %d"
_RECEIVED = "%s: Received %s results and %s failures"


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
    log(logging.INFO, _RECEIVED, "aggregate_train", results, failures)


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

"""Ctrl-C and SIGTERM, noted instead of acted on, so that what is under way can end and be saved."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def noted() -> Iterator[Callable[[], int]]:
    """A block that asks whether it should stop; a second signal stops it at once.

    Yields a function that returns the number of the signal that came, 0 before. Signals reach the
    main thread alone: in another one nothing changes.
    """
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        came.append(number)
        _put_back(before)
        sys.stderr.write("\ntaciturn: stopping when these rounds are saved; again: at once\n")

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came[0] if came else 0
    finally:
        _put_back(before)


def _put_back(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)

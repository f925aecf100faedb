"""What counts as refusing: an error, soon, without much memory, and before anything trains."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from taciturn.sim import engine, reference

SECONDS = 30
MOST = 1 << 30  # bytes


class Accepted(BaseException):
    """Bad input was taken for good; no `except Exception` on the way catches this."""


@contextmanager
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A block that may not train, hang, or take more than a GB."""

    def accept(*_: Any, **__: Any) -> Any:
        raise Accepted("the input was accepted")

    def give_up(*_: Any) -> None:
        raise Accepted(f"nothing was said for {SECONDS} s")

    for module in (engine, reference):
        monkeypatch.setattr(module, "stream", accept)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(SECONDS)
    try:
        yield
    finally:
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)
    assert _memory("VmHWM") - before < MOST


def _memory(key: str) -> int:
    """Bytes of this process, where the system tells."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0

"""What counts as refusing: an error, soon, without much memory, and before anything trains."""

import functools
import signal
from contextlib import suppress
from pathlib import Path

import files
import pytest

from taciturn.sim import engine, reference
from taciturn.tasks import TASKS

SYNTHETIC = functools.cache(TASKS["synthetic"])  # drawn once
SECONDS = 30
MOST = 1 << 30  # bytes


class Accepted(BaseException):
    """Bad input was taken for good; no `except Exception` on the way catches this."""


@pytest.fixture(scope="session")
def places(tmp_path_factory):
    """The wrong files, made once."""
    return files.make(tmp_path_factory.mktemp("wrong"))


@pytest.fixture(autouse=True)
def refusing(tmp_path, monkeypatch):
    """An empty folder, and a test that may not train, hang, or take more than a GB."""

    def accept(*_):
        raise Accepted(f"the input was accepted, or nothing was said for {SECONDS} s")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACITURN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TACITURN_DATA", raising=False)
    monkeypatch.setitem(TASKS, "synthetic", SYNTHETIC)
    for module in (engine, reference):
        monkeypatch.setattr(module, "stream", accept)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    signal.signal(signal.SIGALRM, accept)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    assert memory("VmHWM") - before < MOST


def memory(key):
    """Bytes of this process, where the system tells."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0

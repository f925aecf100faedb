"""What the machine tells, on systems that tell less than Linux does."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest

from taciturn.sim import devices


def test_without_a_file_of_linux_memory_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no /proc: what is asked is psutil, which asks each system in its own way."""
    opened = builtins.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return opened(path, *args, **kwargs)

    total = psutil.virtual_memory()
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(io, "open", refuse)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: total)
    assert devices.memory() == total.available // len(jax.local_devices())


def test_without_affinity_all_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert devices._cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert devices._cores() == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_with_affinity_those_of_this_process_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert devices._cores() == 3


def test_compiled_programs_lie_in_the_cache_folder_that_was_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "my cache"
    code = "import jax, taciturn; taciturn.prepare(); print(jax.config.jax_compilation_cache_dir)"
    variables = {key: value for key, value in os.environ.items() if "COMPILATION" not in key}
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env=variables | {"TACITURN_CACHE": str(folder), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert Path(found.stdout.strip()) == folder / "compiled"
    assert (folder / "compiled").is_dir()


_TWO_SEEDS = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
from dataclasses import replace
import taciturn
from small_tasks import lstm
task = replace(lstm(), init=taciturn.models.CharLSTM)
taciturn.simulate(task, "full", rounds=1, cohort=2, seeds=2)
"""


@pytest.mark.slow
def test_seeds_of_an_lstm_begin_on_two_cores() -> None:
    """Its first weights come from two QR factorisations per seed; with the seeds of both batched,
    each takes one of the two threads and waits for the other one for ever."""
    subprocess.run(
        [sys.executable, "-c", _TWO_SEEDS], check=True, timeout=300, cwd=Path(__file__).parent
    )

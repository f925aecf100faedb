"""Devices: lanes on many of them, in one process and in two, give what one device gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
import pytest

import taciturn
from taciturn.errors import InputError
from taciturn.sim import devices

# The same experiment in every process: six arms, two seeds, uneven clients.
SCRIPT = """
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

if len(sys.argv) > 3:
    # Before anything else: devices are counted when they are first used.
    jax.distributed.initialize(sys.argv[3], num_processes=2, process_id=int(sys.argv[4]))

import taciturn
from taciturn.sim import engine, rounds as engine_rounds
from taciturn.progress import Progress

rng = np.random.default_rng(0)
sizes = [3, 12, 5, 20, 7, 1, 30]
n = sum(sizes)
y = rng.integers(0, 3, n + 31).astype(np.int32)
x = (rng.normal(0, 0.5, (len(y), 2)) + np.array([[0, 1], [1, -1], [-1, -1]])[y]).astype("f4")
loss, metrics = taciturn.classification(lambda p, x, key: x @ p["w"] + p["b"])
task = taciturn.Task(
    "tiny",
    taciturn.Stored.of({"x": x[:n], "y": y[:n]}, sizes),
    init=lambda key: {"w": jax.random.normal(key, (2, 3)), "b": jnp.zeros(3)},
    loss=loss, metrics=metrics, test={"x": x[n:], "y": y[n:]}, batch=5, lr=0.5,
)
arms = {a: a for a in (
    "full", "adaptive,k=0+ou", "random:0.5+last", "random:0.5+zero+top_k:0.3,feedback=true",
    "adaptive,k=0+ignore+eden:0.5", "full+quantize:4", "budget:200B",
)}
# Processes that would have chunks of one round and of many: they have to agree.
engine._CHUNK_SECONDS = 0.0 if jax.process_index() else 1e9
found, told = {}, []
for rounds in (1, 6):
    for name, history in taciturn.compare(
        task, arms, rounds=rounds, cohort=5, seeds=2, evaluate_every=4, progress=told.append
    ).items():
        for key in ("weights", "spoke", "rejected", "bytes_up", "norm_mean", "loss", "accuracy"):
            found[f"{rounds} {name} {key}"] = getattr(history, key)
# Devices share the rows of the candidates, in batches of 8.
engine_rounds._TEST_BATCH = 8
chosen = taciturn.simulate(task, "full", rounds=6, cohort=3, choice=5, seeds=2)
found["chosen weights"] = chosen.weights
found["chosen clients"] = chosen.participation.client
found["chunks"] = [p.round for p in told if isinstance(p, Progress)]
assert len(jax.devices()) == int(sys.argv[2]), jax.devices()
np.savez(Path(sys.argv[1]), **found)
"""


def environment(count: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={count}"
    source = str(Path(taciturn.__file__).parents[1])
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": source}


def start(file: Path, count: int, total: int, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(file), str(total), *more],
        env=environment(count), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], file: Path) -> dict[str, np.ndarray]:
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    with np.load(file) as found:
        return dict(found)


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    file = tmp_path_factory.mktemp("one") / "found.npz"
    return finish(start(file, 1, 1), file)


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if key == "chunks":
            continue
        if key.endswith(("spoke", "rejected", "bytes_up")):
            np.testing.assert_array_equal(ours[key], value, key)
            continue
        # 1e-6 after a round; what follows builds on it.
        tolerance = 1e-6 if key.startswith("1 ") else 1e-5
        np.testing.assert_allclose(ours[key], value, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.slow
def test_eight_devices_in_one_process(on_one_device: dict[str, np.ndarray], tmp_path: Path) -> None:
    file = tmp_path / "found.npz"
    assert_same(finish(start(file, 8, 8), file), on_one_device)


@pytest.mark.slow
@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_two_processes(each: int, on_one_device: dict[str, np.ndarray], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    files = [tmp_path / f"{i}.npz" for i in (0, 1)]
    processes = [start(file, each, 2 * each, address, str(i)) for i, file in enumerate(files)]
    try:
        found = [finish(*pair) for pair in zip(processes, files, strict=True)]
    finally:
        for process in processes:
            process.kill()
    assert_same(found[0], on_one_device)
    # Without agreement, the first process would not stop after rounds 2 and 3.
    assert {2, 3} <= set(found[0]["chunks"].tolist())
    for key, value in found[0].items():
        np.testing.assert_array_equal(found[1][key], value, key)


def test_devices_that_are_not_there() -> None:
    here = devices.mesh().devices.size
    assert devices.mesh(1).devices.size == 1
    for count in (0, here + 1):
        with pytest.raises(InputError, match=rf"`devices` must be in \[1, {here}\], got {count}"):
            devices.mesh(count)
    with pytest.raises(InputError, match="`devices` must be in"):
        taciturn.simulate("synthetic", "full", devices=here + 1)


def run_python(code: str, **variables: Any) -> str:
    base = {key: value for key, value in environment(1).items() if key != "XLA_FLAGS"}
    return subprocess.run(
        [sys.executable, "-c", code], env=base | variables, text=True, check=True,
        capture_output=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    ("before", "flags", "expected"),
    [
        ("", "", len(os.sched_getaffinity(0))),
        ("jax.config.update('jax_num_cpu_devices', 5)", "", 5),
    ],
    ids=["nothing set", "config"],
)
def test_cores_become_devices_unless_something_else_was_said(
    before: str, flags: str, expected: int
) -> None:
    code = (
        f"import jax\n{before}\nfrom taciturn.sim.devices import use_cores\nuse_cores()\n"
        "print(len(jax.devices()))"
    )
    assert run_python(code, XLA_FLAGS=flags) == str(expected)


class Device:
    """One that knows its memory, or does not."""

    def __init__(self, stats: dict[str, int] | None) -> None:
        self.memory_stats = lambda: stats


def test_memory_is_what_the_device_says(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"bytes_in_use": 5, "bytes_limit": 12_345}
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(stats)] * 2)
    assert devices.memory() == 12_345


@pytest.mark.parametrize("stats", [None, {}, {"bytes_in_use": 5}])
def test_devices_that_do_not_say_share_what_the_system_has(
    stats: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = types.SimpleNamespace(total=9_000, available=6_001, free=5_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(stats)] * 2)
    assert devices.memory() == 6_001 // 2

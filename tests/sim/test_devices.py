"""Devices: lanes on many of them, in one process and in two, give what one device gives; and what a
machine tells of its cores and its memory, on systems that tell less than Linux does."""

import os
import socket
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import psutil
import pytest

import taciturn
from taciturn.sim import devices

# The same experiment in every process: seven arms, two seeds, uneven clients.
SCRIPT = """
import sys
from pathlib import Path

import jax
import numpy as np

if len(sys.argv) > 3:
    # Before anything else: devices are counted when they are first used.
    jax.distributed.initialize(sys.argv[3], num_processes=2, process_id=int(sys.argv[4]))

import taciturn
from taciturn.sim import engine, rounds as engine_rounds
from taciturn.progress import Progress
from small_tasks import tiny

task = tiny()
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


def environment(count):
    flags = f"--xla_force_host_platform_device_count={count}"
    source = str(Path(taciturn.__file__).parents[1])
    path = os.pathsep.join([source, str(Path(__file__).parent)])
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}


def start(file, count, total, *more):
    command = [sys.executable, "-c", SCRIPT, str(file), str(total), *more]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment(count), **streams)


def finish(process, file):
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    with np.load(file) as found:
        return dict(found)


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory):
    file = tmp_path_factory.mktemp("one") / "found.npz"
    return finish(start(file, 1, 1), file)


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key in theirs.keys() - {"chunks"}:
        # 1e-6 after a round; what follows builds on it.
        near = 1e-6 if key.startswith("1 ") else 1e-5
        if key.endswith(("spoke", "rejected", "bytes_up")):
            near = 0
        np.testing.assert_allclose(ours[key], theirs[key], rtol=near, atol=near, err_msg=key)


@pytest.mark.slow
def test_eight_devices_in_one_process(on_one_device, tmp_path):
    file = tmp_path / "found.npz"
    assert_same(finish(start(file, 8, 8), file), on_one_device)


@pytest.mark.slow
def test_two_processes(on_one_device, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    files = [tmp_path / f"{i}.npz" for i in (0, 1)]
    processes = [start(file, 2, 4, address, str(i)) for i, file in enumerate(files)]
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


def run_python(code, **variables):
    base = {name: value for name, value in environment(1).items() if "COMPILATION" not in name}
    return subprocess.run(
        [sys.executable, "-c", code], env=base | {"XLA_FLAGS": ""} | variables, text=True,
        check=True, capture_output=True, timeout=300,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", len(os.sched_getaffinity(0))), ("jax.config.update('jax_num_cpu_devices', 5)", 5)],
    ids=["nothing set", "config"],
)
def test_cores_become_devices_unless_something_else_was_said(before, expected):
    then = "from taciturn.sim.devices import use_cores\nuse_cores()\nprint(len(jax.devices()))"
    assert run_python(f"import jax\n{before}\n{then}") == str(expected)


def test_compiled_programs_lie_in_the_cache_folder_that_was_chosen(tmp_path):
    folder = tmp_path / "my cache"
    code = "import jax, taciturn; taciturn.prepare(); print(jax.config.jax_compilation_cache_dir)"
    assert Path(run_python(code, TACITURN_CACHE=str(folder))) == folder / "compiled"
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
def test_seeds_of_an_lstm_begin_on_two_cores():
    """Its first weights come from two QR factorisations per seed; with the seeds of both batched,
    each takes one of the two threads and waits for the other one for ever."""
    run_python(_TWO_SEEDS)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [({"bytes_in_use": 5, "bytes_limit": 12_345}, 12_345), ({}, 3_000), (None, 3_000)],
)
def test_memory_is_what_the_device_says_or_a_share_of_the_systems(stats, expected, monkeypatch):
    free = types.SimpleNamespace(total=9_000, available=6_001, free=5_000)
    device = types.SimpleNamespace(memory_stats=lambda: stats)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(jax, "local_devices", lambda: [device] * 2)
    assert devices.memory() == expected


@pytest.mark.parametrize("cores", [7, None])
def test_where_the_system_knows_no_affinity_all_cores_count(cores, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert devices._cores() == (cores or 1)

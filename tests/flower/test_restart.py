"""A run that is started again ends bit for bit where it would have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from federation import LocalGrid, flat, model, pulled, record
from flwr.app import MetricRecord
from test_flower import EXAMPLES, MEAN_BASED, NODES, SIZE, targets
from test_state import Killed

from taciturn import TaciturnError, runs
from taciturn.flower import Taciturn, speak
from taciturn.flower import mod as client_mod

POLICIES = [
    "full", "adaptive,k=0.3+ou", "adaptive,k=0.3,weighted=false+ou,cap=true", "fixed:0.7+last",
    "adaptive,k=0.3,robust=true,at_most=2+ou", "adaptive,k=-0.2,robust=true+ignore",
    "adaptive,k=0.7+ou,mode=paper", "adaptive,k=0.3+zero+quantize:2", "adaptive,k=0.1+ou+eden:0.5",
    "adaptive,k=0.1+ou+top_k:0.3", "random:0.5+ou", "optimal:0.5+zero", "optimal:0.4+last+eden:1",
    "budget:5%",
]  # fmt: skip


def toss(message, context, call_next):
    """A mod around `speak`: a node's draw follows from round and node, not from the system."""
    draws = np.random.default_rng((message.content["config"]["server-round"], context.node_id))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_mod, "_uniform", draws.random)
        return call_next(message, context)


def start(folder, rounds, policy, inner="FedAvg", nodes=NODES, dtype="float32", **options):
    strategy = Taciturn(MEAN_BASED[inner](), policy, folder=folder, seed=5)
    grid = LocalGrid(pulled(targets(nodes=nodes), EXAMPLES, mods=[toss, speak()]), nodes)
    first = record(**{name: a.numpy().astype(dtype) for name, a in model(SIZE).items()})
    return strategy, strategy.start(grid, first, num_rounds=rounds, **options)


def assert_same(ours, theirs):
    """Model, history, results and what the server remembers: bits and types."""
    (a, found), (b, expected) = ours, theirs
    np.testing.assert_array_equal(flat(found.arrays), flat(expected.arrays))
    assert repr(a.history) == repr(b.history)
    for x, y in zip(a._memory.rule + tuple(a._memory.stand_in),
                    b._memory.rule + tuple(b._memory.stand_in), strict=True):  # fmt: skip
        assert type(x) is type(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)
    assert repr(found.train_metrics_clientapp) == repr(expected.train_metrics_clientapp)
    assert a.nodes == b.nodes


@pytest.mark.parametrize("nodes", [2, NODES])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_goes_on_bit_for_bit(policy, dtype, nodes, tmp_path):
    whole = start(None, 6, policy, nodes=nodes, dtype=dtype)

    for last in (1, 3):

        def dying(round, arrays, last=last):
            if round == last:
                raise Killed

        with pytest.raises(Killed):
            start(tmp_path, 6, policy, nodes=nodes, dtype=dtype, evaluate_fn=dying)
    assert_same(start(tmp_path, 6, policy, nodes=nodes, dtype=dtype), whole)


def evaluate(round, arrays):
    return MetricRecord({"accuracy": round / 10, "f1": round / 7, "steps": round})


def test_results_and_log_count_on(tmp_path, caplog):
    _, expected = start(None, 5, "full", evaluate_fn=evaluate)
    start(tmp_path, 3, "full", evaluate_fn=evaluate)
    caplog.clear()
    strategy, result = start(tmp_path, 5, "full", evaluate_fn=evaluate)
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2, 3, 4, 5]
    assert result.evaluate_metrics_serverapp == expected.evaluate_metrics_serverapp
    assert [line for line in caplog.messages if line.startswith("[ROUND")] == [
        "[ROUND 4/5]", "[ROUND 5/5]"
    ]  # fmt: skip
    assert "Number of rounds: 5" in caplog.text
    assert [row["f1"] for row in strategy.history] == [t / 7 for t in range(1, 6)]
    assert [row["steps"] for row in runs.read_csv(tmp_path / "metrics.csv")] == [
        "1.0", "2.0", "3.0", "4.0", "5.0"
    ]  # fmt: skip


def test_a_folder_has_one_server(tmp_path):
    def second(round, arrays):
        if round == 1:
            with pytest.raises(TaciturnError, match="is in use: another process is writing"):
                start(tmp_path, 2, "full")

    start(tmp_path, 2, "full", evaluate_fn=second)


SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_restart import start
start(sys.argv[2], 400, sys.argv[3], sys.argv[4])
"""


def written(folder):
    state = folder / "state.json"
    return state.stat().st_mtime_ns if state.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_killed_processes_go_on_bit_for_bit(seed, tmp_path):
    """`kill −9` after a random time, five times over."""
    draws = np.random.default_rng(seed)
    policy, inner = POLICIES[3 * seed % len(POLICIES)], ["FedAvg", "FedAdam"][seed % 2]
    folder = tmp_path / "run"
    command = [sys.executable, "-c", SERVER, str(Path(__file__).parent), str(folder), policy, inner]
    killed = 0
    for _ in range(5):
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = written(folder)
        while written(folder) == before and server.poll() is None:
            time.sleep(0.01)
        timer = threading.Timer(draws.uniform(0, 0.2), os.kill, (server.pid, signal.SIGKILL))
        timer.start()
        killed += server.wait() == -signal.SIGKILL
        timer.cancel()
    assert killed == 5
    assert_same(start(folder, 400, policy, inner), start(None, 400, policy, inner))

"""A run that is started again ends bit for bit where it would have ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from federation import NODES, LocalGrid, flat, model, pulled, record, targets
from flwr.serverapp import strategy as flower
from test_state import Killed

from taciturn.federation import client
from taciturn.flower import Taciturn, speak

POLICIES = [
    "full", "adaptive,k=0.3+ou", "fixed:0.7+last", "adaptive,k=0.3,robust=true,at_most=2+ou",
    "adaptive,k=-0.2,robust=true+ignore", "adaptive,k=0.7+ou,mode=paper",
    "adaptive,k=0.1+ou+eden:0.5", "random:0.5+ou", "optimal:0.4+last+eden:1", "budget:5%",
]  # fmt: skip


def toss(message, context, call_next):
    """A mod around `speak`: a node's draw follows from round and node, not from the system."""
    draws = np.random.default_rng((message.content["config"]["server-round"], context.node_id))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_uniform", draws.random)
        return call_next(message, context)


def written(folder):
    """When the state in a folder was written; 0 where there is none."""
    state = Path(folder, "state.json")
    return state.stat().st_mtime_ns if state.exists() else 0


def start(folder, rounds, policy, inner="FedAvg", nodes=NODES, dtype="float32", **options):
    inner = getattr(flower, inner)(fraction_evaluate=0.0)
    goes_on = folder is not None and written(folder)  # and has the seed in its state
    strategy = Taciturn(inner, policy, folder=folder, seed=None if goes_on else 5)
    grid = LocalGrid(pulled(targets(nodes=nodes), mods=[toss, speak()]), nodes)
    first = record(**{name: a.numpy().astype(dtype) for name, a in model().items()})
    return strategy, strategy.start(grid, first, num_rounds=rounds, **options)


def assert_same(ours, theirs):
    """Model, history, results and what the server remembers: bits and types."""
    (a, found), (b, expected) = ours, theirs
    np.testing.assert_array_equal(flat(found.arrays), flat(expected.arrays))
    assert repr(a.history) == repr(b.history)
    for x, y in zip(a.memory.rule + tuple(a.memory.stand_in),
                    b.memory.rule + tuple(b.memory.stand_in), strict=True):  # fmt: skip
        assert type(x) is type(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)
    assert repr(found.train_metrics_clientapp) == repr(expected.train_metrics_clientapp)
    assert a.nodes == b.nodes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_goes_on_bit_for_bit(policy, dtype, tmp_path):
    nodes = 2 if dtype == "float16" else NODES
    whole = start(None, 6, policy, nodes=nodes, dtype=dtype)
    for last in (1, 3):

        def dying(round, arrays, last=last):
            if round == last:
                raise Killed

        with pytest.raises(Killed):
            start(tmp_path, 6, policy, nodes=nodes, dtype=dtype, evaluate_fn=dying)
    assert_same(start(tmp_path, 6, policy, nodes=nodes, dtype=dtype), whole)


SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_restart import start
start(sys.argv[2], 400, sys.argv[3], sys.argv[4])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_killed_processes_go_on_bit_for_bit(seed, tmp_path):
    """`kill −9` after a random time, five times over."""
    draws = np.random.default_rng(seed)
    policy, inner = POLICIES[3 * seed % len(POLICIES)], ["FedAvg", "FedAdam"][seed % 2]
    command = [sys.executable, "-c", SERVER, str(Path(__file__).parent), str(tmp_path), policy,
               inner]  # fmt: skip
    killed = 0
    for _ in range(5):
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = written(tmp_path)
        while written(tmp_path) == before and server.poll() is None:
            time.sleep(0.01)
        timer = threading.Timer(draws.uniform(0, 0.2), os.kill, (server.pid, signal.SIGKILL))
        timer.start()
        killed += server.wait() == -signal.SIGKILL
        timer.cancel()
    assert killed == 5
    assert_same(start(tmp_path, 400, policy, inner), start(None, 400, policy, inner))
    assert not list(tmp_path.glob(".*state*"))  # nothing is left of what they had begun to write


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_five_hundred_rounds_need_no_more_memory_than_fifty():
    subprocess.run([sys.executable, str(Path(__file__).with_name("memory.py"))], check=True)

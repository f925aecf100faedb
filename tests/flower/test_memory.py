"""A server's memory does not grow with the rounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

SERVER = """
import gc, json, logging, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from federation import LocalGrid, pulled, record
from flwr.serverapp import strategy as flower
from taciturn.flower import Taciturn

logging.getLogger("flwr").setLevel("ERROR")
size, held = 50_000, []
wanted = (1 + np.random.default_rng(0).standard_normal((5, size))).astype("f4")

def look(round, arrays):
    if round >= 50 and round % 10 == 0:
        with open("/proc/self/statm") as file:
            held.append(int(file.read().split()[1]) * 4096)

strategy = Taciturn(flower.FedAdam(fraction_evaluate=0.0), folder=sys.argv[2])
strategy.start(LocalGrid(pulled(wanted, [10] * 5), 5), record(w=np.zeros(size, "f4")),
               num_rounds=500, evaluate_fn=look)
print(json.dumps(held))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_five_hundred_rounds_need_no_more_than_fifty(tmp_path):
    command = [sys.executable, "-c", SERVER, str(Path(__file__).parent), str(tmp_path / "run")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    held = json.loads(done.stdout.splitlines()[-1])
    assert len(held) == 46
    assert max(held) < 1.05 * held[0]
    assert min(held) > 0.95 * held[0]

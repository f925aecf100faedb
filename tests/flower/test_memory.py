"""A server's memory does not grow with the rounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

PROGRAM = Path(__file__).with_name("memory.py")
RECORD = Path(__file__).parents[1] / "records" / "memory.json"


def flat(found):
    return found["least"] > 0.95 and found["most"] < 1.05


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_five_hundred_rounds_need_no_more_than_fifty():
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert flat(json.loads(done.stdout.splitlines()[-1]))

"""The peers benchmark's own judgement: that all sides do the same work, or that it says so."""

import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    names = ("common", "run", "taciturn_side")
    yield lambda name: __import__(name)
    for name in names:
        sys.modules.pop(name, None)


def test_losses_that_differ_are_noticed(peers):
    def report(loss):
        return {"side": "", "seconds": [1.0], "examples": [2000], "loss": loss, "accuracy": 0.5,
                "weights": 1, "versions": {"python": "3"}, "device": None}  # fmt: skip

    ours = [report(loss) for loss in (2.0, 2.01, 1.99)]
    for pfl, without, agree in (
        (2.0, 3.0005, True),
        (2.0, 3.0020, False),  # rounding is not that large
        (2.3, 3.0005, False),  # nor is chance
    ):
        theirs = [report(loss) for loss in (pfl + 0.01, pfl - 0.01, pfl)]
        found = peers("run").summarise(
            "cnn", {"pfl": theirs, "taciturn": ours}, {"pfl": without, "taciturn": 3.0}
        )
        assert found["agree"] is agree

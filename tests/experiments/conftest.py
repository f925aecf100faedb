"""The experiments lie beside the package, in the repository's root."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def counted(monkeypatch):
    """The policies and seeds of every piece that is run."""
    from experiments.common import pieces

    calls, inner = [], pieces.compare

    def compare(task, policies, **settings):
        calls.append((list(policies), settings["seeds"]))
        return inner(task, policies, **settings)

    monkeypatch.setattr(pieces, "compare", compare)
    return calls

"""How Flower's tests run."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> Iterator[None]:
    """Some of Flower's strategies collect garbage at every reply: not that of earlier tests."""
    gc.freeze()
    yield
    gc.unfreeze()

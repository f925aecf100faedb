"""How Flower's tests run."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st


@given(st.none())
def any_property(_: None) -> None: ...


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> Iterator[None]:
    """Some of Flower's strategies collect garbage at every reply: not that of earlier tests."""
    any_property()  # the first one's random numbers would not be found in a heap that is frozen
    gc.freeze()
    yield
    gc.unfreeze()

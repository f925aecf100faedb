"""Without flwr there is nothing to collect here."""

import gc
import warnings
from collections.abc import Iterator

import pytest

collect_ignore_glob = []
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of what it imports
        import flwr  # noqa: F401
except ImportError:
    collect_ignore_glob = ["*"]


@pytest.fixture(autouse=True)
def small_heap() -> Iterator[None]:
    """Flower collects garbage whenever it reads arrays: not through all that JAX has compiled."""
    gc.freeze()
    yield
    gc.unfreeze()

"""How tests run: JAX on the CPU, the same examples every time, no silent promotion in the core.

Strict dtype and rank promotion hold in the tests of the core, which is written for any array
library. Tasks are user code and Optax's adam and yogi mix dtypes, so simulations run without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings

settings.register_profile("taciturn", derandomize=True, deadline=None, database=None)
settings.load_profile("taciturn")


@pytest.fixture(autouse=True)
def strict_promotion(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name not in ("core", "contract"):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield

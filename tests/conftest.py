"""How tests run: JAX on the CPU, no silent promotion in our own code, the same examples every time.

Strict promotion and rank checks are on for the whole suite. Optax's adam and yogi mix dtypes in a
way that strict promotion refuses, so tests that use them ask for `standard_promotion`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("laconic", derandomize=True, deadline=None, database=None)
settings.load_profile("laconic")


@pytest.fixture
def standard_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("standard"):
        yield

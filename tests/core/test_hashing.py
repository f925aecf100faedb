"""Hashed bits: the same in every array library, and random enough."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.core.hashing import bits, fold, mix

KEY = np.array([0xDEADBEEF, 0x12345678], np.uint32)


@pytest.mark.parametrize("number", [0, 7, 2**32 - 1])
def test_numpy_and_jax_hash_alike(number: int) -> None:
    folded = fold(KEY, number)
    traced = jax.jit(fold)(jnp.asarray(KEY), jnp.asarray(np.uint32(number)))
    np.testing.assert_array_equal(folded, traced)
    np.testing.assert_array_equal(bits(folded, (3, 5)), bits(traced, (3, 5)))
    assert folded.dtype == np.uint32


def test_the_finalizer_is_murmurs() -> None:
    """Values of MurmurHash3's fmix32, computed with Python's whole numbers."""

    def fmix32(x: int) -> int:
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        return x ^ x >> 16

    x = np.array([0, 1, 2**16, 0xCAFEBABE, 2**32 - 1], np.uint32)
    assert mix(x).tolist() == [fmix32(int(v)) for v in x]
    assert int(mix(x[3])) == fmix32(0xCAFEBABE)  # a single number wraps around without a warning


def test_numbers_beyond_a_word_wrap_around() -> None:
    np.testing.assert_array_equal(fold(KEY, 2**32 + 5), fold(KEY, 5))
    np.testing.assert_array_equal(fold(KEY, -1), fold(KEY, 2**32 - 1))


def test_folds_differ_and_bits_are_even() -> None:
    keys = {tuple(fold(KEY, n).tolist()) for n in range(2_000)}
    assert len(keys) == 2_000
    drawn = bits(KEY, (20_000,))
    for place in range(32):
        assert (
            abs(((drawn >> np.uint32(place)) & np.uint32(1)).mean() - 0.5) < 5 * 0.5 / 20_000**0.5
        )

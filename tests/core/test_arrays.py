"""Work in blocks gives what work in one piece gives; hashed bits are MurmurHash3's, and random
enough. Codecs' tests have NumPy and JAX hash alike."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.core import arrays
from taciturn.core.arrays import BLOCK
from taciturn.core.hashing import bits, fold, mix

leaves = jax.tree.leaves
sizes = pytest.mark.parametrize("size", [7, 3 * BLOCK + 5])


class Record(NamedTuple):
    count: Any
    a: Any
    b: Any


def swap_and_count(record):
    x, (count, a, b) = record
    return x + a * count, Record(count + 1, b - x, a * 2)


@sizes
@pytest.mark.parametrize("donate", [False, True])
def test_blocks_make_no_difference(size, donate):
    x, a, b = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
    copies = (x.copy(), Record(np.float32(3), a.copy(), b.copy()))
    got = arrays.in_blocks(swap_and_count, (x, Record(np.float32(3), a, b)), donate=donate)
    assert isinstance(got[1], Record)
    assert (got[0] is x, got[1].a is a) == (donate, donate)
    for ours, theirs in zip(leaves(got), leaves(swap_and_count(copies)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if not donate:
        for ours, before in zip((x, a, b), (copies[0], *copies[1][1:]), strict=True):
            np.testing.assert_array_equal(ours, before)


def test_a_donated_entry_may_take_the_place_of_another():
    def shift(record):
        mean, (last, _) = record
        return mean, (mean, last)

    record = (np.full(3, 3.0), (np.full(3, 2.0), np.full(3, 1.0)))
    mean, (last, before) = arrays.in_blocks(shift, record, donate=True)
    assert (mean[0], last[0], before[0]) == (3, 3, 2)


@sizes
@pytest.mark.parametrize("donate", [False, True])
def test_add_scaled(size, donate):
    total, x = np.arange(size, dtype=np.float32) % 64, (np.arange(size) % 32).astype(np.float16)
    before, expected = total.copy(), total + np.float32(3) * x.astype(np.float32)
    got = arrays.add_scaled(total, 3.0, x, donate=donate)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.float32
    assert (got is total) == donate
    if not donate:
        np.testing.assert_array_equal(total, before)


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_norm_over_many_weights_does_not_stall(xp):
    """One running float32 sum would stop at 2²⁴ equal squares; a norm may lose 1e-5 at most."""
    size = (1 << 24) + (1 << 23) + 11
    norm = arrays.norm if xp is np else jax.jit(arrays.norm)
    found = norm(xp.full(size, 1e-3, dtype=xp.float32))
    assert float(found) == pytest.approx(np.float32(1e-3) * size**0.5, rel=1e-5)


@pytest.mark.parametrize("xp", [np, jnp])
def test_norms_have_at_least_float32_and_may_overflow_without_a_warning(xp):
    half = xp.full(70_000, 200.0, dtype=xp.float16)  # its squares and their sum overflow float16
    assert arrays.norm(half).dtype == np.float32
    assert float(arrays.norm(half)) == pytest.approx(200 * 70_000**0.5, rel=1e-5)
    assert not np.isfinite(arrays.norm(xp.asarray([1.0, np.inf], dtype=xp.float32)))


def test_the_finalizer_is_murmurs():
    """Values of MurmurHash3's fmix32, computed with Python's whole numbers."""

    def fmix32(x):
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        return x ^ x >> 16

    x = np.array([0, 1, 2**16, 0xCAFEBABE, 2**32 - 1], np.uint32)
    assert mix(x).tolist() == [fmix32(int(v)) for v in x]
    assert int(mix(x[3])) == fmix32(0xCAFEBABE)  # a single number wraps around without a warning


def test_folds_differ_and_bits_are_even():
    key = np.array([0xDEADBEEF, 0x12345678], np.uint32)
    np.testing.assert_array_equal(fold(key, -1), fold(key, 2**32 - 1))  # a word wraps around
    assert len({tuple(fold(key, n).tolist()) for n in range(2_000)}) == 2_000
    places = (bits(key, (20_000,))[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(places.mean(axis=0) - 0.5).max() < 5 * 0.5 / 20_000**0.5

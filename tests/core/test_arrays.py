"""Work in blocks gives what work in one piece gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taciturn.core import arrays
from taciturn.core.arrays import BLOCK

SIZES = [7, BLOCK, 3 * BLOCK + 5]


class Record(NamedTuple):
    count: Any
    a: Any
    b: Any


def swap_and_count(record: tuple[Any, Record]) -> tuple[Any, Record]:
    x, (count, a, b) = record
    return x + a * count, Record(count + 1, b - x, a * 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("donate", [False, True])
def test_blocks_make_no_difference(size: int, donate: bool) -> None:
    rng = np.random.default_rng(size)
    x, a, b = rng.standard_normal((3, size)).astype(np.float32)
    record = (x, Record(np.float32(3), a, b))
    copies = (x.copy(), a.copy(), b.copy())
    expected = swap_and_count((copies[0], Record(np.float32(3), *copies[1:])))
    got = arrays.in_blocks(swap_and_count, record, donate=donate)
    assert isinstance(got[1], Record)
    assert got[1].count == 4
    for ours, theirs in zip((got[0], *got[1][1:]), (expected[0], *expected[1][1:]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if donate:
        assert got[0] is x
        assert got[1].a is a
    else:
        for array, copy in zip((x, a, b), copies, strict=True):
            np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("donate", [False, True])
def test_add_scaled(size: int, dtype: Any, donate: bool) -> None:
    total = np.arange(size, dtype=np.float32) % 64
    x = (np.arange(size) % 32).astype(dtype)
    before, expected = total.copy(), total + np.float32(3) * x.astype(np.float32)
    got = arrays.add_scaled(total, 3.0, x, donate=donate)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.float32
    assert (got is total) == donate
    if not donate:
        np.testing.assert_array_equal(total, before)
    np.testing.assert_array_equal(x, (np.arange(size) % 32).astype(dtype))


@pytest.mark.parametrize("size", SIZES)
def test_norm(size: int) -> None:
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    exact = np.linalg.norm(x.astype(np.float64))
    assert float(arrays.norm(x)) == pytest.approx(exact, rel=1e-6)
    assert float(jax.jit(arrays.norm)(jnp.asarray(x))) == pytest.approx(exact, rel=1e-6)
    twice = arrays.norm_of(lambda pair: pair[0] + pair[1], (x, x))
    assert float(twice) == pytest.approx(2 * exact, rel=1e-6)


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_norm_over_many_weights_does_not_stall(xp: Any) -> None:
    """One running float32 sum would stop at 2²⁴ equal squares; a norm may lose 1e-5 at most."""
    size = (1 << 24) + (1 << 23) + 11
    value = float(np.float32(1e-3))
    got = float(jax.jit(arrays.norm)(xp.full(size, value, dtype=xp.float32)) if xp is jnp
                else arrays.norm(np.full(size, value, np.float32)))  # fmt: skip
    assert got == pytest.approx(value * size**0.5, rel=1e-5)


@pytest.mark.parametrize("xp", [np, jnp])
def test_norms_have_at_least_float32(xp: Any) -> None:
    half = xp.full(70_000, 200.0, dtype=xp.float16)  # its squares and their sum overflow float16
    assert arrays.norm(half).dtype == np.float32
    assert float(arrays.norm(half)) == pytest.approx(200 * 70_000**0.5, rel=1e-5)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_norm_that_is_not_finite_says_so_without_a_warning(xp: Any, bad: float) -> None:
    assert not np.isfinite(arrays.norm(xp.asarray([1.0, bad], dtype=xp.float32)))


def test_select_takes_all_of_one_side() -> None:
    new, old = (jnp.ones(2), Record(1.0, jnp.ones(2), 1.0)), (
        jnp.zeros(2), Record(0.0, jnp.zeros(2), 0.0))  # fmt: skip
    for condition, value in ((True, 1), (False, 0)):
        chosen = arrays.select(jnp.asarray(condition), new, old)
        assert isinstance(chosen[1], Record)
        assert all((leaf == value).all() for leaf in jax.tree.leaves(chosen))


def test_a_donated_entry_may_take_the_place_of_another() -> None:
    def shift(record):
        mean, (last, _) = record
        return mean, (mean, last)

    kept = (np.full(3, 3.0), (np.full(3, 2.0), np.full(3, 1.0)))
    given = (kept[0].copy(), (kept[1][0].copy(), kept[1][1].copy()))
    for record, donate in ((kept, False), (given, True)):
        mean, (last, before) = arrays.in_blocks(shift, record, donate=donate)
        assert (mean[0], last[0], before[0]) == (3, 3, 2)

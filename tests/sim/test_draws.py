"""Draws: permutations that are permutations, all of them equally often."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from taciturn.sim import draws

KEYS = 12_000


@functools.cache
def compiled(unroll):
    return jax.jit(lambda key, n: draws.permute(key, n, jnp.arange(1000), unroll=unroll))


def test_permute_is_a_permutation_unrolled_or_not():
    for n in [*range(1, 34), 100, 127, 128, 1000]:
        image, unrolled = (compiled(how)(jax.random.key(n), n)[:n] for how in (False, True))
        assert sorted(image.tolist()) == list(range(n))
        np.testing.assert_array_equal(image, unrolled)


def test_permute_stays_in_range_and_apart_for_populations_of_billions():
    n = 4_000_000_001  # above 2³¹: pivot + n must not lose its way
    some = np.asarray(compiled(False)(jax.random.key(1), jnp.uint32(n)))
    assert len(set(some.tolist())) == 1000
    assert some.max() < n
    assert some.max() > n // 2  # and not in a part of it


def test_pairs_are_independent():
    """Where 0 and 1 go together: 10 · 9 ordered pairs, each as likely."""
    keys = jax.random.split(jax.random.key(2024), KEYS)
    first = np.asarray(jax.jit(jax.vmap(lambda k: draws.permute(k, 10, jnp.arange(2))))(keys))
    pairs = np.bincount(first[:, 0] * 10 + first[:, 1], minlength=100).reshape(10, 10)
    assert np.trace(pairs) == 0
    counts = pairs[~np.eye(10, dtype=bool)]
    # Five deviations above the mean of a chi-square of f degrees of freedom: f and √(2f).
    chi_square = ((counts - KEYS / 90) ** 2).sum() / (KEYS / 90)
    assert chi_square < 89 + 5 * math.sqrt(2 * 89)


def test_a_cohort_has_different_clients_and_changes_with_round_and_seed():
    keys = [draws.round_keys(draws.run_keys(seed), t) for seed in (0, 1) for t in (0, 1)]
    cohorts = [tuple(draws.cohort(key, 1_000_000, 10).tolist()) for key in keys]
    assert [len(set(cohort)) for cohort in cohorts] == [10] * 4
    assert len(set(cohorts)) == 4
    assert sorted(draws.cohort(keys[0], 7, 7).tolist()) == list(range(7))  # everyone


def test_every_epoch_sees_every_example_once_in_another_order():
    keys = draws.round_keys(draws.run_keys(3), 0)
    orders = {
        tuple(draws.shuffled(keys, slot, epoch, 9, jnp.arange(9)).tolist())
        for slot in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4
    assert all(sorted(order) == list(range(9)) for order in orders)


def test_no_two_purposes_share_a_key():
    run = draws.run_keys(0)
    keys = [run.init, *draws.round_keys(run, 0), *draws.round_keys(run, 1)]
    first = draws.round_keys(run, 0)
    keys += [draws.dropout_key(first, slot, step) for slot in (0, 1) for step in (0, 1)]
    words = [jax.random.key_data(key) for key in keys]
    words += [draws.codec_key(first, client) for client in (0, 1)] + [draws.downlink_key(first)]
    assert len({tuple(np.asarray(two).tolist()) for two in words}) == len(words)

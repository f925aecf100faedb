"""Hashed bits: MurmurHash3's, and random enough. Codecs' tests have NumPy and JAX hash alike."""

import numpy as np

from taciturn.core.hashing import bits, fold, mix

KEY = np.array([0xDEADBEEF, 0x12345678], np.uint32)


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
    np.testing.assert_array_equal(fold(KEY, -1), fold(KEY, 2**32 - 1))  # a word wraps around
    assert len({tuple(fold(KEY, n).tolist()) for n in range(2_000)}) == 2_000
    places = (bits(KEY, (20_000,))[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(places.mean(axis=0) - 0.5).max() < 5 * 0.5 / 20_000**0.5

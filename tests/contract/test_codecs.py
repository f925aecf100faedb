"""What every codec declares of itself, measured: bytes, bias, error, and the norm of what is read.

Sizes are of a weight, of less than a block and of one more than a block.
"""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import CODEC_PARTS, cases

from taciturn.core import tally
from taciturn.core.arrays import norm
from taciturn.core.codecs import eden, from_bytes, peaks, to_bytes
from taciturn.core.codecs.sparse import largest
from taciturn.core.policy import CODECS, spell
from taciturn.errors import InputError

# Of module scope, so that all tests of one codec follow one another and share its draws.
codecs = pytest.mark.parametrize("codec", cases(CODEC_PARTS), scope="module")
NIGHTLY = [pytest.param(size, marks=pytest.mark.nightly) for size in (2, 65, 10_000)]
KEYS = [np.array([n, 99], np.uint32) for n in range(40)]


@functools.cache
def vectors(size):
    """Dense, heavy-tailed, with one and two weights that are not 0, and with 4 and 16 equal ones,
    which a rotation may turn into as many."""
    rng = np.random.default_rng(size)
    found = {
        "dense": rng.standard_normal(size),
        "heavy": rng.standard_t(2, size),
        "one": np.eye(1, size, size // 3)[0],
    }
    if size > 2:  # rows 0 and 32 of a tile are alike in half of its rotated columns
        found["two"] = np.eye(1, size, 0)[0] + np.eye(1, size, min(32, size - 1))[0]
    for count, apart in ((16, 1), (4, 64)):
        if size >= count * apart:
            place, rest = np.divmod(np.arange(size), apart)
            found[f"{count} alike"] = ((rest == 0) & (place < count)).astype(float)
    return {name: (0.01 * vector).astype(np.float32) for name, vector in found.items()}


def read_back(codec, update, key):
    """Through the bytes that travel."""
    data = to_bytes(codec, codec.encode(update, key), len(update))
    return np.asarray(codec.decode(from_bytes(codec, data, len(update)), key, len(update)))


@codecs
@pytest.mark.parametrize("size", [1, 101, 4097, *NIGHTLY])
def test_a_code_has_the_bytes_that_it_says_and_reads_back_as_it_was(codec, size):
    for name, update in vectors(size).items():
        code = codec.encode(update, KEYS[0])
        data = to_bytes(codec, code, size)
        assert len(data) == codec.nbytes(size)
        for array, again in zip(code, from_bytes(codec, data, size), strict=True):
            np.testing.assert_array_equal(np.asarray(array), again)
        low, high = codec.norm_range(norm(update), size)
        for key in KEYS[:8]:
            back = read_back(codec, update, key)
            assert (back.shape, back.dtype) == ((size,), np.float32)
            assert low <= norm(back) <= high, (name, norm(back) / norm(update))
    assert not read_back(codec, np.zeros(size, np.float32), KEYS[0]).any()


@pytest.fixture(scope="module")
def draws(codec):
    """What is decoded with each of `KEYS`, for every kind of update of two whole blocks."""

    def of(update):
        read = np.stack([read_back(codec, update, key) for key in KEYS]).astype(np.float64)
        x, squares = update.astype(np.float64), float(np.dot(update, update))
        return SimpleNamespace(
            errors=np.sum((read - x) ** 2, axis=1) / squares,
            norms=np.linalg.norm(read, axis=1) / squares**0.5,
            along=read @ x / squares,
            error_of_mean=float(np.sum((read.mean(0) - x) ** 2)) / squares,
        )

    return {name: of(update) for name, update in vectors(8192).items()}


# What the error of any kind of update is at most, in times what is declared for dense ones: a scale
# for the largest of 256 weights is far too coarse for few of them; and of few weights all rotated
# coordinates are alike, so that the largest is worth no more than another.
WORST = {"float32": 1.0, "eden": 3.5, "top_k": 1.05, "sparse_ternary": 2.8, "quantize": 90.0,
         "peaks": 10.0, "float16": 1.25, "bfloat16": 1.25}  # fmt: skip


@codecs
def test_error_and_norm_are_what_is_declared(codec, draws):
    """Of dense updates within 5 %; of 16 bits, and of `quantize`, at most."""
    dense, declared = draws["dense"], codec.error(8192)
    exact = codec.name != "quantize"
    if declared < 1e-5 or not exact:
        assert np.mean(dense.errors) <= 1.25 * declared
    else:
        assert np.mean(dense.errors) == pytest.approx(declared, rel=0.05)
    norms = pytest.approx(codec.stretch(8192), rel=0.05 if exact else 0.1)
    assert np.mean(dense.norms) == norms
    if codec.name == "eden":  # rotated, every update looks like a dense one
        assert np.mean(draws["heavy"].errors) == pytest.approx(declared, rel=0.1)
    low, high = codec.norm_range(1.0, 8192)
    for name, found in draws.items():
        assert np.mean(found.errors) <= WORST[codec.name] * declared, name
        assert low <= found.norms.min(), name
        assert found.norms.max() <= high, name


@codecs
def test_unbiased_means_just_that(codec, draws):
    """The mean over keys comes nearer with every key, at the rate of independent errors, and its
    part along the update is the update, within what so many draws allow."""
    n, error = len(KEYS), codec.error(8192)
    # What is lost and yet right on average is drawn; rotations always are.
    drawn = error > 0 and (codec.unbiased or codec.name == "eden")
    assert (np.ptp(draws["dense"].errors) > 0) == drawn
    for name, found in draws.items():
        if codec.unbiased:
            # A rotation by signs alone leaves a trace on vectors of few weights: a tenth.
            assert found.error_of_mean <= 2 * np.mean(found.errors) / n + 0.01, name
            off = max(0.01, 3.5 * np.std(found.along) / n**0.5)
            assert abs(np.mean(found.along) - 1) < off, name
        elif error > 0.1 and name == "dense":
            assert found.error_of_mean > 5 * np.mean(found.errors) / n


@codecs
def test_numpy_and_jax_write_and_read_alike(codec):
    size, key = 4097, KEYS[3]
    encode, decode = jax.jit(codec.encode), jax.jit(codec.decode, static_argnums=2)
    for name in ("dense", "heavy", "two"):
        update = vectors(size)[name]
        ours, theirs = codec.encode(update, key), encode(jnp.asarray(update), jnp.asarray(key))
        for array, other, form in zip(ours, theirs, codec.forms(size), strict=True):
            assert np.dtype(other.dtype) == np.dtype(form.dtype).newbyteorder("=")
            assert other.shape == array.shape == form.shape
            # A bit differs where a coordinate lies within rounding of a border.
            pair = (np.asarray(a).view(np.uint8) for a in (array, other))
            different = np.unpackbits(np.bitwise_xor(*pair))
            assert different.sum() <= max(1, 1e-4 * different.size), name
        read = decode(tuple(map(jnp.asarray, ours)), jnp.asarray(key), size)
        plain = codec.decode(ours, key, size)
        np.testing.assert_allclose(read, plain, rtol=1e-6, atol=1e-6 * np.abs(plain).max())


@pytest.mark.parametrize("codec", [eden(0.1), eden(2), peaks("32B")], ids=spell)
def test_matrix_products_have_the_highest_precision(codec):
    """Whatever that of the run is: signs of what is rounded would differ between two sides."""
    update, key = vectors(10_000)["dense"], KEYS[0]
    code = codec.encode(update, key)
    with jax.default_matmul_precision("bfloat16"):
        text = jax.jit(codec.encode).lower(update, key).as_text()
        text += jax.jit(codec.decode, static_argnums=2).lower(code, key, 10_000).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert all("HIGHEST, HIGHEST" in line for line in products)


@pytest.mark.parametrize("codec", cases(c for c in CODEC_PARTS if c.name == "eden"))
def test_the_norm_of_weights_that_are_alike_is_in_its_range(codec):
    """In a whole block, and in one of 16 weights that is filled up: of half, a sixteenth and one in
    two thousand rotations of 4, 8 and 16 equal weights as few coordinates are left."""
    for first, count in itertools.product((0, 4096), (4, 8, 16)):
        update = np.zeros(first + (16 if first else 4096), np.float32)
        update[first : first + count] = 0.01
        low, high = codec.norm_range(norm(update), len(update))
        keys = (np.array([n, 5], np.uint32) for n in range(100))
        found = [norm(read_back(codec, update, key)) for key in keys]
        assert low <= min(found)
        assert max(found) <= high


@pytest.mark.parametrize("codec", cases(c for c in CODEC_PARTS if c.feedback), scope="module")
def test_with_feedback_a_codec_is_a_contraction_and_no_other_scale_is_better(codec, draws):
    """‖x − decoded‖² ≤ (1 − δ) ‖x‖² with any key, where √δ is the least norm that is declared."""
    least, _ = codec.norm_range(1.0, 8192)
    assert 0 <= least < 1
    assert codec.forms(4097) == CODECS[codec.name](**dict(codec.params, feedback=False)).forms(4097)
    for name, found in draws.items():
        assert found.errors.max() <= 1 - least**2 + 1e-6, name
        # ‖c · decoded − x‖² for a scale c that is a hundredth away: a scale has 8 bits.
        for c in (0.99, 1.01):
            away = c * c * found.norms**2 - 2 * c * found.along + 1
            assert (away > found.errors - 1e-7).all(), name


@codecs
@given(data=st.data())
@settings(max_examples=60)
def test_any_bytes_are_an_update_or_an_error(codec, data):
    """Never another exception, and never numbers that are not finite."""
    size = data.draw(st.sampled_from((1, 3, 101, 300)))
    right = codec.nbytes(size)
    length = data.draw(st.sampled_from((right, right, right, max(0, right - 1), right + 1, 0)))
    raw = data.draw(st.binary(min_size=length, max_size=length))
    try:
        code = from_bytes(codec, raw, size)
    except InputError:
        return
    with np.errstate(all="ignore"):
        update = codec.decode(code, KEYS[0], size)
    assert update.shape == (size,)
    # What the server makes of it: a client that counts, or one that is rejected.
    config = tally.RoundConfig((), np.inf, np.inf)
    before = tally.start(np.zeros(size, np.float32))
    after = tally.add(before, tally.Message(1, 1.0, update), config, codec)
    assert after.n_spoke + after.n_rejected == 1
    assert np.isfinite(after.spoken).all()
    assert after.n_spoke or not after.spoken.any()


@pytest.mark.parametrize("size", [1, 4097])
def test_the_largest_are_those_of_a_stable_sort(size):
    rng, compiled = np.random.default_rng(size), jax.jit(largest, static_argnums=1)
    heavy, few = rng.standard_t(2, size), rng.integers(-3, 4, size)
    for update in (heavy, np.zeros(size), few, rng.standard_normal(size) * 1e-41):
        update = update.astype(np.float32)
        order = np.argsort(-np.abs(update), kind="stable")
        for count in {1, (size + 1) // 2}:
            expected = np.sort(order[:count])
            for found in (largest(update, count), compiled(jnp.asarray(update), count)):
                np.testing.assert_array_equal(np.asarray(found), expected)

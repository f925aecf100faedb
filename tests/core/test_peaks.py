"""The codec `peaks`: codes of any length for models of any size."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.core.codecs import from_bytes, hadamard, peaks, shares, to_bytes
from taciturn.errors import InputError

BLOCK = hadamard.BLOCK
LENGTHS = peaks().lengths


def keys(count):
    return [np.array([n, 17], np.uint32) for n in range(count)]


def uneven(blocks, spread, seed=0):
    """Blocks of normal weights whose norms differ by e^spread."""
    rng = np.random.default_rng(seed)
    norms = 0.01 * np.exp(spread * rng.standard_normal(blocks))
    return (norms[:, None] * rng.standard_normal((blocks, BLOCK))).reshape(-1).astype("f4")


def read_back(codec, update, key):
    return codec.decode(codec.encode(update, key), key, len(update))


@pytest.mark.parametrize("size", [1, 65, 10_000])
def test_a_code_of_any_length_fits_and_a_program_decodes_the_same(size):
    update = 0.01 * np.random.default_rng(size).standard_t(3, size).astype("f4")
    through, fit = jax.jit(LENGTHS.through), jax.jit(LENGTHS.fit, static_argnums=0)
    sent, different = [], 0
    for asked in np.geomspace(32, 8 * size + 64, 30).astype(int).tolist():
        fitting, key = LENGTHS.fit(size, asked), np.array([asked, 3], np.uint32)
        codec = LENGTHS.at(fitting)
        assert fit(size, asked) == fitting == LENGTHS.fit(size, fitting) <= asked
        assert codec.nbytes(size) == fitting
        data = to_bytes(codec, codec.encode(update, key), size)
        assert len(data) == fitting
        read = codec.decode(from_bytes(codec, data, size), key, size)
        apart = np.abs(through(update, key, fitting) - read) > 1e-6 * np.abs(read).max()
        different += apart.any()
        assert apart.sum() <= BLOCK
        sent.append(fitting)
    assert different <= 2  # of thirty: two coordinates may lie within rounding of each other
    assert sent == sorted(sent)
    np.testing.assert_array_equal(read, update)  # float32 where that fits


def test_numpy_and_jax_write_the_same_bytes_of_a_few_blocks_of_many():
    size, codec, key = 300_000, LENGTHS.at(400), np.array([3, 400], np.uint32)
    update = 0.01 * np.random.default_rng(size).standard_t(3, size).astype("f4")
    ours, theirs = codec.encode(update, key), jax.jit(codec.encode)(update, key)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    read = codec.decode(ours, key, size)
    decoded = jax.jit(codec.decode, static_argnums=2)(theirs, key, size)
    np.testing.assert_allclose(decoded, read, rtol=0, atol=1e-6 * np.abs(read).max())


@pytest.mark.parametrize(
    ("length", "size", "nbytes"),
    [("4kB", 10**6, 4_000), ("1%", 10**6, 40_000), (0.1, 10**6, 12_500), ("32B", 10**10, 32),
     ("1%", 100, 32), ("2kB", 10_000, 1_542), (2, 10_000, 3_078), (32, 65, 260),
     ("200%", 999, 3_996)],
)  # fmt: skip
def test_a_length_is_bytes_or_a_share_or_bits_per_weight(length, size, nbytes):
    assert peaks(length).nbytes(size) == nbytes


@given(data=st.data())
def test_any_bytes_of_any_length_are_an_update_or_an_error(data):
    size = data.draw(st.sampled_from((1, 65, 300, 20_000)))
    most = min(4 * size, 700)
    raw = data.draw(st.binary(max_size=most) | st.integers(0, most).map(lambda n: bytes([255]) * n))
    try:
        codec = LENGTHS.at(len(raw))
        with np.errstate(all="ignore"):
            update = codec.decode(from_bytes(codec, raw, size), keys(1)[0], size)
    except InputError:
        return
    assert len(raw) == LENGTHS.fit(size, len(raw))
    assert (update.shape, update.dtype) == ((size,), np.float32)


@pytest.mark.parametrize(
    ("size", "nbytes", "count"), [(1024, 32, 99), (16 * BLOCK, 64, 99), (64 * BLOCK, 20_000, 9)]
)
def test_the_error_is_what_is_declared(size, nbytes, count):
    """Of normal weights, within 5 %, be there bits for every block or for few of them."""
    codec, update = LENGTHS.at(nbytes), uneven(-(-size // BLOCK), 0.0)[:size]
    assert shares.layout(size, nbytes)[1] == (size // nbytes > 600)
    errors = [np.sum((read_back(codec, update, key) - update) ** 2) for key in keys(count)]
    assert np.mean(errors) / np.sum(update**2) == pytest.approx(codec.error(size), rel=0.05)


@pytest.mark.parametrize(("nbytes", "most", "spread"), [(50, 6, 0.0), (1_000, 24, 1.0)])
def test_the_mean_is_right_however_few_blocks_are_sent(nbytes, most, spread):
    """Over keys it comes nearer at the rate of independent errors; so it does for short blocks."""
    count, update = 100, uneven(24, spread)
    codec, norms = LENGTHS.at(nbytes), np.linalg.norm(update.reshape(24, BLOCK), axis=1)
    short = np.where(norms < np.median(norms), 1.0, 0.0).repeat(BLOCK) * update
    read = np.stack([read_back(codec, update, key) for key in keys(count)])
    sent = np.count_nonzero(read[-1].reshape(24, BLOCK).any(axis=1))
    assert most / 2 < sent <= most
    alone = np.mean(np.sum((read - update) ** 2, axis=1))
    together = np.sum((read.mean(axis=0) - update) ** 2)
    assert together == pytest.approx(alone / count, rel=0.1)
    along = read @ short / np.dot(short, short)
    off = np.std(along) / np.sqrt(count)
    assert off < 0.15
    assert np.mean(along) == pytest.approx(1, abs=4 * off)


@pytest.mark.parametrize("nbytes", [32, 15_000])
def test_the_decoded_norm_is_in_its_range(nbytes):
    """Of uneven, heavy-tailed and sparse updates, and of equal weights, which a rotation may turn
    into as many."""
    rng, size, codec = np.random.default_rng(1), 30 * BLOCK - 7, LENGTHS.at(nbytes)
    updates = [uneven(30, spread)[:size] for spread in (0.0, 1.0, 4.0)]
    updates += [rng.standard_t(1.5, size), rng.random(size) < 3e-5]
    updates += [np.arange(size) % (20 * BLOCK) < count for count in (1, 2, 4, 16)]
    for kind, update in enumerate(updates):
        update = 0.01 * update.astype("f4")
        low, high = codec.norm_range(np.linalg.norm(update), size)
        for key in keys(20):
            assert low <= np.linalg.norm(read_back(codec, update, key)) <= high, kind


@pytest.mark.nightly
def test_the_weights_of_a_large_model_in_4_kb():
    size, codec, nothing = 138_000_000, peaks(), 8_000 * BLOCK  # of 33,692 blocks
    update = 0.01 * np.random.default_rng(0).standard_normal(size, "f4")
    update[:nothing] = 0
    square, found = np.vecdot(update, update), []
    low, high = codec.norm_range(np.sqrt(square), size)
    for key in keys(6):
        code = codec.encode(update, key)
        assert len(to_bytes(codec, code, size)) == 4_000
        read = codec.decode(code, key, size)
        assert not read[:nothing].any()
        own = np.vecdot(read, read)
        assert low <= np.sqrt(own) <= high
        found.append((own - 2 * np.vecdot(read, update) + square) / square)
    assert np.mean(found) == pytest.approx(codec.error(size - nothing), rel=0.1)


@given(
    nbytes=st.sampled_from([32, 60, 500, 4_000]),
    blocks=st.integers(1, 50) | st.sampled_from([1_000, 30_000]),
    spread=st.floats(0, 20),
    seed=st.integers(0, 1000),
)
def test_all_that_is_sent_fits_and_room_is_used(nbytes, blocks, spread, seed):
    rng, size = np.random.default_rng(seed), blocks * BLOCK
    nbytes = min(nbytes, shares.longest(size))
    squares = np.exp(spread * rng.standard_normal(blocks)).astype("f4")
    squares[rng.random(blocks) < 0.2] = 0
    slots, _, room = shares.layout(size, nbytes)
    shared = shares.share_out(squares, size, nbytes)
    depths, chances = shares.draw(*shared, size, nbytes, np.array([seed, 1], np.uint32))
    sent = depths < shares.NONE
    cost = np.where(sent, (BLOCK >> np.minimum(depths, 12)) * (depths + 1), 0)
    assert cost.sum() <= room
    assert sent.sum() <= slots
    assert not sent[squares == 0].any()
    assert sent.any() == (squares > 0).any()
    assert (chances[sent] > 0).all()
    assert (chances <= 1).all()
    if sent.any():
        assert cost.sum() > 0.4 * room or (depths[sent] == 0).all()
    # Of a longer block no less is told, but for what the last step of all may add.
    sure = sent & (shared[1] == shares.ONE)
    ordered = depths[sure][np.argsort(squares[sure])]
    assert (ordered[None, :] <= ordered[:, None] + 1)[np.triu_indices(len(ordered))].all()

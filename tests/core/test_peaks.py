"""The codec `peaks`: bits go where an update is long, and always fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.core.codecs import draw_k, eden, hadamard, peaks
from taciturn.core.codecs.draw_k import share_of
from taciturn.core.codecs.packing import unpack
from taciturn.core.codecs.peaks import _NONE, _share_out, room

BLOCK = hadamard.BLOCK


def uneven(blocks: int, spread: float, seed: int = 0) -> np.ndarray:
    """Blocks of normal weights whose norms differ by e^spread."""
    rng = np.random.default_rng(seed)
    norms = np.exp(spread * rng.standard_normal(blocks))
    return (norms[:, None] * rng.standard_normal((blocks, BLOCK))).reshape(-1).astype("f4")


def error_of(codec, update: np.ndarray, keys: int = 8) -> float:
    found = []
    for n in range(keys):
        key = np.array([n, 3], np.uint32)
        read = codec.decode(codec.encode(update, key), key, len(update))
        found.append(np.sum((read - update) ** 2) / np.sum(update**2))
    return float(np.mean(found))


def depths_of(codec, update: np.ndarray) -> np.ndarray:
    code = codec.encode(update, np.array([1, 2], np.uint32))
    return unpack(code[1], 4, hadamard.blocks_of(len(update)))


@pytest.mark.parametrize("bits", [0.02, 0.05, 0.1, 0.25, 0.5])
def test_with_as_many_bytes_the_error_is_below_that_of_other_codecs(bits: float) -> None:
    """Of normal weights, all blocks alike, by a third below a fifth of a bit; of blocks that
    differ by far more."""
    even, other = uneven(64, 0.0), uneven(64, 1.0)
    size = len(even)
    ours = peaks(bits)
    assert ours.nbytes(size) <= eden(bits).nbytes(size)
    drawn = draw_k(share_of(8 * ours.nbytes(size) / size))
    assert error_of(ours, even) < (0.72 if bits < 0.2 else 0.85) * error_of(eden(bits), even)
    assert error_of(ours, even) < error_of(drawn, even)
    assert error_of(ours, other) < 0.65 * error_of(eden(bits), other)
    assert error_of(ours, other) < error_of(drawn, other)


def test_groups_are_small_where_an_update_is_long() -> None:
    update = uneven(64, 0.0).reshape(64, BLOCK)
    update[::2] *= 30
    update[1] = 0
    depths = depths_of(peaks(0.05), update.reshape(-1))
    assert depths[1] == _NONE
    assert depths[::2].max() < depths[3::2].min()


@given(
    bits=st.sampled_from([1 / 128, 0.03, 0.2, 1.0]), blocks=st.integers(1, 50),
    spread=st.floats(0, 20), seed=st.integers(0, 1000),
)  # fmt: skip
def test_all_that_is_sent_fits_and_room_is_used(
    bits: float, blocks: int, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    squares = np.exp(spread * rng.standard_normal(blocks)).astype("f4")
    squares[rng.random(blocks) < 0.2] = 0
    total = room(blocks * BLOCK, bits)
    key = np.array([seed, 1], np.uint32)
    depths, chances = _share_out(squares, BLOCK, total, key)
    sent = depths < _NONE
    cost = np.where(sent, (BLOCK >> np.minimum(depths, 12)) * (depths + 1), 0)
    assert cost.sum() <= total
    assert not sent[squares == 0].any()
    assert (chances[sent] > 0).all()
    assert (chances <= 1).all()
    assert sent.any() == (squares > 0).any()
    if sent.any():
        assert cost.sum() > 0.4 * total or (depths[sent] == 0).all()
    # Of a longer block no less is told, but for what the last step of all may add.
    depths = depths[np.argsort(squares)][-np.sum(sent & (chances == 1)) or len(squares) :]
    assert (depths[None, :] <= depths[:, None] + 1)[np.triu_indices(len(depths))].all()


def test_blocks_that_are_sent_by_chance_are_right_on_average() -> None:
    """A hundred short blocks beside a long one, with bits for next to none of them."""
    update = uneven(100, 0.0).reshape(100, BLOCK)
    update[0] *= 3000
    update = update.reshape(-1)
    codec, short = peaks(1 / 128), update.copy()
    short[:BLOCK] = 0
    depths = depths_of(codec, update)
    assert 0 < np.sum(depths == _NONE) < 99
    along = []
    for n in range(300):
        key = np.array([n, 9], np.uint32)
        read = codec.decode(codec.encode(update, key), key, len(update))
        along.append(np.dot(read, short) / np.dot(short, short))
    assert np.mean(along) == pytest.approx(1, abs=4 * np.std(along) / np.sqrt(300))
    assert np.std(along) < 1


@pytest.mark.parametrize("bits", [1 / 128, 0.05, 1.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_the_decoded_norm_of_uneven_blocks_is_in_its_range(bits: float, spread: float) -> None:
    codec = peaks(bits)
    for blocks in (1, 2, 30):
        for seed in range(20):
            update = uneven(blocks, spread, seed)[: blocks * BLOCK - 7 * (seed % 3)]
            size, key = len(update), np.array([seed, 4], np.uint32)
            read = codec.decode(codec.encode(update, key), key, size)
            low, high = codec.norm_range(np.linalg.norm(update), size)
            assert low <= np.linalg.norm(read) <= high

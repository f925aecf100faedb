"""What every codec declares of itself, measured: bytes, bias, error, and the norm of what is read.

Vectors are dense, heavy-tailed, with one, two and three weights that are not zero, and with 4, 8
and 16 equal ones that a rotation may turn into as many; sizes are around a block's and below. A
codec in `CODECS` is tested as soon as `test_contract.ARGUMENTS` has arguments for it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_contract import CODEC_PARTS, label

from taciturn.core import messages, server, tally
from taciturn.core.arrays import norm
from taciturn.core.codecs import Codec, eden, from_bytes, hadamard, to_bytes
from taciturn.core.codecs.eden import kept, order
from taciturn.core.codecs.eden import scale as scale_of
from taciturn.core.codecs.packing import unpack
from taciturn.core.codecs.top_k import largest
from taciturn.core.policy import CODECS, Policy, spell
from taciturn.errors import InputError

codecs = pytest.mark.parametrize("codec", CODEC_PARTS, ids=label)
lossy = pytest.mark.parametrize("codec", [c for c in CODEC_PARTS if c.error(8192)], ids=label)
with_feedback = pytest.mark.parametrize(
    "codec", [c for c in CODEC_PARTS if c.feedback], ids=label
)  # fmt: skip
KINDS = ["dense", "heavy", "one", "two", "three"]
kinds = pytest.mark.parametrize("kind", KINDS)
SIZES = (1, 2, 65, 101, 4096, 10_000)
KEYS = [np.array([n, 99], np.uint32) for n in range(24)]


def vectors(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    found = {
        "dense": rng.standard_normal(size),
        "heavy": rng.standard_t(2, size),
        "one": np.eye(1, size, size // 3)[0],
    }
    if size > 2:
        # Rows 0 and 32 of a tile are alike in half of its rotated columns.
        found["two"] = np.eye(1, size, 0)[0] + np.eye(1, size, min(32, size - 1))[0]
        found["three"] = found["two"] - 2 * np.eye(1, size, size // 2)[0]
    for count, apart in ((4, 1), (8, 1), (16, 1), (4, 64)):
        if size >= count * apart:
            place, rest = np.divmod(np.arange(size), apart)
            found[f"{count} alike, {apart} apart"] = ((rest == 0) & (place < count)).astype(float)
    return {name: (0.01 * vector).astype(np.float32) for name, vector in found.items()}


def read_back(codec: Codec, update: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Through the bytes that travel."""
    data = to_bytes(codec, codec.encode(update, key), len(update))
    return np.asarray(codec.decode(from_bytes(codec, data, len(update)), key, len(update)))


@codecs
@pytest.mark.parametrize("size", SIZES)
def test_a_code_has_the_bytes_that_it_says_and_reads_back_as_it_was(
    codec: Codec, size: int
) -> None:
    for update in vectors(size).values():
        code = codec.encode(update, KEYS[0])
        data = to_bytes(codec, code, size)
        assert len(data) == codec.nbytes(size)
        for array, again in zip(code, from_bytes(codec, data, size), strict=True):
            np.testing.assert_array_equal(np.asarray(array), again)
        back = read_back(codec, update, KEYS[0])
        assert back.shape == (size,)
        assert back.dtype == np.float32
        assert np.isfinite(back).all()


@codecs
@pytest.mark.parametrize("size", [1, 101, 10_000])
def test_nothing_is_read_back_as_nothing(codec: Codec, size: int) -> None:
    assert not read_back(codec, np.zeros(size, np.float32), KEYS[0]).any()


@codecs
def test_the_error_is_what_is_declared(codec: Codec) -> None:
    """Of a dense update of whole blocks, within 5 %; of 16 bits and of `quantize`, at most.

    With feedback, `quantize` too keeps within 5 %.
    """
    update = vectors(8192)["dense"]
    errors = [np.sum((read_back(codec, update, key) - update) ** 2) / np.sum(update**2)
              for key in KEYS]  # fmt: skip
    declared = codec.error(8192)
    if declared < 1e-5 or (codec.name == "quantize" and codec.unbiased):
        assert np.mean(errors) <= 1.25 * declared
    else:
        assert np.mean(errors) == pytest.approx(declared, rel=0.05)


# What the error of any kind of update is at most, in times what is declared for dense ones: a scale
# for the largest of 256 weights is far too coarse for few of them; and of few weights all rotated
# coordinates are alike, so that the largest is worth no more than another.
WORST = {"eden": 3.5, "top_k": 1.05, "sparse_ternary": 2.8, "quantize": 90.0, "peaks": 10.0,
         "float16": 1.25, "bfloat16": 1.25}  # fmt: skip


@lossy
def test_no_kind_of_update_has_an_error_far_from_what_is_declared(codec: Codec) -> None:
    for name, update in vectors(8192).items():
        errors = [np.sum((read_back(codec, update, key) - update) ** 2) / np.sum(update**2)
                  for key in KEYS]  # fmt: skip
        assert np.mean(errors) <= WORST[codec.name] * codec.error(8192), name
        if codec.name == "eden" and name == "heavy":  # turned, it looks like a dense one
            assert np.mean(errors) == pytest.approx(codec.error(8192), rel=0.1)


@pytest.mark.parametrize("codec", [c for c in CODEC_PARTS if c.unbiased], ids=label)
def test_what_is_read_has_the_length_of_the_update_along_it(codec: Codec) -> None:
    """⟨x, decoded⟩ is ‖x‖² on average, within a hundredth, for every kind.

    Scales of `peaks` are drawn from few, and short codes have but some of the blocks: within what
    60 draws allow.
    """
    for name, update in vectors(8192).items():
        along = [np.dot(read_back(codec, update, np.array([n, 7], np.uint32)), update)
                 for n in range(60)] / np.dot(update, update)  # fmt: skip
        assert abs(np.mean(along) - 1) < max(0.01, 3.5 * np.std(along) / 60**0.5), name


@lossy
@kinds
def test_unbiased_means_just_that(codec: Codec, kind: str) -> None:
    """The mean over keys comes nearer with every key, at the rate of independent errors."""
    update = vectors(10_000)[kind].astype(np.float64)
    keys = [np.array([n, 7], np.uint32) for n in range(60)]
    read = [read_back(codec, update.astype(np.float32), key) for key in keys]
    alone = np.mean([np.sum((x - update) ** 2) for x in read])
    together = np.sum((np.mean(read, axis=0) - update) ** 2)
    if codec.unbiased:
        # A rotation by signs alone leaves a trace on vectors of few weights: a tenth of the norm.
        assert together < 2 * alone / len(keys) + 0.01 * np.sum(update**2)
    elif codec.error(10_000) > 0.1 and kind == "dense":
        assert together > 5 * alone / len(keys)


@codecs
@pytest.mark.parametrize("size", SIZES)
def test_the_decoded_norm_is_in_its_range(codec: Codec, size: int) -> None:
    for name, update in vectors(size).items():
        low, high = codec.norm_range(norm(update), size)
        for key in KEYS:
            found = norm(read_back(codec, update, key))
            assert low <= found <= high, (name, found / norm(update))


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("bits", [0.02, 0.1, 1, 2])
@pytest.mark.parametrize("where", [0, 4096])
def test_weights_that_are_alike_are_no_exception(bits: float, feedback: bool, where: int) -> None:
    """In a whole block, and in one of 16 weights that is filled up: of half, a sixteenth and one in
    two thousand rotations of 4, 8 and 16 equal weights as few coordinates are left."""
    codec, size = eden(bits, feedback), where + (16 if where else 4096)
    for count in (4, 8, 16):
        update = np.zeros(size, np.float32)
        update[where : where + count] = 0.01
        low, high = codec.norm_range(norm(update), size)
        found = [norm(codec.decode(codec.encode(update, key), key, size))
                 for key in (np.array([n, 5], np.uint32) for n in range(300))]  # fmt: skip
        assert low <= min(found)
        assert max(found) <= high


def test_a_block_of_which_nothing_is_drawn_has_a_scale() -> None:
    """The bound on a scale holds where the coordinates that are sent are 0, too."""
    squares, along = np.float32([4.0, 4.0, 0.0]), np.float32([1.0, 0.0, 0.0])
    np.testing.assert_allclose(scale_of(squares, along, 0.25), [4.0, 8.0, 0.0])


@codecs
def test_a_dense_update_is_stretched_as_declared(codec: Codec) -> None:
    """Within 5 %; `quantize`, whose largest weights vary, within 10 %."""
    update = vectors(8192)["dense"]
    found = np.mean([norm(read_back(codec, update, key)) for key in KEYS]) / norm(update)
    assert found == pytest.approx(
        codec.stretch(8192), rel=0.1 if codec.name == "quantize" else 0.05
    )


@lossy
def test_matrix_products_have_the_highest_precision(codec: Codec) -> None:
    """Whatever that of the run is: signs of what is rounded would differ between two sides."""
    update, key = vectors(10_000)["dense"], KEYS[0]
    code = codec.encode(update, key)
    with jax.default_matmul_precision("bfloat16"):
        texts = [
            jax.jit(codec.encode).lower(update, key).as_text(),
            jax.jit(codec.decode, static_argnums=2).lower(code, key, 10_000).as_text(),
        ]
    products = [line for text in texts for line in text.splitlines() if "dot_general" in line]
    assert bool(products) == (codec.name in ("eden", "peaks"))
    assert all("HIGHEST, HIGHEST" in line for line in products)


# Codecs whose clients keep what was left out.


@with_feedback
def test_feedback_changes_neither_bytes_nor_text(codec: Codec) -> None:
    plain = CODECS[codec.name](**dict(codec.params) | {"feedback": False})
    assert not plain.feedback
    assert plain != codec
    assert spell(codec) == spell(plain) + ",feedback=true"
    for size in SIZES:
        assert codec.forms(size) == plain.forms(size)


@with_feedback
@pytest.mark.parametrize("size", SIZES)
def test_with_feedback_a_codec_is_a_contraction(codec: Codec, size: int) -> None:
    """‖x − decoded‖² ≤ (1 − δ) ‖x‖² with any key, where √δ is the least norm that is declared."""
    least, _ = codec.norm_range(1.0, size)
    assert 0 <= least < 1
    for name, update in vectors(size).items():
        errors = [np.sum((read_back(codec, update, key) - update) ** 2) / np.sum(update**2)
                  for key in KEYS]  # fmt: skip
        assert max(errors) <= 1 - least**2 + 1e-6, name


@with_feedback
def test_with_feedback_no_other_scale_has_less_error(codec: Codec) -> None:
    """One that is a hundredth away has more, of whole blocks: a scale has 8 bits."""
    for name, update in vectors(8192).items():
        read = read_back(codec, update, KEYS[0]).astype(np.float64)
        error = np.sum((read - update) ** 2)
        for scale in (0.99, 1.01):
            assert np.sum((scale * read - update) ** 2) > error - 1e-7 * np.sum(update**2), name


def keep_saying(
    codec: Codec, update: np.ndarray, rounds: int
) -> tuple[list[float], list[float], np.ndarray]:
    """The same update in every round, and what was left out before with it.

    Returns:
      After every round, how far the mean of what was decoded is from the update, and the residual's
      norm, both over the update's norm; and the residual at the end.
    """
    residual, total = np.zeros_like(update), np.zeros(len(update))
    away, kept = [], []
    for t in range(rounds):
        key = np.array([t, 5], np.uint32)
        said = update + residual
        decoded = codec.decode(codec.encode(said, key), key, len(update))
        residual, total = said - decoded, total + decoded
        away.append(norm(total / (t + 1) - update) / norm(update))
        kept.append(norm(residual) / norm(update))
    return away, kept, residual


@with_feedback
@kinds
def test_with_feedback_nothing_is_left_out_for_good(codec: Codec, kind: str) -> None:
    """The residual stays bounded, and so the mean of all that is said comes to the update.

    Signs of all weights with one size say little about vectors of few: these take longer.
    """
    away, kept, residual = keep_saying(codec, vectors(1000)[kind], 200)
    assert np.isfinite(residual).all()
    bound = 60 if kind in ("dense", "heavy") else 180
    assert max(kept) < bound
    assert away[-1] < bound / 200
    assert away[-1] <= 0.9 * away[49] + 1e-6
    # All that was not said yet is in the residual, and nothing else is.
    assert kept[-1] / 200 == pytest.approx(away[-1], rel=1e-3, abs=1e-5)


def test_around_the_unbiased_form_residuals_would_grow_without_end() -> None:
    _, kept, _ = keep_saying(eden(0.1), vectors(1000)["dense"], 20)
    assert kept[-1] > 1e6


@with_feedback
def test_feedback_is_true_or_false(codec: Codec) -> None:
    with pytest.raises(InputError, match=r"`feedback` must be true or false, got 1\."):
        CODECS[codec.name](**dict(codec.params) | {"feedback": 1})


@codecs
def test_numpy_and_jax_write_and_read_alike(codec: Codec) -> None:
    size, key = 10_000, KEYS[3]
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
            assert different.sum() <= 1e-4 * different.size, name
        read = decode(tuple(map(jnp.asarray, ours)), jnp.asarray(key), size)
        plain = codec.decode(ours, key, size)
        np.testing.assert_allclose(read, plain, rtol=1e-6, atol=1e-6 * np.abs(plain).max())


@pytest.mark.parametrize("bits", [0.1, 1, 2])
@pytest.mark.parametrize("feedback", [False, True])
def test_numpy_and_jax_write_the_same_bytes_except_at_a_border(bits: float, feedback: bool) -> None:
    """Of 128 updates of four blocks, rotated again in double precision to see the borders."""
    codec, size = eden(bits, feedback), 4 * 4096
    encode = jax.jit(codec.encode)
    scales = 0
    for seed in range(128):
        update = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
        key = np.array([seed, 3], np.uint32)
        ours, theirs = codec.encode(update, key), encode(jnp.asarray(update), jnp.asarray(key))
        scales += np.sum(ours[1] != np.asarray(theirs[1]))
        if np.array_equal(ours[0], np.asarray(theirs[0])):
            continue
        whole = max(1, int(bits))
        count = kept(size, min(1.0, bits))
        pair = (unpack(np.asarray(code[0]), whole, 4 * count) for code in (ours, theirs))
        block, place = np.divmod(np.flatnonzero(np.not_equal(*pair)), count)
        flipped = hadamard._flip(hadamard.cut(update), key, np.arange(4))
        exact = hadamard._turn(flipped.astype(np.float64))
        coordinate = place if bits >= 1 else np.sort(order(key, 4096)[:count])[place]
        rms = np.linalg.norm(exact[block], axis=1) / 64
        near = np.abs(exact[block, coordinate] / rms - BORDERS[whole][:, None]).min(0)
        assert near.max() < 1e-5, seed
    # A scale lies within rounding of a border once in some ten thousand times.
    assert scales <= 2


# Between the levels of a normal distribution of deviation 1.
BORDERS = {1: np.array([0.0]), 2: np.array([-0.98160, 0.0, 0.98160])}


@lossy
def test_another_key_is_another_draw_and_the_same_is_the_same(codec: Codec) -> None:
    update = vectors(10_000)["dense"]
    first, again, other = (read_back(codec, update, KEYS[i]) for i in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    # What is lost and yet right on average is drawn; rotations always are.
    chance = codec.unbiased or codec.name == "eden"
    assert np.array_equal(first, other) != chance


@codecs
def test_a_codecs_numbers_are_part_of_its_structure(codec: Codec) -> None:
    assert codec.structure == (codec.name, *codec.params)


def test_a_share_of_the_float32_upload() -> None:
    """The figures that people read: 1.2 million weights, in percent of float32."""
    size = 1_206_590
    shares = {label(c): round(100 * c.nbytes(size) / (4 * size), 3) for c in CODEC_PARTS}
    assert shares["float32"] == 100
    assert shares["eden:1"] == pytest.approx(3.14, abs=0.01)
    assert shares["eden:0.1"] == pytest.approx(0.325, abs=0.003)
    assert shares["quantize:2"] == pytest.approx(6.445, abs=0.003)
    # Eleven bits for a position and its sign, of one weight in a hundred.
    assert shares["sparse_ternary:0.01"] == pytest.approx(0.28, abs=0.02)


# Bytes that are none of an honest client's.


@codecs
@given(data=st.data())
@settings(max_examples=150)
def test_any_bytes_are_an_update_or_an_error(codec: Codec, data: Any) -> None:
    read_any_bytes(codec, data)


@pytest.mark.slow
@codecs
@given(data=st.data())
@settings(max_examples=3_000)
def test_thousands_of_any_bytes_are(codec: Codec, data: Any) -> None:
    read_any_bytes(codec, data)


def read_any_bytes(codec: Codec, data: Any) -> None:
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
    policy = Policy()
    state = server.init(policy, np.zeros(size, np.float32))
    opening = server.open(policy, state.memory, 1)
    heard = tally.add(tally.start(state.weights), messages.Message(1, 1.0, update), opening, codec)
    after, info = server.close(policy, state, heard)
    assert info.spoke + info.rejected == 1
    assert np.isfinite(after.weights).all()
    if info.rejected:
        np.testing.assert_array_equal(after.weights, state.weights)


@pytest.mark.parametrize("size", SIZES)
def test_the_largest_are_those_of_a_stable_sort(size: int) -> None:
    rng = np.random.default_rng(size)
    updates = vectors(size) | {
        "nothing": np.zeros(size),
        "equal sizes": rng.choice([-1.0, 1.0], size),
        "few sizes": rng.integers(-3, 4, size),
        "subnormal": rng.standard_normal(size) * 1e-41,
    }
    compiled = jax.jit(largest, static_argnums=1)
    for kind, update in updates.items():
        update = update.astype(np.float32)
        order = np.argsort(-np.abs(update), kind="stable")
        for count in {1, (size + 1) // 2, size}:
            expected = np.sort(order[:count])
            for found in (largest(update, count), compiled(jnp.asarray(update), count)):
                np.testing.assert_array_equal(np.asarray(found), expected, err_msg=kind)

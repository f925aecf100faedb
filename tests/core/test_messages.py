"""Messages to the byte, and what is not one."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.core import codecs, messages
from taciturn.core.messages import Message
from taciturn.core.policy import parse
from taciturn.errors import InputError

CODEC = codecs.float32()
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
UPDATE = np.array([3.0, -4.0], np.float32)


def test_the_bytes_of_a_message() -> None:
    """Version 5, speaks, nothing, 2 weights, 7 examples, norm 5, 6 of what was encoded,
    probability 1, then the update.
    """
    expected = struct.pack("<BBHIffff", 5, 1, 0, 2, 7, 5.0, 6.0, 1.0) + UPDATE.tobytes()
    assert messages.write(Message(7, 5.0, UPDATE, 6.0), CODEC) == expected
    same = struct.pack("<BBHIffff", 5, 1, 0, 2, 7, 5.0, 5.0, 1.0) + UPDATE.tobytes()
    assert messages.write(Message(7, 5.0, UPDATE), CODEC) == same
    silent = struct.pack("<BBHIffff", 5, 0, 0, 0, 7, 5.0, 5.0, 0.25)
    assert messages.write(Message(7, 5.0, None, probability=0.25), CODEC) == silent
    assert messages.OVERHEAD == 24


@given(
    examples=st.integers(0, 2**24) | st.floats(0, 2**64, width=32),
    norm=st.floats(width=32),
    encoded=st.floats(width=32),
    update=st.none() | st.lists(FINITE, max_size=20),
)
def test_a_message_reads_back(
    examples: float, norm: float, encoded: float, update: list[float] | None
) -> None:
    array = None if update is None else np.array(update, np.float32)
    back = messages.read(messages.write(Message(examples, norm, array, encoded), CODEC), CODEC)
    assert back.examples == examples
    np.testing.assert_equal(back.norm, norm)
    assert (back.update is None) == (array is None)
    if array is not None:
        np.testing.assert_array_equal(back.update, array)
        assert back.update.dtype == np.float32
        np.testing.assert_equal(back.encoded_norm, encoded)


def test_what_was_left_out_is_said_with_the_next_update_and_silence_leaves_it_alone() -> None:
    left_out = UPDATE.copy()
    said = messages.with_residual(Message(7, 5.0, UPDATE), left_out)
    np.testing.assert_array_equal(said.update, [6, -8])
    assert (said.norm, said.encoded_norm) == (5, 10)
    silent = Message(7, 5.0, None)
    assert messages.with_residual(silent, left_out) == silent
    assert messages.with_residual(Message(7, 5.0, UPDATE), None).update is UPDATE


def test_every_truncation_is_noticed() -> None:
    data = messages.write(Message(7, 5.0, UPDATE), CODEC)
    for length in range(len(data)):
        with pytest.raises(InputError, match=f"got {length}"):
            messages.read(data[:length], CODEC)
    with pytest.raises(InputError, match="must have 32 bytes, got 33"):
        messages.read(data + b"\0", CODEC)


@pytest.mark.parametrize("text", ["float32", "top_k:0.1", "eden:1", "peaks:0.1", "quantize:4"])
def test_an_update_without_weights_is_read(text: str) -> None:
    data = bytearray(messages.write(Message(7, 5.0, UPDATE), CODEC))[: messages.OVERHEAD]
    data[4:8] = bytes(4)
    codec = parse(f"full+{text}").codec
    assert messages.read(bytes(data), codec).update.shape == (0,)
    with pytest.raises(InputError, match="must have 24 bytes, got 25"):
        messages.read(bytes(data) + b"0", codec)


def test_another_version_is_refused() -> None:
    data = bytearray(messages.write(Message(7, 5.0, UPDATE), CODEC))
    data[0] = 1
    with pytest.raises(InputError, match="has version 1, this program reads 5"):
        messages.read(bytes(data), CODEC)


@pytest.mark.parametrize("examples", [1.6, 0.5])
def test_a_count_need_not_be_whole(examples: float) -> None:
    back = messages.read(messages.write(Message(examples, 1.0, None), CODEC), CODEC)
    assert back.examples == pytest.approx(examples, rel=1e-7)


@pytest.mark.parametrize("examples", [-1, math.inf, math.nan])
def test_a_count_that_is_none_is_refused(examples: float) -> None:
    with pytest.raises(InputError, match=r"`examples` must be in \[0, inf\), got"):
        messages.write(Message(examples, 1.0, None), CODEC)


def test_a_norm_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be written down"):
        messages.write(Message(1, 1e300, None), CODEC)
    with pytest.raises(InputError, match="cannot be written down"):
        messages.write(Message(1e300, 1.0, None), CODEC)


def test_a_codec_refuses_the_wrong_number_of_bytes() -> None:
    with pytest.raises(InputError, match="2 weights take 8 bytes in `float32`, got 7"):
        codecs.from_bytes(CODEC, b"1234567", 2)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_refused(number: float) -> None:
    data = messages.write(Message(1, 1.0, np.array([1.0, number], np.float32)), CODEC)
    with pytest.raises(InputError, match="numbers that are not finite"):
        messages.read(data, CODEC)


@pytest.mark.parametrize(("asked", "written"), [(32, 32), (49, 34), (10**9, 260), (0, 66)])
def test_a_code_has_the_bytes_that_its_message_asks_for(asked: int, written: int) -> None:
    """At the most; where none are asked for, those of the codec."""
    update = np.random.default_rng(0).standard_normal(65).astype(np.float32)
    key, codec = np.array([1, 2], np.uint32), codecs.peaks("100B")
    said = Message(3, 8.0, update, nbytes=asked)
    data = messages.write(said, codec, key)
    assert len(data) == messages.OVERHEAD + written
    back, through = messages.read(data, codec, key), messages.through(said, codec, key)
    np.testing.assert_array_equal(back.update, through.update)
    assert back.nbytes == written
    assert through.nbytes == (written if asked else 0)


def test_a_message_for_another_model_is_refused() -> None:
    """A short code of any length could be one for billions of weights."""
    codec, key = codecs.peaks("32B"), np.array([1, 2], np.uint32)
    data = bytearray(messages.write(Message(1, 1.0, np.ones(65, np.float32)), codec, key))
    data[4:8] = b"\xff" * 4
    with pytest.raises(InputError, match="has 4294967295 weights, the model has 65"):
        messages.read(bytes(data), codec, key, 65)


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_any_bytes_are_a_message_or_an_error(data: st.DataObject) -> None:
    """Of a codec whose codes have any length: bytes changed, cut off or added anywhere."""
    update = np.random.default_rng(0).standard_normal(65).astype(np.float32)
    key, codec = np.array([1, 2], np.uint32), codecs.peaks()
    whole = bytearray(messages.write(Message(3, 8.0, update, nbytes=34), codec, key))
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=8)
    ):
        whole[place] = byte
    end = data.draw(st.sampled_from((0, 1, messages.OVERHEAD, len(whole) - 1, *[len(whole)] * 5)))
    sent = bytes(whole[:end]) + data.draw(st.binary(max_size=2))
    try:
        with np.errstate(all="ignore"):
            read = messages.read(sent, codec, key, 65)
    except InputError:
        return
    assert len(sent) >= messages.OVERHEAD
    assert read.update is None or (read.update.dtype, len(read.update)) == (np.float32, 65)

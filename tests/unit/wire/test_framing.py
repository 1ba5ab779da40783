"""Frames: whatever way a stream is cut, the same frames come out; bad sizes end it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.framing import FrameBuffer, FrameError, frame


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 13))
def test_frames_survive_any_cut_of_the_stream(bodies: list[bytes], step: int) -> None:
    stream = b"".join(frame(body) for body in bodies)
    buffer = FrameBuffer()
    seen = [f for at in range(0, len(stream), step) for f in buffer.feed(stream[at : at + step])]
    assert seen == bodies
    assert buffer.wanted_bytes == 0


def test_parts_are_joined_under_one_size() -> None:
    assert frame(b"ab", b"", b"c") == b"\x00\x00\x00\x03abc"


@pytest.mark.parametrize(
    ("size", "limit"),
    [
        pytest.param(-1, 100, id="a negative size"),
        pytest.param(101, 100, id="one byte above the limit"),
        pytest.param(0x47455420, 100, id="an HTTP request"),
    ],
)
def test_a_bad_size_is_refused_after_the_good_frames(size: int, limit: int) -> None:
    buffer = FrameBuffer(limit)
    frames = buffer.feed(frame(b"good") + struct.pack(">i", size))
    assert next(frames) == b"good"
    with pytest.raises(FrameError, match="allowed are 0 to 100"):
        next(frames)


def test_a_frame_of_exactly_the_limit_is_allowed() -> None:
    assert list(FrameBuffer(4).feed(frame(b"four"))) == [b"four"]


def test_a_frame_that_comes_alone_may_not_be_larger_either() -> None:
    with pytest.raises(FrameError):
        list(FrameBuffer(4).feed(frame(b"12345")))


def test_what_was_yielded_is_not_kept() -> None:
    buffer = FrameBuffer()
    assert list(buffer.feed(frame(b"x" * 1000) + b"\x00\x00")) == [b"x" * 1000]
    assert buffer.wanted_bytes == 0, "the size of the next is not whole"
    assert list(buffer.feed(b"\x00\x01y")) == [b"y"]

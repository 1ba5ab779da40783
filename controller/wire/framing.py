"""Size-prefixed frames, sans-IO: bytes in, whole frames out.

Source: spec broker.md §1.1. A size that is negative or above the limit ends the connection, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

#: `socket.request.max.bytes` (100 MiB).
MAX_REQUEST_BYTES: Final = 104_857_600
_SIZE: Final = struct.Struct(">i")


class FrameError(Exception):
    """The peer does not speak the protocol; the connection must be closed. The message says why."""


def frame(*parts: bytes) -> bytes:
    """The parts as one frame: their total size as int32, then the parts."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))


class FrameBuffer:
    """Collects what a stream brings and yields each frame (without its size) once it is whole."""

    __slots__ = ("_buffer", "_max_bytes")

    def __init__(self, max_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes bytes and yields the frames they complete, in order.

        Raises: FrameError, for a size that is negative or above the limit. Frames before it are yielded first;
        memory never grows beyond the limit plus one read.
        """
        if not self._buffer and self._is_one_frame(data):
            yield data[_SIZE.size :]
            return
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _SIZE.size:
                (size,) = _SIZE.unpack_from(self._buffer, at)
                if not 0 <= size <= self._max_bytes:
                    raise FrameError(f"frame of {size} bytes; allowed are 0 to {self._max_bytes}")
                if len(self._buffer) - at - _SIZE.size < size:
                    return
                at += _SIZE.size
                yield bytes(memoryview(self._buffer)[at : at + size])
                at += size
        finally:
            del self._buffer[:at]

    def _is_one_frame(self, data: bytes) -> bool:
        """Whether that is a frame and no more, as most of what comes: it need not be put together."""
        size = len(data) - _SIZE.size
        return 0 <= size <= self._max_bytes and bool(_SIZE.unpack_from(data)[0] == size)

    @property
    def wanted_bytes(self) -> int:
        """The size of the frame that is not whole yet, 0 while that is not known either."""
        return _SIZE.unpack_from(self._buffer)[0] if len(self._buffer) >= _SIZE.size else 0

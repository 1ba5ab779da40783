"""The compression codecs of record batches, in Kafka's framing, with a limit on what a peer can make of few bytes.

Of gzip there may be several members. Snappy is framed as xerial's SnappyOutputStream does (a header, then blocks with
their lengths); readers also take a bare block. LZ4 is the LZ4 frame format.
Source: Kafka 3.9 `GzipCompression`, `SnappyCompression`, `Lz4BlockOutputStream`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Final

import cramjam

from controller.wire.errors import ErrorCode, KafkaError

#: More than any real batch: a produced batch is at most `max.message.bytes` compressed.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
#: How a member begins (its method is deflate), and as many bytes as one has at least for Java to look at them.
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_MEMBER_MIN_BYTES: Final = 19
#: Of that much the rest behind a member is put aside: members are few bytes, and may be many.
_GZIP_PIECE_BYTES: Final = 8 * 1024
#: What is tried first for the decompressed data: this much, or so many times what came.
_FIRST_BYTES: Final = 64 * 1024
_FIRST_TIMES: Final = 4
#: How cramjam says that the data does not fit in where it shall go.
_DOES_NOT_FIT: Final = "failed to write whole buffer"
_LENGTH: Final = struct.Struct(">i")


class Codec(Enum):
    """The numbers of the attributes' low bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """The data in the codec's framing."""
    return _COMPRESS[codec](data)


def decompress(codec: Codec, data: bytes, *, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The data again. Raises KafkaError CORRUPT_MESSAGE when it does not decompress or is larger than `limit`."""
    try:
        return _DECOMPRESS[codec](data, limit)
    except _FAILURES as error:
        reason = f"more than {limit} bytes" if isinstance(error, _TooLarge) else error
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()} data does not decompress: {reason}"
        ) from error


class _TooLarge(ValueError):
    """More comes of the data than the limit, which is that of all of it, not what is left for its last part."""


def _gzip(data: bytes) -> bytes:
    worker = zlib.compressobj(wbits=31)
    return worker.compress(data) + worker.flush()


def _gunzip(data: bytes, limit: int) -> bytes:
    """All members that follow each other, as Java's `GZIPInputStream`: what is none of them ends the data."""
    out, at = bytearray(), 0
    while True:
        worker = zlib.decompressobj(wbits=31)
        while not worker.eof:
            if not (piece := data[at : at + _GZIP_PIECE_BYTES]):
                raise ValueError("the stream is cut off")
            out += worker.decompress(piece, limit + 1 - len(out))
            if len(out) > limit:
                raise _TooLarge
            at += len(piece) - len(worker.unused_data)
        if len(data) - at < _GZIP_MEMBER_MIN_BYTES or not data.startswith(_GZIP_MAGIC, at):
            return bytes(out)


def _snappy(data: bytes) -> bytes:
    pieces = (data[at : at + _XERIAL_BLOCK_BYTES] for at in range(0, len(data), _XERIAL_BLOCK_BYTES))
    blocks = (bytes(cramjam.snappy.compress_raw(piece)) for piece in pieces)
    return _XERIAL_HEADER + b"".join(_LENGTH.pack(len(block)) + block for block in blocks)


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    out = bytearray()
    at = len(_XERIAL_HEADER)
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise ValueError(f"block of {length} bytes leaves the data")
        out += _unsnappy_block(data[at : at + length], limit - len(out))
        at += length
    return bytes(out)


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: bytes) -> bytes:
    # Kafka's reader takes independent blocks only.
    worker = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
    worker.compress(data)
    return bytes(worker.finish())


def _unlz4(data: bytes, limit: int) -> bytes:
    return _into(cramjam.lz4.decompress_into, data, limit)


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _unzstd(data: bytes, limit: int) -> bytes:
    return _into(cramjam.zstd.decompress_into, data, limit)


def _into(decompress_into: Callable[[bytes, bytearray], int], data: bytes, limit: int) -> bytes:
    """The data again, in a buffer that grows up to the limit."""
    size = min(max(_FIRST_BYTES, _FIRST_TIMES * len(data)), limit)
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            if str(error) != _DOES_NOT_FIT:
                raise
        if size == limit:
            raise _TooLarge
        size = min(2 * size, limit)


_COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[Codec, Callable[[bytes, int], bytes]]] = {
    Codec.NONE: lambda data, limit: data,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
_FAILURES: Final = (
    ValueError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
    cramjam.DecompressionError,
)

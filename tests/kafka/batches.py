"""Batches of records, good ones and every kind of bad one, as a producer might send them."""

from __future__ import annotations

import struct
import time

import crc32c

from controller.wire.compression import Codec, compress
from controller.wire.records import HEADER_BYTES, Record, build_batch

NOW = int(time.time() * 1000)


def batch(count: int = 1, *, key: bytes | None = b"k", codec: Codec = Codec.NONE, **producer: int) -> bytes:
    return build_batch([Record(n, NOW, key, b"v") for n in range(count)], codec=codec, **producer)


def with_crc(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", crc32c.crc32c(data[21:])) + data[21:]


def patched(data: bytes, at: int, new: bytes, *, crc: bool = True) -> bytes:
    changed = data[:at] + new + data[at + len(new) :]
    return with_crc(changed) if crc and at >= 21 else changed


def with_body(data: bytes, body: bytes, codec: Codec = Codec.NONE) -> bytes:
    """The header of `data` before another body."""
    head = data[:8] + struct.pack(">i", HEADER_BYTES - 12 + len(body)) + data[12:HEADER_BYTES]
    return with_crc(head[:21] + struct.pack(">h", codec.value) + head[23:] + body)


def of_times(*times: int) -> bytes:
    return build_batch([Record(n, t, b"k", b"v") for n, t in enumerate(times)])


def keyless(count: int) -> bytes:
    return build_batch([Record(n, NOW, None if n % 2 else b"k", b"v") for n in range(count)])


GOOD = batch(2)
GZIPPED = batch(3, codec=Codec.GZIP)
#: name -> the bytes of one partition's records.
BATCHES: dict[str, bytes] = {
    "good": GOOD,
    **{codec.name.lower(): batch(2, codec=codec) for codec in Codec},
    "nothing": b"",
    "two batches": GOOD + GOOD,
    "a batch and a torn one": GOOD + GOOD[:-1],
    "a batch and a few bytes": GOOD + b"abc",
    "a torn batch": GOOD[:-1],
    "half a header": GOOD[:40],
    "eleven bytes": GOOD[:11],
    "sixteen bytes": GOOD[:16],
    "a length of 13": patched(GOOD, 8, struct.pack(">i", 13)),
    "a length of 48": patched(GOOD, 8, struct.pack(">i", 48)),
    "a negative length": patched(GOOD, 8, struct.pack(">i", -5)),
    "magic 1": patched(GOOD, 16, b"\x01"),
    "magic 3": patched(GOOD, 16, b"\x03"),
    "magic -1": patched(GOOD, 16, b"\xff"),
    "a wrong checksum": patched(GOOD, 17, b"\x00\x00\x00\x01"),
    "a flipped bit": patched(GOOD, 65, b"\x7f", crc=False),
    "base offset 5": patched(GOOD, 0, struct.pack(">q", 5)),
    "base offset 5 and a wrong checksum": patched(patched(GOOD, 0, struct.pack(">q", 5)), 17, b"\x00\x00\x00\x01"),
    "a wrong last offset delta": patched(GOOD, 23, struct.pack(">i", 4)),
    "a negative last offset delta": patched(GOOD, 23, struct.pack(">i", -2)),
    "no records": with_body(patched(GOOD, 57, struct.pack(">i", 0)), b""),
    "a count of -1": patched(GOOD, 57, struct.pack(">i", -1)),
    "count above the records": patched(patched(GOOD, 57, struct.pack(">i", 3)), 23, struct.pack(">i", 2)),
    "count below the records": patched(patched(GOOD, 57, struct.pack(">i", 1)), 23, struct.pack(">i", 0)),
    "a control batch": patched(GOOD, 21, struct.pack(">h", 0x20)),
    "log append time set": patched(GOOD, 21, struct.pack(">h", 0x08)),
    "codec 5": patched(GOOD, 21, struct.pack(">h", 5)),
    "codec 7": patched(GOOD, 21, struct.pack(">h", 7)),
    "gzip that is none": patched(GOOD, 21, struct.pack(">h", 1)),
    "snappy that is none": patched(GOOD, 21, struct.pack(">h", 2)),
    "lz4 that is none": patched(GOOD, 21, struct.pack(">h", 3)),
    "zstd that is none": patched(GOOD, 21, struct.pack(">h", 4)),
    "gzip cut off": with_body(GZIPPED, GZIPPED[HEADER_BYTES:-12], Codec.GZIP),
    "garbage for records": with_body(GOOD, b"\xff" * 40),
    "zeros for records": with_body(GOOD, b"\x00" * 16),
    "bytes after the records": with_body(GOOD, GOOD[HEADER_BYTES:] + b"\x00\x00"),
    "a producer without sequence": batch(1, producer_id=77, producer_epoch=0, base_sequence=-1),
    "offset deltas out of order, compressed": with_body(
        batch(2), compress(Codec.GZIP, GOOD[HEADER_BYTES:][: len(GOOD[HEADER_BYTES:]) // 2] * 2), Codec.GZIP
    ),
    "offset deltas out of order": with_body(batch(2), GOOD[HEADER_BYTES:][: len(GOOD[HEADER_BYTES:]) // 2] * 2),
    "no keys": keyless(6),
    "too large": batch(400),
    "too large and a wrong checksum": patched(batch(400), 17, b"\x00\x00\x00\x01"),
    "too large and base offset 5": patched(batch(400), 0, struct.pack(">q", 5)),
    "old": of_times(NOW - 10_000_000),
    "old, among good": of_times(NOW, NOW - 10_000_000, NOW, 5),
    "of the future": of_times(NOW + 100_000_000),
    "no timestamp": of_times(-1),
}  # fmt: skip

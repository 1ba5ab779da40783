"""Small logs on disk, that are appended to and opened again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import crc32c

from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log
from controller.wire.records import Record, build_batch, iterate
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=500, segment_index_bytes=1_200, index_interval_bytes=100, retention_ms=-1)


def new_log(folder: Path, config: LogConfig = SMALL, **given_: object) -> Log:
    log = Log(TP, folder / "t-0", config, **given_)
    log.create()
    return log


def append(log: Log, value: bytes = b"x" * 60, *, producer: int = -1, sequence: int = -1, at: int = 1_000) -> int:
    epoch = 0 if producer >= 0 else -1
    batch = build_batch(
        [Record(0, at, b"k", value)], producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )
    return log.append_as_leader(batch, leader_epoch=0, now_ms=at).base_offset


def reopened(log: Log, **how: int) -> tuple[Log, list[Any]]:
    again = Log(TP, log.folder, log.config)
    return again, again.load(**{"is_clean": False, **how})


def values(log: Log) -> dict[int, bytes | None]:
    return {r.offset: r.value for r in iterate(b"".join(log.batches()))}


def names(log: Log) -> list[str]:
    return sorted(path.name for path in log.folder.iterdir())


def patched(data: bytes, *changes: tuple[int, str, int]) -> bytes:
    """(offset, form, value) each; the checksum is right again."""
    batch = bytearray(data)
    for offset, form, value in changes:
        struct.pack_into(form, batch, offset, value)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)

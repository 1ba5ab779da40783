"""`.snapshot` files: the producers of a log as they were at an offset, so that a start need not read the whole log.

One is written where a segment begins and where the log ends when it is closed. A snapshot that is torn or damaged is
removed and an earlier one used. Source: Kafka 3.9 `ProducerStateManager` (schema version 1), spec broker.md §10.1.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import crc32c

from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.files import Files
from broker_sim.log.producers import Producer, ProducerStates, StoredBatch

SUFFIX: Final = "snapshot"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
#: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of its
#: open transaction.
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode(states: ProducerStates) -> bytes:
    """The file's content."""
    entries = [_encode_one(producer_id, producer) for producer_id, producer in states]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + body


def _encode_one(producer_id: int, producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else StoredBatch(-1, -1, 0, producer.last_ms)
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_ms,
        producer.coordinator_epoch,
        producer.current_txn_first_offset,
    )


def decode(data: bytes, path: Path, *, oldest_ms: int) -> ProducerStates:
    """The producers that are kept at `oldest_ms`. Raises CheckpointError for a content that is not whole."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CheckpointError(path, f"{len(data)} bytes are too few")
    version, stored = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CheckpointError(path, f"version {version} is not {_VERSION}")
    body = data[_HEAD.size :]
    if (computed := crc32c.crc32c(body)) != stored:
        raise CheckpointError(path, f"stored checksum {stored:#010x} is not the computed {computed:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CheckpointError(path, f"{count} entries do not fill {len(body)} bytes")
    states = ProducerStates()
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn in _ENTRY.iter_unpack(
        body[_COUNT.size :]
    ):
        producer = Producer(
            epoch=epoch, last_ms=timestamp, coordinator_epoch=coordinator_epoch, current_txn_first_offset=txn
        )
        if offset >= 0:
            producer.batches.append(StoredBatch(sequence, offset, delta, timestamp))
        if producer.is_kept(oldest_ms):
            states.put(producer_id, producer)
    return states


class Snapshots:
    """The snapshot files of one log. Methods may raise OSError."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder, self._files = folder, files
        self._offsets: list[int] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where there are snapshots, rising."""
        return tuple(self._offsets)

    def path(self, offset: int) -> Path:
        """The file of the snapshot at an offset."""
        return self.folder / f"{offset:020d}.{SUFFIX}"

    def found(self, names: Iterable[str]) -> None:
        """These files are in the folder."""
        stems = (name.removesuffix(f".{SUFFIX}") for name in names if name.endswith(f".{SUFFIX}"))
        self._offsets = sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def remove_strays(self, bases: Collection[int]) -> None:
        """Keeps those at the start of a segment and, if it is the newest of all, one more."""
        newest = max(bases, default=-1)
        strays = [offset for offset in self._offsets if offset not in bases]
        for offset in strays:
            if offset != strays[-1] or offset < newest:
                self.remove(offset)

    def take(self, offset: int, states: ProducerStates) -> None:
        """Writes the snapshot at `offset`, unless it or a later one is there.

        Neither synced nor renamed into place: a torn one is noticed by its checksum, and can be made again.
        """
        if offset > (self._offsets[-1] if self._offsets else 0):
            self._files.write(self.path(offset), encode(states))
            self._offsets.append(offset)

    def load(self, *, up_to: int, above: int, oldest_ms: int) -> tuple[int, ProducerStates]:
        """(offset, producers) of the newest usable snapshot at or before `up_to`; later ones are removed.

        (`above`, none) without one: those at or below `above`, the log's start, are removed too.
        """
        for offset in reversed(self.offsets):
            if above < offset <= up_to:
                try:
                    data = self.path(offset).read_bytes()
                    return offset, decode(data, self.path(offset), oldest_ms=oldest_ms)
                except (CheckpointError, FileNotFoundError):
                    pass
            self.remove(offset)
        return above, ProducerStates()

    def remove(self, offset: int) -> None:
        """Removes one, if it is there."""
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._files.remove(self.path(offset))

    def doom(self, offset: int, suffix: str) -> list[str]:
        """Renames one away; its new name, nothing when there is none."""
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        to = self.path(offset).with_name(self.path(offset).name + suffix)
        self._files.rename(self.path(offset), to)
        return [to.name]

    def clear(self) -> None:
        """Removes all."""
        for offset in self.offsets:
            self.remove(offset)

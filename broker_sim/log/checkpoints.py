"""The small files of a log dir: offset checkpoints, `meta.properties`, the clean-shutdown marker.

All are replaced as a whole: written beside, synced, renamed. Every function may raise OSError.
Source: spec broker.md §10.1, §4.2.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from controller.wire.types import TopicPartition

T = TypeVar("T")

HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
META_FILE: Final = "meta.properties"
_META_VERSION: Final = "0"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"


class CheckpointError(ValueError):
    """A file that is not what it should be; the message names it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replaces a file; a reader sees the old or the new content, never a part."""
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    beside = path.with_name(path.name + ".tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)
    beside.replace(path)
    if sync:
        sync_dir(path.parent)


def sync_dir(folder: Path) -> None:
    """Makes renames in a folder last."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """An offset checkpoint: `0`, the number of entries, then `topic partition offset` lines."""
    entries = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(entries)), *entries]) + "\n"


def read_entries(path: Path, entry: Callable[[list[str]], T]) -> list[T]:
    """What `entry` makes of the words of each line; none of an empty file, as Kafka leaves it until it writes one.

    Raises CheckpointError for another content, also with more or fewer entries than it says; FileNotFoundError.
    Source: Kafka 3.9 `CheckpointFile.CheckpointReadBuffer.read`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        version, count = (int(lines[n]) if lines[n:] else 0 for n in (0, 1))
        found = [entry(line.split()) for line in lines[2:]]
    except ValueError as error:  # no text, too
        raise CheckpointError(path, f"malformed: {error}") from error
    if version != 0 or len(found) != count:
        raise CheckpointError(path, f"version {version}, {len(found)} of {count} entries")
    return found


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty when there is no file. Raises CheckpointError for another content."""
    try:
        return dict(read_entries(path, _offset))
    except FileNotFoundError:
        return {}


def _offset(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    return TopicPartition(topic, int(partition)), int(offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Who a log dir belongs to. `cluster_id` is None in files of very old brokers."""

    broker_id: int
    cluster_id: str | None


def read_meta(path: Path) -> MetaProperties | None:
    """`meta.properties`, None when there is no file. Raises CheckpointError for another content or version.

    Source: Kafka 3.9 `MetaPropertiesVersion`; version 1 is that of KRaft, and a broker in ZooKeeper mode has 0. Java
    reads properties as ISO 8859-1, in which there is nothing that cannot be read.
    """
    try:
        lines = path.read_text(encoding="iso-8859-1").splitlines()
    except FileNotFoundError:
        return None
    split = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    pairs = {name.strip(): value.strip() for name, _, value in split}
    if (version := pairs.get("version", _META_VERSION)) != _META_VERSION:
        raise CheckpointError(path, f"version {version}; a broker in ZooKeeper mode reads version {_META_VERSION}")
    try:
        return MetaProperties(broker_id=int(pairs["broker.id"]), cluster_id=pairs.get("cluster.id"))
    except (KeyError, ValueError) as error:
        raise CheckpointError(path, f"broker.id is missing or no number: {error}") from error


def cluster_id_of(log_dirs: Iterable[Path]) -> str | None:
    """The id that `meta.properties` of these dirs holds; None where none does, or they hold more than one."""
    found = set[str | None]()
    for path in log_dirs:
        with contextlib.suppress(OSError, ValueError):  # what loads the dir says what is wrong with it
            meta = read_meta(path / META_FILE)
            found.add(meta.cluster_id if meta is not None else None)
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def write_meta(path: Path, meta: MetaProperties) -> None:
    """Writes `meta.properties`, version 0."""
    write_atomically(path, f"#\nversion={_META_VERSION}\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}\n")


def write_clean_shutdown(folder: Path, broker_epoch: int) -> None:
    """Leaves the marker that spares the next start the recovery."""
    write_atomically(folder / CLEAN_SHUTDOWN_FILE, json.dumps({"version": 0, "brokerEpoch": broker_epoch}))


def take_clean_shutdown(folder: Path) -> bool:
    """Whether the marker was there; it is gone now."""
    marker = folder / CLEAN_SHUTDOWN_FILE
    was_there = marker.exists()
    marker.unlink(missing_ok=True)
    return was_there

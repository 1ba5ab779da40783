"""Which log files there are, and whose each is. Reads the head of every file, on the driver; no more.

Whose a file is: what the caller says; else the broker that the file's own messages name; else the one that the messages
of the other files in its folder name; else the number in the name of the folder or of the file.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from broker_sim.replay.below import below, is_file
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.logs.lines import HEAD_PATTERN

#: So much of a file is looked at.
_HEAD_BYTES: Final = 256 * 1024
_TEXT_BYTES: Final = 1024 * 1024
#: What a packed file begins with, whatever its name is.
_GZIP_MAGIC: Final = b"\x1f\x8b"

_RECORD: Final = re.compile(HEAD_PATTERN, re.M)
_SPEAKER: Final = re.compile(
    r"\[(?:Partition \S+ broker=|Broker id=|Controller (?:id=)?|ReplicaManager broker=|"
    r"(?:Kafka|Broker|Controller)Server id=|QuorumController id=|RaftManager (?:id|nodeId)=|KafkaRaftServer nodeId=|"
    r"ReplicaFetcherManager on broker |GroupCoordinator |TransactionCoordinator id=)(\d+)\b(?!, targetBrokerId)|"
    r"^\t(?:node|broker)\.id = (\d+)$|\[ControllerEventThread controllerId=(\d+)\]|"
    r"Registered broker (\d+) at path /brokers/ids/",
    re.M,
)
_NUMBERED_FOLDER: Final = re.compile(r"^(?:.*[-_.])?(?:b|broker|kafka|node|server|id)?[-_.]?(\d{1,9})$", re.I)
_NUMBERED_FILE: Final = re.compile(r"(?:^|[-_.])(?:b|broker|kafka|node|id)[-_.]?(\d{1,9})(?=[-_.])", re.I)
#: A day, and perhaps an hour, in a name: no number of a broker.
_DATE: Final = re.compile(
    r"(?<!\d)(?:19|20)\d\d([-_.]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)(?:[-_.]\d\d(?!\d))?"
)


class FileKind(Enum):
    """What a file was taken for; the value is the `kind` column of the `files` table."""

    LOG = "log"
    TRACE = "trace"
    METADATA = "metadata_log"
    SNAPSHOT = "metadata_snapshot"
    OTHER_CLUSTER = "other_cluster"
    EMPTY = "empty"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file, and whose it is. `broker_from`: `given`, `content`, `folder`, `name`, or null where nothing tells."""

    path: Path
    kind: FileKind
    size: int
    broker: int | None = None
    broker_from: str | None = None
    #: brokers that the messages in its head name
    named: frozenset[int] = frozenset()

    def as_row(self) -> tuple[str, str, int | None, str | None, int]:
        """The row of the `files` table."""
        return (str(self.path), self.kind.value, self.broker, self.broker_from, self.size)


def log_files(
    paths: Sequence[Path], *, only: Sequence[str] = (), brokers: Sequence[tuple[str, int]] = ()
) -> list[LogFile]:
    """The files at `paths` and below, sorted; those that are no logs are named as such and not read.

    `only`: glob patterns of file names. `brokers`: (glob pattern of a path, id), the first that fits counts.

    Raises: ReplayRefused, when a path is missing, a file is unreadable, or there is no log at all.
    """
    found = [_looked_at(path) for path in _all_files(paths, only)]
    if not any(file.kind is FileKind.LOG for file in found):
        where = ", ".join(str(path) for path in paths)
        if found and all(file.kind is FileKind.EMPTY for file in found):
            raise ReplayRefused(f"empty log files: {where}")
        raise ReplayRefused(
            f"no Kafka log in {where}: of {len(found)} files none has lines that begin with "
            "[yyyy-MM-dd HH:mm:ss,SSS] LEVEL"
        )
    return _with_brokers(found, brokers)


def _all_files(paths: Sequence[Path], only: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise ReplayRefused(f"no such file or folder: {path}")
        if path.is_file():
            found.add(path.absolute())
            continue
        inside = (p for p in below(path) if is_file(p) and not p.name.startswith("."))
        found.update(p.absolute() for p in inside if not only or any(fnmatch(p.name, pattern) for pattern in only))
    return sorted(found)


def is_packed(path: Path) -> bool:
    """Whether a file is packed, by its bytes. Raises: OSError."""
    with path.open("rb") as stream:
        return stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def _looked_at(path: Path) -> LogFile:
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise ReplayRefused(f"cannot read {path}: {error.strerror}") from error
    if not head:
        return LogFile(path=path, kind=FileKind.EMPTY, size=size)
    text = _text_of(head)
    kind = FileKind.LOG if text is not None and _RECORD.search(text) else FileKind.OTHER
    named = {int(next(filter(None, ids))) for ids in _SPEAKER.findall(text)} if text else set()
    return LogFile(path=path, kind=kind, size=size, named=frozenset(named))


def _text_of(head: bytes) -> str | None:
    """The beginning of a file as text, unpacked; None for what is no text."""
    if head.startswith(_GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _TEXT_BYTES)
        except zlib.error:
            return None
    return None if b"\x00" in head else head.decode("utf-8", errors="replace")


def _with_brokers(files: list[LogFile], given: Sequence[tuple[str, int]]) -> list[LogFile]:
    by_folder: dict[Path, set[int]] = defaultdict(set)
    for file in files:
        by_folder[file.path.parent] |= file.named
    return [_with_broker(file, by_folder[file.path.parent], given) for file in files]


def _with_broker(file: LogFile, in_folder: set[int], given: Sequence[tuple[str, int]]) -> LogFile:
    for pattern, broker in given:
        if fnmatch(str(file.path), pattern) or fnmatch(file.path.name, pattern) or file.path.match(pattern):
            return replace(file, broker=broker, broker_from="given")
    if len(file.named) == 1:
        return replace(file, broker=min(file.named), broker_from="content")
    if len(file.named) > 1:
        return replace(file, broker_from=None)
    if len(in_folder) == 1:
        return replace(file, broker=min(in_folder), broker_from="folder")
    if (number := _NUMBERED_FILE.search(_DATE.sub("", file.path.name))) is not None:
        return replace(file, broker=int(number[1]), broker_from="name")
    if (number := _NUMBERED_FOLDER.match(_DATE.sub("", file.path.parent.name))) is not None:
        return replace(file, broker=int(number[1]), broker_from="folder")
    return file

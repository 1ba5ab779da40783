"""ZooKeeper's operations and answers as values. Pure: who performs them stands behind `ports.ZkSession`.

What a failover makes a hundred thousand of is a named tuple, or not frozen, because that triples the time to make one;
nobody changes such a value once it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple


class ZkCode(IntEnum):
    """Result codes (ZooKeeper's `KeeperException.Code`)."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    OTHER = -1


class ZkSessionExpired(Exception):
    """The session is gone; its ephemeral znodes with it. Every later operation of that session raises this."""


class ZkUnreachable(Exception):
    """No ZooKeeper server answered in time. The message names the servers and what to do."""


class ZkRefused(Exception):
    """ZooKeeper refused an operation that must work. The message names path and code."""

    def __init__(self, path: str, code: ZkCode) -> None:
        super().__init__(f"ZooKeeper: {path}: {code.name}")
        self.path, self.code = path, code


class Stat(NamedTuple):
    """What ZooKeeper knows about a znode besides its data, in its order. Times in ms since the epoch; `cversion` counts
    how often a child was created or deleted; `ephemeral_owner` 0 if none."""

    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    ephemeral_owner: int = 0
    num_children: int = 0


@dataclass(slots=True, unsafe_hash=True)
class GetData:
    """Data and stat; `watch` fires at the next change or deletion of the data."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """Stat or NO_NODE; `watch` fires at the next creation, change or deletion."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetChildren:
    """Names of the children, unordered; `watch` fires at the next change of the list."""

    path: str
    watch: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Create:
    """Creates a znode (not its parents). `data` None means no payload at all, as Kafka writes it."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(slots=True, unsafe_hash=True)
class SetData:
    """Sets the data; `version` -1 is any version."""

    path: str
    data: bytes | None
    version: int = -1


@dataclass(slots=True, unsafe_hash=True)
class Delete:
    """Deletes a childless znode; `version` -1 is any version."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Only inside a `Multi`: fails it unless the znode has this version."""

    path: str
    version: int


ZkReadOp = GetData | Exists | GetChildren
ZkWriteOp = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Multi:
    """All or nothing. The result has one `ZkResult` per operation; when one fails it has that operation's code, the
    ones before it OK-or-RUNTIME_INCONSISTENCY, the ones after it RUNTIME_INCONSISTENCY, and nothing was done."""

    ops: tuple[ZkWriteOp, ...]


ZkOp = GetData | Exists | GetChildren | Create | SetData | Delete | Multi


class ZkResult(NamedTuple):
    """The answer to one operation; which fields are set depends on the operation.

    `path` is the created path (with its sequence number). `results` are a Multi's. `code` of a Multi is that of the
    first operation that failed, OK if none did.
    """

    code: ZkCode
    data: bytes | None = None
    stat: Stat | None = None
    children: tuple[str, ...] = ()
    path: str = ""
    results: tuple[ZkResult, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the operation was done."""
        return self.code is ZkCode.OK


def found_or_missing(ops: Sequence[ZkReadOp], results: Sequence[ZkResult]) -> list[ZkResult]:
    """The results of reads. Raises ZkRefused, for what is neither found nor missing: it must not count as missing."""
    for op, result in zip(ops, results, strict=True):
        if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
            raise ZkRefused(op.path, result.code)
    return list(results)


class WatchKind(Enum):
    """Why a watch fired."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data_changed"
    CHILDREN_CHANGED = "children_changed"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A one-shot watch fired. It says that something changed, not what: read again."""

    kind: WatchKind
    path: str

"""The znodes of the in-memory ZooKeeper and the rules for changing them. Pure: it knows no session's connection.

Source: ZooKeeper 3.9 `PrepRequestProcessor` (which check fails first), `DataTree` (what a change does and which
watches it fires, in which order). Held to the same tests as the real server (`tests/zk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    Stat,
    WatchEvent,
    WatchKind,
    ZkCode,
    ZkOp,
    ZkReadOp,
    ZkResult,
    ZkWriteOp,
)


@dataclass(slots=True, kw_only=True)
class Znode:
    """One znode. `created_children` only grows; it numbers sequential children."""

    payload: bytes | None
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    version: int = 0
    created_children: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        """As ZooKeeper reports it."""
        children = len(self.children)
        changes = 2 * self.created_children - children
        return Stat(self.czxid, self.mzxid, self.ctime, self.mtime, self.version, changes, self.owner, children)


@dataclass(frozen=True, slots=True)
class Written:
    """What a write came to: the result, and what it fires, in ZooKeeper's order."""

    result: ZkResult
    fires: tuple[WatchEvent, ...] = ()


class ZnodeTree:
    """All znodes, by absolute path. `refusal` is a fault: the code with which an operation is answered instead of being
    done, None to do it. It is asked about each operation, for a multi about the whole and then about each part."""

    def __init__(self) -> None:
        self.zxid = 0
        self.refusal: Callable[[ZkOp | Check], ZkCode | None] = _nothing_refused
        self._znodes = {"/": Znode(payload=None, czxid=0, mzxid=0, ctime=0, mtime=0)}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Znode | None:
        """The znode, for looking at."""
        return self._znodes.get(path)

    def paths(self) -> list[str]:
        """All paths, sorted."""
        return sorted(self._znodes)

    def copy(self) -> ZnodeTree:
        """Another tree with the same znodes, which refuses nothing."""
        other = ZnodeTree()
        other.zxid = self.zxid
        other._znodes = {path: replace(z, children=dict(z.children)) for path, z in self._znodes.items()}
        other._ephemerals = {session: dict(paths) for session, paths in self._ephemerals.items()}
        return other

    def read(self, op: ZkReadOp) -> ZkResult:
        """Answers a read; watches are the caller's business."""
        if (code := self.refusal(op)) is not None:
            return ZkResult(code)
        znode = self._znodes.get(op.path)
        if znode is None:
            return ZkResult(ZkCode.NO_NODE)
        match op:
            case GetData():
                return ZkResult(ZkCode.OK, data=znode.payload, stat=znode.stat())
            case Exists():
                return ZkResult(ZkCode.OK, stat=znode.stat())
            case GetChildren():
                return ZkResult(ZkCode.OK, children=tuple(sorted(znode.children)))
            case _:
                assert_never(op)

    def write(self, op: Create | SetData | Delete | Multi, *, session: int, now_ms: int) -> Written:
        """Does a write, or all of a multi, or nothing. Each takes a zxid, also those that fail."""
        self.zxid += 1
        ops = op.ops if isinstance(op, Multi) else (op,)
        if isinstance(op, Multi) and (code := self.refusal(op)) is not None:
            return Written(ZkResult(code))
        change = _Change(self._znodes, self._ephemerals, session=session, zxid=self.zxid, now_ms=now_ms)
        results: list[ZkResult] = []
        for one in ops:
            code = self.refusal(one)
            results.append(change.apply(one) if code is None else ZkResult(code))
            if not results[-1].ok:
                change.undo()
                return Written(_failed(results, len(ops)) if isinstance(op, Multi) else results[-1])
        result = ZkResult(ZkCode.OK, results=tuple(results)) if isinstance(op, Multi) else results[0]
        return Written(result, tuple(change.fires))

    def end_session(self, session: int, *, now_ms: int) -> tuple[WatchEvent, ...]:
        """Deletes the session's ephemeral znodes, in one transaction; what that fires."""
        self.zxid += 1
        change = _Change(self._znodes, self._ephemerals, session=session, zxid=self.zxid, now_ms=now_ms)
        for path in list(self._ephemerals.get(session, ())):
            change.apply(Delete(path))
        self._ephemerals.pop(session, None)
        return tuple(change.fires)


def _nothing_refused(_op: ZkOp | Check) -> ZkCode | None:
    return None


def _failed(results: list[ZkResult], count: int) -> ZkResult:
    """Of a multi that failed at the last of `results`: those before are OK, those after inconsistent."""
    before = [ZkResult(ZkCode.OK)] * (len(results) - 1)
    after = [ZkResult(ZkCode.RUNTIME_INCONSISTENCY)] * (count - len(results))
    return ZkResult(results[-1].code, results=(*before, results[-1], *after))


class _Change:
    """One transaction: applies operations one after the other and can take all back."""

    def __init__(
        self,
        znodes: dict[str, Znode],
        ephemerals: dict[int, dict[str, None]],
        *,
        session: int,
        zxid: int,
        now_ms: int,
    ) -> None:
        self._znodes = znodes
        self._ephemerals = ephemerals
        self._session = session
        self._zxid = zxid
        self._now_ms = now_ms
        self._undo: list[Callable[[], None]] = []
        self.fires: list[WatchEvent] = []

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()
        self.fires.clear()

    def apply(self, op: ZkWriteOp) -> ZkResult:
        if not op.path.startswith("/") or (op.path.endswith("/") and op.path != "/") or "//" in op.path:
            return ZkResult(ZkCode.BAD_ARGUMENTS)
        match op:
            case Create():
                return self._create(op)
            case SetData():
                return self._set(op)
            case Delete():
                return self._delete(op)
            case Check():
                code = self._check(op.path, op.version)
                return ZkResult(code)
            case _:
                assert_never(op)

    def _check(self, path: str, version: int) -> ZkCode:
        znode = self._znodes.get(path)
        if znode is None:
            return ZkCode.NO_NODE
        return ZkCode.OK if version in (-1, znode.version) else ZkCode.BAD_VERSION

    def _create(self, op: Create) -> ZkResult:
        if op.path == "/":
            return ZkResult(ZkCode.NODE_EXISTS)
        parent_path = parent_of(op.path)
        parent = self._znodes.get(parent_path)
        if parent is None:
            return ZkResult(ZkCode.NO_NODE)
        path = f"{op.path}{parent.created_children:010d}" if op.sequence else op.path
        if path in self._znodes:
            return ZkResult(ZkCode.NODE_EXISTS)
        if parent.owner:
            return ZkResult(ZkCode.NO_CHILDREN_FOR_EPHEMERALS)
        zxid, now, owner = self._zxid, self._now_ms, self._session if op.ephemeral else 0
        self._znodes[path] = Znode(payload=op.data, czxid=zxid, mzxid=zxid, ctime=now, mtime=now, owner=owner)
        self._link(parent, path, owner)
        parent.created_children += 1
        self._undo.append(lambda: self._uncreate(parent, path, owner))
        self.fires += (
            WatchEvent(WatchKind.CREATED, path),
            WatchEvent(WatchKind.CHILDREN_CHANGED, parent_path),
        )
        return ZkResult(ZkCode.OK, path=path)

    def _uncreate(self, parent: Znode, path: str, owner: int) -> None:
        del self._znodes[path]
        self._unlink(parent, path, owner)
        parent.created_children -= 1

    def _set(self, op: SetData) -> ZkResult:
        code = self._check(op.path, op.version)
        if code is not ZkCode.OK:
            return ZkResult(code)
        znode = self._znodes[op.path]
        before = (znode.payload, znode.version, znode.mzxid, znode.mtime)

        def undo() -> None:
            znode.payload, znode.version, znode.mzxid, znode.mtime = before

        self._undo.append(undo)
        znode.payload, znode.mzxid, znode.mtime = op.data, self._zxid, self._now_ms
        znode.version += 1
        self.fires.append(WatchEvent(WatchKind.DATA_CHANGED, op.path))
        return ZkResult(ZkCode.OK, stat=znode.stat())

    def _delete(self, op: Delete) -> ZkResult:
        if op.path == "/":
            return ZkResult(ZkCode.BAD_ARGUMENTS)
        code = self._check(op.path, op.version)
        if code is ZkCode.OK and self._znodes[op.path].children:
            code = ZkCode.NOT_EMPTY
        if code is not ZkCode.OK:
            return ZkResult(code)
        parent_path = parent_of(op.path)
        parent, znode = self._znodes[parent_path], self._znodes.pop(op.path)
        self._unlink(parent, op.path, znode.owner)

        def undo() -> None:
            self._znodes[op.path] = znode
            self._link(parent, op.path, znode.owner)

        self._undo.append(undo)
        self.fires += (
            WatchEvent(WatchKind.DELETED, op.path),
            WatchEvent(WatchKind.CHILDREN_CHANGED, parent_path),
        )
        return ZkResult(ZkCode.OK)

    def _link(self, parent: Znode, path: str, owner: int) -> None:
        parent.children[path.rpartition("/")[2]] = None
        if owner:
            self._ephemerals.setdefault(owner, {})[path] = None

    def _unlink(self, parent: Znode, path: str, owner: int) -> None:
        del parent.children[path.rpartition("/")[2]]
        if owner:
            del self._ephemerals[owner][path]


class WatchTable:
    """One-shot watches of all sessions. Sessions are told in the order in which they set their watches."""

    def __init__(self) -> None:
        self._data: dict[str, dict[int, None]] = {}
        self._child: dict[str, dict[int, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._child.values()))

    def arm(self, op: ZkReadOp, session: int, *, found: bool) -> None:
        """After a watched read. Only `Exists` leaves a watch on a znode that is not there."""
        if op.watch and (found or isinstance(op, Exists)):
            table = self._child if isinstance(op, GetChildren) else self._data
            table.setdefault(op.path, {})[session] = None

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[int, WatchEvent]]:
        """Whom the events reach; their watches are gone. A deletion reaches a session once, whatever it watched."""
        deliveries = []
        for event in events:
            reached: dict[int, None] = {}
            if event.kind is not WatchKind.CHILDREN_CHANGED:
                reached |= self._data.pop(event.path, {})
            if event.kind in (WatchKind.CHILDREN_CHANGED, WatchKind.DELETED):
                reached |= self._child.pop(event.path, {})
            deliveries += [(session, event) for session in reached]
        return deliveries

    def data_watchers(self, path: str) -> frozenset[int]:
        """Sessions that watch a znode, or its absence."""
        return frozenset(self._data.get(path, ()))

    def child_watchers(self, path: str) -> frozenset[int]:
        """Sessions that watch a znode's children."""
        return frozenset(self._child.get(path, ()))

    def forget(self, session: int) -> None:
        """The session ended."""
        for table in (self._data, self._child):
            for path in [path for path, sessions in table.items() if session in sessions]:
                del table[path][session]
                if not table[path]:
                    del table[path]


def parent_of(path: str) -> str:
    """The parent's path; that of `/a` is `/`."""
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> Sequence[str]:
    """The path and those above it except the root, top down."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]

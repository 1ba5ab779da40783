"""Which watches of a session are armed, so that a new connection can arm them again. Pure."""

from __future__ import annotations

from controller.wire.real import jute
from controller.wire.zk import Exists, GetChildren, GetData, WatchKind, ZkOp


class ArmedWatches:
    """The three kinds that `setWatches` tells apart, by absolute path."""

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot
        self._data: set[str] = set()
        self._exist: set[str] = set()
        self._child: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._data or self._exist or self._child)

    def arm(self, op: ZkOp, *, found: bool) -> None:
        """A read was answered. Only `Exists` leaves a watch on a znode that is not there."""
        if not isinstance(op, GetData | Exists | GetChildren) or not op.watch:
            return
        path = jute.absolute(self._chroot, op.path)
        if isinstance(op, GetChildren):
            if found:
                self._child.add(path)
        elif found:
            self._data.add(path)
        elif isinstance(op, Exists):
            self._exist.add(path)

    def disarm(self, kind: WatchKind, path: str) -> None:
        """A watch fired: a deletion takes all on the path, a change of children the child watch, else the other two."""
        if kind is not WatchKind.CHILDREN_CHANGED:
            self._data.discard(path)
            self._exist.discard(path)
        if kind in (WatchKind.CHILDREN_CHANGED, WatchKind.DELETED):
            self._child.discard(path)

    def request(self, last_zxid: int) -> jute.Request:
        """What arms them on a new connection; the server fires those that missed a change since `last_zxid`."""
        return jute.encode_set_watches(last_zxid, self._data, self._exist, self._child)

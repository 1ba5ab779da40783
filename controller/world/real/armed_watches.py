"""Which watches of a session are armed, or about to be, so that a new connection can arm them again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from controller.wire.zk_operations import Exists, GetChildren, GetData, WatchKind, ZkOp
from controller.world.real import jute

#: Paths of one `setWatches`, in bytes: a server refuses requests above `jute.maxbuffer` (1 MiB by default). ZooKeeper's
#: own client splits there too (`ClientCnxn.SET_WATCHES_MAX_LENGTH`).
SET_WATCHES_BYTES: Final = 128 * 1024
#: Said to have been seen, it keeps `setWatches` from firing for a znode that exists: what it is now is read next.
EVERY_ZXID: Final = 2**63 - 1


class Arming:
    """Data watches that a `setWatches` under way arms, ahead of the reads of those znodes.

    ZooKeeper answers a request of a session before the next, so each watch stands when its znode is read. For a znode
    that does not exist it arms nothing and reports a deletion, which a watched read would not: that one is withheld.
    """

    __slots__ = ("confirmed", "paths")

    def __init__(self, paths: Iterable[str]) -> None:
        #: Those that will be armed, by absolute path; one whose znode turns out to be missing leaves.
        self.paths = set(paths)
        self.confirmed = False

    def request(self) -> jute.Request:
        """The `setWatches`."""
        return jute.encode_set_watches(EVERY_ZXID, self.paths, (), ())


class ArmedWatches:
    """The three kinds that `setWatches` tells apart, by absolute path, and what is being armed."""

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot
        self._data: set[str] = set()
        self._exist: set[str] = set()
        self._child: set[str] = set()
        self._armings: deque[Arming] = deque()

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

    def expect(self, reads: Iterable[ZkOp]) -> Arming:
        """A `setWatches` for the data of these znodes is about to be sent; `confirm` or `withdraw` ends it."""
        arming = Arming(jute.absolute(self._chroot, op.path) for op in reads if isinstance(op, GetData))
        self._armings.append(arming)
        return arming

    def confirm(self, arming: Arming) -> None:
        """The `setWatches` was answered."""
        self._armings.remove(arming)
        self._data |= arming.paths
        arming.confirmed = True

    def withdraw(self, arming: Arming) -> None:
        """The `setWatches` failed, or its connection did."""
        self._armings.remove(arming)

    def disarm(self, kind: WatchKind, path: str) -> bool:
        """A watch fired: a deletion takes all on the path, a change of children the child watch, else the other two.

        False for the report of a missing znode that nobody watched.
        """
        if kind is WatchKind.DELETED and path not in self._data:
            for arming in tuple(self._armings):  # another thread appends
                if path in arming.paths:
                    arming.paths.discard(path)
                    return False
        if kind is not WatchKind.CHILDREN_CHANGED:
            self._data.discard(path)
            self._exist.discard(path)
        if kind in (WatchKind.CHILDREN_CHANGED, WatchKind.DELETED):
            self._child.discard(path)
        return True

    def requests(self, last_zxid: int) -> Iterator[jute.Request]:
        """What arms them on a new connection; the server fires those that missed a change since `last_zxid`."""
        kinds = (self._data, self._exist, self._child)
        batch: tuple[list[str], ...] = ([], [], [])
        size = 0
        for kind, paths in enumerate(kinds):
            for path in sorted(paths):
                batch[kind].append(path)
                size += len(path.encode())
                if size >= SET_WATCHES_BYTES:
                    yield jute.encode_set_watches(last_zxid, *batch)
                    batch, size = ([], [], []), 0
        if size:
            yield jute.encode_set_watches(last_zxid, *batch)

"""Watches that are armed, or about to be: what a new connection arms again, and which reports are withheld."""

from __future__ import annotations

from itertools import product
from typing import Any

from controller.wire.zk_operations import Exists, GetChildren, GetData, WatchKind
from controller.world.real import jute
from controller.world.real.armed_watches import ArmedWatches

C, D, X, LIST = WatchKind.CREATED, WatchKind.DATA_CHANGED, WatchKind.DELETED, WatchKind.CHILDREN_CHANGED
SERVER_MAX_BYTES = 1 << 20


def armed(watches: ArmedWatches) -> bytes:
    """What a new connection would be asked to arm."""
    return b"".join(request.body for request in watches.requests(7))


#: what was read, and whether it was found -> the kind of watch of a `setWatches` that stands then: of data, of
#: existence, of children
ARMS: dict[tuple[type[Any], bool], int] = {(GetData, True): 0, (Exists, True): 0, (Exists, False): 1,
                                           (GetChildren, True): 2}  # fmt: skip
#: what fired -> the kinds that do not stand any more
TAKES = {C: {0, 1}, D: {0, 1}, X: {0, 1, 2}, LIST: {2}}
STEPS: list[Any] = [*product((GetData, Exists, GetChildren), (True, False), (True, False)), *TAKES]


def test_what_a_new_connection_arms_is_what_stood_on_the_last_one() -> None:
    """However reads of a znode and reports about it follow each other; what stands on another znode stays."""
    for history in product(STEPS, repeat=3):
        watches, stand = ArmedWatches("/chroot"), set[int]()
        for read, found in ARMS:
            watches.arm(read("/b", True), found=found)
        for step in history:
            if isinstance(step, WatchKind):
                assert watches.disarm(step, "/chroot/a")
                stand -= TAKES[step]
                continue
            read, is_watched, found = step
            watches.arm(read("/a", is_watched), found=found)
            stand |= {ARMS[read, found]} if is_watched and (read, found) in ARMS else set()
        paths = [[*(["/chroot/a"] if kind in stand else []), "/chroot/b"] for kind in range(3)]
        assert armed(watches) == jute.encode_set_watches(7, *paths).body, history


def test_a_missing_znode_is_reported_to_nobody_and_not_armed() -> None:
    watches = ArmedWatches("")
    arming = watches.expect([GetData("/here", True), GetData("/missing", True)])
    assert not watches.disarm(X, "/missing")
    watches.confirm(arming)
    assert b"/here" in armed(watches) and b"/missing" not in armed(watches)
    assert watches.disarm(X, "/missing"), "from now on it is news"


def test_a_deletion_of_what_was_watched_before_is_news() -> None:
    watches = ArmedWatches("")
    watches.arm(GetData("/a", True), found=True)
    arming = watches.expect([GetData("/a", True)])
    assert watches.disarm(X, "/a"), "the watch of before"
    assert not watches.disarm(X, "/a"), "the answer to the arming"
    watches.confirm(arming)
    assert not armed(watches)


def test_a_lost_arming_arms_nothing() -> None:
    watches = ArmedWatches("")
    lost, kept = watches.expect([GetData("/a", True)]), watches.expect([GetData("/b", True)])
    watches.withdraw(lost)
    watches.confirm(kept)
    assert b"/b" in armed(watches) and b"/a" not in armed(watches)


def test_no_request_is_larger_than_a_server_takes() -> None:
    watches = ArmedWatches("")
    paths = [f"/brokers/topics/{'t' * 240}{n}" for n in range(20_000)]
    for path in paths:
        watches.arm(GetData(path, True), found=True)
    requests = list(watches.requests(7))
    assert max(len(request.body) for request in requests) < SERVER_MAX_BYTES
    assert sum(request.body.count(b"/brokers") for request in requests) == len(paths)

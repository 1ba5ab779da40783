"""Watches that are armed, or about to be: what a new connection arms again, and which reports are withheld."""

from __future__ import annotations

import pytest

from controller.wire.zk_operations import Exists, GetChildren, GetData, WatchKind, ZkOp
from controller.world.real.armed_watches import ArmedWatches

C, D, X, LIST = WatchKind.CREATED, WatchKind.DATA_CHANGED, WatchKind.DELETED, WatchKind.CHILDREN_CHANGED
SERVER_MAX_BYTES = 1 << 20


def armed(watches: ArmedWatches) -> bytes:
    """What a new connection would be asked to arm."""
    return b"".join(request.body for request in watches.requests(7))


ARMED = [  # reads that were answered (found or not), watches that fired -> paths still armed
    ("data", [(GetData("/a", True), True)], [], {"/a"}),
    ("no watch was asked for", [(GetData("/a"), True)], [], set()),
    ("a missing znode leaves no data watch", [(GetData("/a", True), False)], [], set()),
    ("but an existence watch", [(Exists("/a", True), False)], [], {"/a"}),
    ("a change of data takes it", [(GetData("/a", True), True)], [(D, "/a")], set()),
    ("a change of children leaves it", [(GetData("/a", True), True)], [(LIST, "/a")], {"/a"}),
    ("a creation takes the existence watch", [(Exists("/a", True), False)], [(C, "/a")], set()),
    ("a deletion takes all", [(GetData("/a", True), True), (GetChildren("/a", True), True)], [(X, "/a")], set()),
]


@pytest.mark.parametrize(("reads", "fired", "left"), [row[1:] for row in ARMED], ids=[row[0] for row in ARMED])
def test_what_is_armed(reads: list[tuple[ZkOp, bool]], fired: list[tuple[WatchKind, str]], left: set[str]) -> None:
    watches = ArmedWatches("/chroot")
    for op, found in reads:
        watches.arm(op, found=found)
    for kind, path in fired:
        assert watches.disarm(kind, "/chroot" + path)
    assert all(f"/chroot{path}".encode() in armed(watches) for path in left)
    assert bool(armed(watches)) == bool(left)


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

"""The znodes of the ZooKeeper in memory: a multi that fails has changed nothing."""

from __future__ import annotations

import pytest

from controller.wire.zk_operations import Check, Create, Delete, Multi, SetData, Stat, ZkCode, ZkWriteOp
from controller.world.simulated.znode_tree import ZnodeTree

MINE, OTHERS = 7, 8
#: what a multi does before it fails
DONE: list[tuple[str, list[ZkWriteOp]]] = [
    ("a creation", [Create("/a/new", b"x")]),
    ("an ephemeral creation", [Create("/a/new", b"x", ephemeral=True)]),
    ("numbered creations", [Create("/a/n", b"x", sequence=True), Create("/a/n", b"x", sequence=True)]),
    ("a write", [SetData("/a", b"x"), SetData("/a", b"y")]),
    ("a deletion", [Delete("/a/b")]),
    ("a deletion of an ephemeral znode", [Delete("/a/mine")]),
    ("all of it on one znode", [SetData("/a/mine", b"x"), Delete("/a/mine"), Create("/a/mine", b"z")]),
]


def seen(tree: ZnodeTree) -> dict[str, tuple[bytes | None, Stat]]:
    found = {path: tree.get(path) for path in tree.paths()}
    return {path: (znode.payload, znode.stat()) for path, znode in found.items() if znode is not None}


@pytest.mark.parametrize("ops", [row[1] for row in DONE], ids=[row[0] for row in DONE])
def test_a_multi_that_fails_has_changed_nothing(ops: list[ZkWriteOp]) -> None:
    tree = ZnodeTree()
    for op in (Create("/a", b"1"), Create("/a/b", b"2"), Create("/a/mine", b"3", ephemeral=True)):
        assert tree.write(op, session=MINE, now_ms=1).result.ok
    before, copied = seen(tree), tree.copy()
    written = tree.write(Multi((*ops, Check("/a", 9))), session=OTHERS, now_ms=2)
    assert (written.result.code, written.fires) == (ZkCode.BAD_VERSION, ())
    assert seen(tree) == before
    assert tree.write(Multi(tuple(ops)), session=OTHERS, now_ms=3).result.ok and seen(tree) != before
    assert seen(copied) == before, "a copy stays as it was"
    ends = {session: [event.path for event in copied.end_session(session, now_ms=4)] for session in (OTHERS, MINE)}
    assert ends == {OTHERS: [], MINE: ["/a/mine", "/a"]}
    assert tree.write(Delete("/a/none", 5), session=MINE, now_ms=5).result.code is ZkCode.NO_NODE


@pytest.mark.parametrize("ops", [row[1] for row in DONE], ids=[row[0] for row in DONE])
def test_the_end_of_a_session_takes_what_is_its_own_after_a_multi_that_failed(ops: list[ZkWriteOp]) -> None:
    tree = ZnodeTree()
    for op in (Create("/a", b"1"), Create("/a/b", b"2"), Create("/a/mine", b"3", ephemeral=True)):
        tree.write(op, session=MINE, now_ms=1)
    tree.write(Multi((*ops, Check("/a", 9))), session=OTHERS, now_ms=2)
    ends = {session: [event.path for event in tree.end_session(session, now_ms=4)] for session in (OTHERS, MINE)}
    assert ends == {OTHERS: [], MINE: ["/a/mine", "/a"]} and tree.paths() == ["/", "/a", "/a/b"]

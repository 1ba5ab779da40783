"""The checker itself: it must see each kind of broken state, and none in a sound history."""

from __future__ import annotations

import json

import pytest

from controller.sim.invariants import Invariants
from controller.wire.zk_operations import Create, SetData
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim

PATH = "/brokers/topics/t/partitions/0/state"
START = (1, 5, (1, 2))  # leader, leader epoch, ISR
HISTORIES: list[tuple[str, list[tuple[int, int, tuple[int, ...]]], str]] = [
    ("a sound history", [(1, 5, (1,)), (-1, 6, (1,)), (2, 7, (2, 1))], ""),
    ("a leader outside the ISR", [(3, 6, (1, 2))], "leader outside the ISR"),
    ("an ISR beyond the replicas", [(1, 5, (1, 9))], "ISR beyond the replicas"),
    ("an empty ISR", [(-1, 6, ())], "empty ISR"),
    ("an ISR with doubles", [(1, 5, (1, 1))], "ISR with doubles"),
    ("a leader epoch that falls", [(1, 4, (1, 2))], "leader epoch falls"),
    ("two leaders of one epoch", [(2, 5, (1, 2))], "second leader of an epoch"),
]


@pytest.mark.parametrize(("states", "complaint"), [row[1:] for row in HISTORIES], ids=[row[0] for row in HISTORIES])
def test_of(states: list[tuple[int, int, tuple[int, ...]]], complaint: str) -> None:
    tree = ZnodeTree()
    invariants = Invariants(tree)

    def write(op: Create | SetData) -> None:
        written = tree.write(op, session=1, now_ms=0)
        assert written.result.ok
        invariants.check(written.fires)

    write(Create("/controller_epoch", b"1"))
    for path in ("/brokers", "/brokers/topics"):
        write(Create(path))
    write(Create("/brokers/topics/t", json.dumps({"partitions": {"0": [1, 2, 3]}}).encode()))
    for path in ("/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
        write(Create(path))
    write(Create(PATH, state(*START)))
    assert not invariants.broken and invariants.checked == 1
    for changed in states:
        write(SetData(PATH, state(*changed)))
    assert [complaint in line for line in invariants.broken] == ([True] if complaint else [])


def state(leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bytes:
    return json.dumps({"leader": leader, "leader_epoch": leader_epoch, "isr": isr, "controller_epoch": 1}).encode()


def test_a_controller_epoch_never_falls() -> None:
    tree = ZnodeTree()
    invariants = Invariants(tree)
    for op in (Create("/controller_epoch", b"2"), SetData("/controller_epoch", b"2")):
        invariants.check(tree.write(op, session=1, now_ms=0).fires)
    assert invariants.broken == ["controller epoch 2 after 2"]

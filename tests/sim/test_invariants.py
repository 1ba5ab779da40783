"""The checker itself: it must see each kind of broken state, and none in a sound history."""

from __future__ import annotations

import json

import pytest

from controller.sim.invariants import Invariants
from controller.wire.zk_operations import Create, Delete, SetData
from controller.world.simulated.znode_tree import ZnodeTree

pytestmark = pytest.mark.sim

PATH = "/brokers/topics/t/partitions/0/state"
PATHS = ("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0", PATH)
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


class Looked:
    """A tree that the invariants look at."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.invariants = Invariants(self.tree)
        self.write(Create("/controller_epoch", b"1"), Create("/brokers"), Create("/brokers/topics"))

    def write(self, *ops: Create | SetData | Delete) -> None:
        for op in ops:
            written = self.tree.write(op, session=1, now_ms=0)
            assert written.result.ok
            self.invariants.check(written.fires)

    def make_topic(self, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> None:
        topic = json.dumps({"partitions": {"0": [1, 2, 3]}}).encode()
        self.write(*map(Create, PATHS, (topic, b"", b"", state(leader, leader_epoch, isr))))

    def delete_topic(self) -> None:
        self.write(*map(Delete, reversed(PATHS)))


@pytest.mark.parametrize(("states", "complaint"), [row[1:] for row in HISTORIES], ids=[row[0] for row in HISTORIES])
def test_of(states: list[tuple[int, int, tuple[int, ...]]], complaint: str) -> None:
    looked = Looked()
    looked.make_topic(*START)
    assert not looked.invariants.broken and looked.invariants.checked == 1
    for changed in states:
        looked.write(SetData(PATH, state(*changed)))
    assert [complaint in line for line in looked.invariants.broken] == ([True] if complaint else [])


@pytest.mark.parametrize(("leader", "told"), [(1, [("t", 0)]), (3, [])], ids=["who led before", "who never led"])
def test_a_second_leader_is_one_of_the_topic_before_or_a_fault(leader: int, told: list[tuple[str, int]]) -> None:
    looked, found = Looked(), list[tuple[str, int]]()
    looked.invariants.on_former_leader = found.append
    looked.make_topic(1, 0, (1, 2, 3))
    looked.delete_topic()
    looked.make_topic(2, 0, (1, 2, 3))
    assert not looked.invariants.broken
    looked.write(SetData(PATH, state(leader, 0, (leader,))))
    assert (found, bool(looked.invariants.broken)) == (told, not told)


def state(leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bytes:
    return json.dumps({"leader": leader, "leader_epoch": leader_epoch, "isr": isr, "controller_epoch": 1}).encode()


def test_a_controller_epoch_never_falls() -> None:
    tree = ZnodeTree()
    invariants = Invariants(tree)
    for op in (Create("/controller_epoch", b"2"), SetData("/controller_epoch", b"2")):
        invariants.check(tree.write(op, session=1, now_ms=0).fires)
    assert invariants.broken == ["controller epoch 2 after 2"]

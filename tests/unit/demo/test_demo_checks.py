"""What the demo claims: each check must hold for a right world and break for each way of being wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.admin.checks.statements import (
    check_admin,
    check_epochs,
    check_moves,
    check_partitions,
    check_records,
    check_views,
    metadata_differences,
)
from controller.admin.checks.truth import EpochHistory, PartitionTruth, Truth
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
B1, B2 = BrokerId(1), BrokerId(2)

RECORDS = [
    ("all there, in order", {0: 0, 1: 1}, [(0, 0), (1, 1)], (True, True)),
    ("a duplicate is no fault", {0: 0, 1: 2}, [(0, 0), (1, 1), (2, 1)], (True, True)),
    ("a whole batch twice is no fault", {0: 2, 1: 3}, [(0, 0), (1, 1), (2, 0), (3, 1)], (True, True)),
    ("more than was acknowledged is no fault", {0: 0}, [(0, 0), (1, 1)], (True, True)),
    ("a gap in the numbers is no fault if none was promised", {0: 0, 5: 1}, [(0, 0), (1, 5)], (True, True)),
    ("one is missing", {0: 0, 1: 1}, [(0, 0)], (False, True)),
    ("another record stands at the acknowledged offset", {0: 0, 1: 1}, [(0, 0), (1, 2), (2, 1)], (False, False)),
    ("out of order", {0: 1, 1: 0}, [(0, 1), (1, 0)], (True, False)),
    ("nothing was acknowledged at all", {}, [], (False, False)),
]


@pytest.mark.parametrize(("acked", "found", "holds"), [row[1:] for row in RECORDS], ids=[row[0] for row in RECORDS])
def test_records(acked: dict[int, int], found: list[tuple[int, int]], holds: tuple[bool, bool]) -> None:
    checks = check_records({T0: acked} if acked else {}, {T0: found})
    assert tuple(check.holds for check in checks) == holds


def test_duplicates_are_counted_and_offenders_named() -> None:
    kept, order = check_records({T0: {0: 0, 1: 1, 2: 3}}, {T0: [(0, 0), (1, 1), (2, 1)]})
    assert kept.detail == "t-0 record 2"
    assert "1 duplicates" in order.detail


def state(leader: int | None = 1, isr: tuple[int, ...] = (1, 2), epoch: int = 0) -> LeaderAndIsr:
    leader_id = None if leader is None else BrokerId(leader)
    return LeaderAndIsr(leader=leader_id, isr=tuple(map(BrokerId, isr)), leader_epoch=epoch)


def truth(*states: LeaderAndIsr | None, controller: int | None = 901, controller_epoch: int = 1) -> Truth:
    assignment = ReplicaAssignment(replicas=(B1, B2))
    endpoint = Endpoint(host="h", port=1)
    return Truth(
        controller=None if controller is None else BrokerId(controller),
        controller_epoch=controller_epoch,
        brokers={b: Broker(broker_id=b, endpoints=(endpoint,)) for b in (B1, B2)},
        partitions={
            TopicPartition("t", n): PartitionTruth(assignment=assignment, state=s) for n, s in enumerate(states)
        },
    )


PARTITIONS = [
    ("whole", state(), True),
    ("no leader", state(leader=None), False),
    ("leader outside the ISR", state(leader=1, isr=(2,)), False),
    ("ISR not full", state(isr=(1,)), False),
    ("never elected", None, False),
]


@pytest.mark.parametrize(("second", "holds"), [row[1:] for row in PARTITIONS], ids=[row[0] for row in PARTITIONS])
def test_partitions(second: LeaderAndIsr | None, holds: bool) -> None:
    check = check_partitions(truth(state(), second))
    assert check.holds is holds
    assert holds or "t-1" in check.detail


def test_a_cluster_without_partitions_proves_nothing() -> None:
    assert not check_partitions(truth()).holds


def test_epochs_may_rise_and_stand_still() -> None:
    history = EpochHistory()
    for epoch, controller_epoch in ((0, 1), (0, 1), (3, 2)):
        history.note(truth(state(epoch=epoch), controller_epoch=controller_epoch))
    last = truth(state(epoch=3), controller_epoch=2)
    assert check_epochs(history, last, controller_epoch_at_start=1).holds
    assert not check_epochs(history, last, controller_epoch_at_start=2).holds, "nobody took over"


def test_a_fall_of_an_epoch_is_seen_once_it_was_seen_high() -> None:
    history = EpochHistory()
    history.note(truth(state(epoch=4), controller_epoch=3))
    history.note(truth(state(epoch=2), controller_epoch=2))
    assert history.falls == ["controller epoch 3 -> 2", "leader epoch of t-0 4 -> 2"]
    assert not check_epochs(history, truth(state(), controller_epoch=9), controller_epoch_at_start=1).holds


def test_a_topic_made_anew_may_begin_again() -> None:
    history = EpochHistory()
    for look in (truth(state(epoch=4)), truth(), truth(state(epoch=0))):
        history.note(look)
    assert not history.falls


def test_nothing_may_be_left_in_admin() -> None:
    assert check_admin([]).holds
    assert check_admin(["/admin/delete_topics/t"]).detail == "/admin/delete_topics/t"


@pytest.mark.parametrize(
    ("moving", "holds", "detail"),
    [((), True, "no reassignment is under way"), ((T0, T1), False, "t-0; t-1"), (None, False, "no controller tells")],
)
def test_what_nobody_tells_is_not_well(moving: Any, holds: bool, detail: str) -> None:
    check = check_moves(moving)
    assert (check.holds, check.detail) == (holds, detail)


def answer(**changes: Any) -> Any:
    partition = {"partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1, 2], "isr_nodes": [2, 1]}
    partition.update({key: value for key, value in changes.items() if key in partition})
    return SimpleNamespace(
        controller_id=changes.get("controller_id", 1),
        brokers=[SimpleNamespace(node_id=n) for n in changes.get("nodes", (1, 2))],
        topics=[SimpleNamespace(name=changes.get("topic", "t"), partitions=[SimpleNamespace(**partition)])],
    )


VIEWS = [
    ("the same", {}, 0),
    ("the controller among the brokers", {"nodes": (1, 2, 901)}, 1),
    ("another broker takes what is for the controller", {"controller_id": 2}, 0),
    ("clients are sent to the controller", {"controller_id": 901}, 1),
    ("a broker that is gone", {"nodes": (1, 2, 3)}, 1),
    ("a broker that is missing", {"nodes": (1,)}, 1),
    ("another leader", {"leader_id": 2}, 1),
    ("an older leader epoch", {"leader_epoch": -1}, 1),
    ("replicas in another order", {"replica_nodes": [2, 1]}, 1),
    ("another ISR", {"isr_nodes": [1]}, 1),
    ("a topic too many and one missing", {"topic": "u"}, 2),
]


@pytest.mark.parametrize(("changes", "count"), [row[1:] for row in VIEWS], ids=[row[0] for row in VIEWS])
def test_views(changes: dict[str, Any], count: int) -> None:
    assert len(metadata_differences(truth(state()), answer(**changes))) == count


def test_every_registered_broker_must_answer() -> None:
    assert check_views(truth(state()), {B1: answer(), B2: answer()}).holds
    assert check_views(truth(state()), {B1: answer()}).detail == "broker 2 gave no answer"


def test_a_cluster_without_brokers_agrees_with_nothing() -> None:
    nobody = replace(truth(state()), brokers={})
    assert not check_views(nobody, {}).holds


ANSWERS = [
    ("led", state(), {}),
    ("led by broker 0", state(leader=0), {"leader_id": 0}),
    ("nobody leads", state(leader=None), {"leader_id": -1}),
    ("nobody leads any more", state(leader=None, isr=(2,), epoch=3),
     {"leader_id": -1, "isr_nodes": [2], "leader_epoch": 3}),
]  # fmt: skip


@pytest.mark.parametrize("seen", ANSWERS, ids=[row[0] for row in ANSWERS])
@pytest.mark.parametrize("true", ANSWERS, ids=[row[0] for row in ANSWERS])
def test_a_leader_and_none_are_told_apart(true: Any, seen: Any) -> None:
    """A partition without a leader is -1 in Metadata; that of which nothing is written is not in it at all."""
    agrees = not metadata_differences(truth(true[1]), answer(**seen[2]))
    assert agrees is (true is seen)
    assert metadata_differences(truth(None), answer(**seen[2]))
    empty = answer()
    empty.topics = []
    assert metadata_differences(truth(None), empty) == []
    assert len(metadata_differences(truth(true[1]), empty)) == 1


@pytest.mark.parametrize("wrong", [{}, {B1: 1}, {B2: 1}, {B1: 0, B2: 0}, {B1: 1, B2: 0}], ids=str)
def test_all_brokers_that_differ_or_are_silent_are_named(wrong: dict[BrokerId, int]) -> None:
    """Per broker: it answers otherwise (1), or not at all (0)."""
    answers = {b: answer(leader_id=2) if wrong.get(b) else answer() for b in (B1, B2) if wrong.get(b) != 0}
    check = check_views(truth(state()), answers)
    assert check.holds is not bool(wrong)
    assert [line[:8] for line in check.detail.split("; ") if wrong] == [f"broker {b}" for b in wrong]
    assert ("gave no answer" in check.detail) is (0 in wrong.values())


@pytest.mark.parametrize(("left", "named", "end"), [(0, 0, ""), (5, 5, "5"), (6, 5, "5 and 1 more")])
def test_of_many_offenders_five_are_named_and_the_others_counted(left: int, named: int, end: str) -> None:
    check = check_admin(f"/admin/{n}" for n in range(1, left + 1))
    assert check.detail.count("/admin/") == named and check.detail and check.detail.endswith(end)
    assert check.holds is not bool(left)

"""`/admin/reassign_partitions`, the API, and whoever is in office: what was asked for last is what comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import events
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import GetData
from controller.wire.znodes import ReassignPartitionsZNode
from tests.worlds.stage import TP, Stage

PATH = ReassignPartitionsZNode.path
OTHER = TopicPartition("t", 1)
Replicas = tuple[int, ...]
TARGETS = st.permutations((1, 2, 3, 4)).flatmap(lambda order: st.integers(1, 3).map(lambda size: tuple(order[:size])))
#: Who asks, by what, and for which replicas; the leader has taken all in; another controller is in office.
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(("api", "znode")), TARGETS),
    st.tuples(st.sampled_from(("cancel", "all in sync", "failover")), st.just(())),
)


def moving() -> Stage:
    stage = Stage()
    stage.broker_starts(1, 2, 3, 4)
    stage.topic("t", p0=(1, 2), p1=(1, 2))
    stage.start()
    return stage


def entries(stage: Stage) -> dict[TopicPartition, Replicas]:
    return dict(ReassignPartitionsZNode.decode(stage.tree.read(GetData(PATH)).data)) if stage.exists(PATH) else {}


def asks(stage: Stage, target: Replicas | None) -> ErrorCode:
    stage.replies.clear()
    stage.run(events.ApiPartitionReassignment({TP: None if target is None else tuple(map(BrokerId, target))}, 1))
    return stage.replies[1].partitions[TP].error


def writes(stage: Stage, **asked: tuple[int, ...]) -> None:
    """An operator writes the znode, or what is in it anew."""
    targets = {TopicPartition("t", int(p[1:])): tuple(map(BrokerId, replicas)) for p, replicas in asked.items()}
    stage.make(PATH, ReassignPartitionsZNode.encode(targets))
    stage.run()


def all_in_sync(stage: Stage) -> None:
    for _ in range(3):
        for tp in (TP, OTHER):
            stage.leader_writes(tp, stage.assigned(tp).replicas)
        stage.run()


def failover(stage: Stage) -> None:
    stage.new_controller()
    stage.start()


@settings(deadline=None)
@given(st.lists(HAPPENINGS, max_size=7))
def test_the_last_wish_is_granted_and_no_entry_outlives_it(happenings: list[tuple[str, Replicas]]) -> None:
    stage = moving()
    wish: Replicas = (1, 2)
    before: Replicas = (1, 2)
    for what, target in happenings:
        match what:
            case "api":
                assert asks(stage, target) is ErrorCode.NONE
                wish = target
            case "znode":
                writes(stage, p0=target)
                wish = target
            case "cancel":
                origin = stage.assigned().origin_replicas  # a move leaves them in the order of its target
                assert set(origin) == set(before)
                wish = origin if asks(stage, None) is ErrorCode.NONE else wish
            case "all in sync":
                all_in_sync(stage)
            case "failover":
                failover(stage)
        if not stage.assigned().is_being_reassigned:
            before = stage.assigned().replicas
    for _ in range(2):  # an entry that was written over another is looked at by whoever takes office next
        all_in_sync(stage)
        failover(stage)
    all_in_sync(stage)
    assert (stage.assigned().replicas, stage.assigned().is_being_reassigned) == (wish, False)
    assert not entries(stage) and stage.assigned(OTHER).replicas == (1, 2)


#: what is asked by znode of t-0 and t-1, then by API of t-0 -> the entries that stay
STAYING: list[tuple[str, Replicas | None, dict[int, Replicas]]] = [
    ("another move", (1, 4), {1: (3, 1)}),
    ("a cancellation", None, {1: (3, 1)}),
    ("the same move", (3, 2), {1: (3, 1)}),
    ("what is refused", (9,), {0: (3, 2), 1: (3, 1)}),
]


@pytest.mark.parametrize(("_", "target", "stay"), STAYING, ids=[row[0] for row in STAYING])
def test_what_is_accepted_by_api_takes_the_place_of_its_own_entry(
    _: str, target: Replicas | None, stay: dict[int, Replicas]
) -> None:
    stage = moving()
    writes(stage, p0=(3, 2), p1=(3, 1))
    asks(stage, target)
    assert entries(stage) == {TopicPartition("t", p): replicas for p, replicas in stay.items()}


@pytest.mark.parametrize("entry", [(3, 2), (2, 3), (3,), (2, 3, 4)])
def test_a_move_that_ends_takes_the_entry_that_asked_for_it_and_no_other(entry: tuple[int, ...]) -> None:
    """By then another may be in its place: it is granted by whoever takes office next."""
    stage = moving()
    writes(stage, p0=(3, 2))
    stage.make(PATH, ReassignPartitionsZNode.encode({TP: tuple(map(BrokerId, entry))}))
    stage.events.clear()  # only the creation of the znode is looked at
    all_in_sync(stage)
    assert stage.assigned().replicas == (3, 2)
    assert entries(stage) == ({} if entry == (3, 2) else {TP: entry})

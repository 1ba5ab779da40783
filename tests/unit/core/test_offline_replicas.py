"""A replica goes offline: whatever was believed of its partition, what ZooKeeper says counts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from controller.core.effects import drive_now
from controller.core.replicas import change_replicas, without
from controller.core.transitions import ReplicaState
from controller.wire.types import BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment
from controller.wire.zk_operations import SetData
from controller.wire.znodes import TopicPartitionStateZNode
from tests.worlds.stage import TP, Stage, leaders_in, stops_in

BROKERS = (1, 2, 3)
#: 1 leads.
ISRS = [(1,), (1, 2), (1, 3), (1, 2, 3)]


def in_a_second_term(isr: tuple[int, ...]) -> Stage:
    """The controller before this one, and a leader, wrote the state of the partition."""
    stage = Stage()
    stage.broker_starts(*BROKERS)
    stage.topic("t", p0=BROKERS)
    stage.start()
    written = replace(stage.leadership(TP), isr=tuple(map(BrokerId, isr)))
    stage.others_write(SetData(TopicPartitionStateZNode.path(TP), TopicPartitionStateZNode.encode(written)))
    stage.new_controller()
    stage.start()
    stage.take_sent()
    return stage


@cache
def gone_offline(
    broker: int, believed: tuple[int, ...], isr: tuple[int, ...], is_replica: bool
) -> tuple[Stage, ReplicaState, LeaderAndIsr]:
    stage = in_a_second_term(believed)
    if isr != believed:
        stage.leader_writes(TP, isr)
    replicas = BROKERS if is_replica else tuple(b for b in BROKERS if b != broker)
    stage.state.assign(TP, ReplicaAssignment(replicas=tuple(map(BrokerId, replicas))))
    replica = PartitionReplica(TP, BrokerId(broker))
    drive_now(change_replicas(stage.state, [replica], ReplicaState.OFFLINE), stage.perform)
    return stage, stage.state.replica_state(replica), stage.leadership(TP)


CASES = [case for case in product(BROKERS, ISRS, ISRS, (True, False)) if case[1] != case[2]]


def heard_from(stage: Stage) -> list[tuple[Any, ...]]:
    """All but the partition epoch, which counts writes."""
    leaders = [(to, replace(state, partition_epoch=0), is_new) for to, state, is_new in leaders_in(stage.sent)]
    return [*leaders, *stops_in(stage.sent)]


@pytest.mark.parametrize("broker", BROKERS)
def test_what_was_believed_makes_no_difference(broker: int) -> None:
    for case in CASES:
        if case[0] == broker:
            _, _, isr, is_replica = case
            stage, now, after = gone_offline(*case)
            other, expected, as_read = gone_offline(broker, isr, isr, is_replica)
            assert (now, heard_from(stage)) == (expected, heard_from(other)), case
            assert replace(after, partition_epoch=0) == replace(as_read, partition_epoch=0), case


@pytest.mark.parametrize("broker", BROKERS)
def test_who_is_in_the_isr_leaves_it_but_for_the_last_one(broker: int) -> None:
    """Who is told hears of this controller's epoch, also where nothing had to be written."""
    for case in CASES:
        if case[0] != broker:
            continue
        _, _, isr, is_replica = case
        stage, now, after = gone_offline(*case)
        left = tuple(b for b in isr if b != broker)
        is_refused = not left and not is_replica  # nobody may stop the only one with the records
        is_written = broker in isr and not is_refused
        assert now is (ReplicaState.ONLINE if is_refused else ReplicaState.OFFLINE), case
        assert (after.leader, after.isr) == (None if broker == 1 and is_written else 1, left or isr), case
        assert (after.leader_epoch, after.controller_epoch) == ((1, 2) if is_written else (0, 1)), case
        assert stops_in(stage.sent) == [(broker, 0, False)], "with the leader epoch of before"
        heard = leaders_in(stage.sent)
        assert [to for to, _, _ in heard] == ([] if is_refused else [b for b in BROKERS if b != broker]), case
        assert {state for _, state, _ in heard} <= {replace(after, controller_epoch=2)}, case
        assert is_refused or stage.state.leadership(TP) == replace(after, controller_epoch=2), case


@pytest.mark.parametrize(
    ("is_begun", "goes", "left"),
    [(False, 1, (None, (1,))), (True, 1, (None, (4,))), (False, 4, (1, (1,))), (True, 4, (1, (1,)))],
)
def test_who_is_in_sync_and_not_begun_is_not_left_alone(
    is_begun: bool, goes: int, left: tuple[int | None, tuple[int, ...]]
) -> None:
    """A move has dropped 4 before, which is still in the ISR, and another adds it again: its log may be gone."""
    stage = in_a_second_term((1,))
    added = ReplicaAssignment(replicas=(BrokerId(4), *map(BrokerId, BROKERS)), adding_replicas=(BrokerId(4),))
    stage.state.assign(TP, added)
    if is_begun:
        stage.state.put_replica_states(BrokerId(4), (TP,), ReplicaState.NEW)
    found = replace(stage.leadership(TP), isr=(BrokerId(1), BrokerId(4)))
    after = without(stage.state, TP, found, BrokerId(goes))
    assert (after.leader, after.isr) == left

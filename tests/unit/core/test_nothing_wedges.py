"""What somebody writes, refuses or cuts off neither loses records nor keeps the controller from its work."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Effect, RemoveBrokers, Write
from controller.core.transitions import ReplicaState
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkCode
from controller.wire.znodes import IsrChangeNotificationZNode, TopicPartitionStateZNode, encode_partitions
from tests.worlds.stage import TP, Cut, Fault, Stage, faults_everywhere, leaders_in, metadata_in, move_to, stops_in

STATE = "/brokers/topics/t/partitions/0/state"


def stage_with(*brokers: int, **partitions: tuple[int, ...]) -> Stage:
    stage = Stage()
    stage.broker_starts(*brokers)
    if partitions:
        stage.topic("t", **partitions)
    stage.start()
    stage.take_sent()
    return stage


# --- moves


def test_a_move_that_replaces_another_leaves_a_leader() -> None:
    """3, which the first move adds, leads when the second drops it."""
    stage = stage_with(1, 2, 3, 4, 5, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.broker_dies(1)
    stage.run()
    stage.leader_writes(TP, (3, 2))
    stage.broker_dies(2)
    stage.run()
    stage.broker_starts(1, 2)
    stage.run()
    assert stage.leader()[0] == 3
    stage.leader_writes(TP, (3, 1))
    move_to(stage, 1, 5, reply_to=2)
    assert stage.replies[2].partitions[TP].error is ErrorCode.NONE
    leader, _, isr = stage.leader()
    assert leader == 1 and set(isr) <= {1, 2, 5}
    assert (3, True) in {(to, delete) for to, _, delete in stops_in(stage.take_sent())}


def led_by_who_was_added() -> Stage:
    """3, which a move from 1 and 2 adds, leads; 1 is in sync."""
    stage = stage_with(1, 2, 3, 4, 5, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.broker_dies(1, 2)
    stage.run()
    stage.broker_starts(1, 2)
    stage.run()
    stage.leader_writes(TP, (3, 1))
    assert stage.leader()[0] == 3
    return stage


@pytest.mark.parametrize("refused", [1, 2, 3, 4])
def test_a_leader_that_a_move_drops_is_in_its_isr_whichever_writes_are_refused(refused: int) -> None:
    stage, refusals = led_by_who_was_added(), iter(range(refused))

    def refusal(op: Any) -> ZkCode | None:
        is_state = isinstance(op, SetData) and op.path == STATE
        return ZkCode.NO_AUTH if is_state and next(refusals, None) is not None else None

    stage.tree.refusal = refusal
    move_to(stage, 1, 5, reply_to=2)
    leader, _, isr = stage.leader()
    assert leader is None or leader in isr
    waiting_ends(stage)
    assert stage.leader()[0] == 1 and stage.leader()[2] == (1,)


def test_a_move_that_drops_the_leader_lets_nobody_lead_who_lacks_records() -> None:
    """3, which leads, has taken 1 back, which is dead; 2 is alive and not in sync. Such elections are allowed."""
    stage = led_by_who_was_added()
    stage.make("/config/topics/t", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
    stage.broker_dies(1)
    stage.run()
    stage.leader_writes(TP, (3, 1))
    stage.run()
    move_to(stage, 1, 5, reply_to=2)
    assert stage.leader()[::2] == (None, (1,)) and stage.state.unclean_elections == 0
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[::2] == (1, (1,))


def test_a_move_that_waits_and_is_replaced_in_vain_goes_on_waiting() -> None:
    """Neither the state nor then the topic can be written: what was refused a moment ago is not asked for at once."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    stage.tree.refusal = no_state_is_written
    move_to(stage, 3, 2)
    asked: list[str] = []

    def refusal(op: Any) -> ZkCode | None:
        asked.extend([op.path] if isinstance(op, SetData) else [])
        return ZkCode.NO_AUTH if isinstance(op, SetData) else None

    stage.tree.refusal = refusal
    move_to(stage, 4, 2, reply_to=2)
    assert set(asked) == {"/brokers/topics/t"} and stage.assigned().adding_replicas == (3,)
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    assert stage.assigned().adding_replicas == (3,) and stage.leader()[1] > 0


@pytest.mark.parametrize("next_move", [None, (1, 4), (1, 2)], ids=["waited for", "replaced", "cancelled"])
def test_a_leader_that_a_move_dropped_while_its_state_was_refused_is_replaced_later(
    next_move: tuple[int, ...] | None,
) -> None:
    """3, which the first move adds, leads when the second drops it; no state can be written then."""
    stage = led_by_who_was_added()
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None
    move_to(stage, 1, 5, reply_to=2)
    assert stage.leader()[0] == 3 and 3 not in stage.assigned().replicas
    stage.tree.refusal = lambda _: None
    if next_move:
        move_to(stage, *next_move, reply_to=3)
    else:
        waiting_ends(stage)
    leader, _, isr = stage.leader()
    assert (leader, isr) == (1, (1,))


def test_who_a_move_adds_to_a_partition_that_never_had_a_leader_may_be_its_first() -> None:
    """None of its replicas is alive when the move to 3 is asked for; then 1 starts, and 3 leads."""
    stage = stage_with(3, 4, p0=(1, 2))
    move_to(stage, 3, 1)
    stage.broker_starts(1)
    stage.run()
    waiting_ends(stage)
    assert stage.leader()[0] == 3 and not stage.logged(ev.TRANSITION_REFUSED)
    assert stage.state.replica_state(PartitionReplica(TP, BrokerId(3))) is ReplicaState.ONLINE
    assert stage.assigned().replicas == (3, 1) and not stage.assigned().is_being_reassigned
    stage.broker_dies(3)
    stage.run()
    assert stage.leader()[0] == 1 and stage.logged(ev.TRANSITION_REFUSED) == []


@pytest.mark.parametrize("target", [(1, 2), (3, 2), (2,)], ids=["cancelled", "replaced", "its leader goes, too"])
def test_a_leader_that_has_not_heard_takes_nobody_back_for_good(target: tuple[int, ...]) -> None:
    """4, which a move adds, is dropped by the next; the leader, which does not know yet, takes it into the ISR again.
    It has no records any more, and who is in sync may be elected."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 4, 2)
    perform, raced = stage.perform, False

    def racing(effect: Any) -> Any:
        nonlocal raced
        if any(isinstance(r, StopReplicaRequest) and r.to == 4 for r in getattr(effect, "requests", ())) and not raced:
            raced = True
            stage.leader_writes(TP, (*stage.leader()[2], 4))
        return perform(effect)

    stage.perform = racing
    move_to(stage, *target, reply_to=2)
    assert raced
    assert set(stage.leader()[2]) == {1, 2} & (set(target) | {1} if 3 in target else set(target))
    assert all(4 not in state.isr for _, state, _ in leaders_in(stage.sent)[-1:]), "who leads has heard so"


def cancelled_without_a_word(cancelled: tuple[int, ...], leading: int) -> Stage:
    """A move that adds 4 to 1 and 2 is cancelled, and the controller dies when it has written the replicas: who leads,
    alone in sync, is told of nothing, as its leader epoch stays. Then the next is in office."""
    stage = stage_with(1, 2, 4, p0=cancelled)
    was = replace(stage.leadership(TP), leader=BrokerId(leading), isr=(BrokerId(leading),))
    stage.others_write(SetData(STATE, TopicPartitionStateZNode.encode(was)))
    stage.new_controller()
    stage.start()
    stage.take_sent()
    assert stage.leader()[::2] == (leading, (leading,))
    return stage


def an_isr_is_told_of(stage: Stage, isr: tuple[int, ...], refusal: Any = lambda _: None) -> None:
    stage.leader_writes(TP, isr)
    stage.tree.refusal = refusal
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, encode_partitions([TP]), sequence=True))
    stage.run()


def test_a_leader_that_heard_of_nothing_takes_nobody_back_for_good() -> None:
    stage = cancelled_without_a_word((1, 2), leading=1)
    an_isr_is_told_of(stage, (1, 4))
    leader, epoch, isr = stage.leader()
    assert (leader, isr) == (1, (1,))
    heard = [(to, told.leader_epoch, told.isr) for to, told, _ in leaders_in(stage.sent)]
    assert heard == [(1, epoch, (1,)), (2, epoch, (1,))]
    stage.take_sent()
    an_isr_is_told_of(stage, (1, 2))
    assert stage.leader() == (1, epoch, (1, 2)) and not leaders_in(stage.sent)


def test_a_leader_that_is_no_replica_gives_way_to_the_first_who_joins_it() -> None:
    stage = cancelled_without_a_word((1, 2), leading=4)
    an_isr_is_told_of(stage, (4, 2))
    assert stage.leader()[::2] == (2, (2,))


@pytest.mark.parametrize("leading", [1, 4])
def test_who_could_not_be_dropped_is_dropped_later(leading: int) -> None:
    stage = cancelled_without_a_word((1, 2), leading=leading)
    an_isr_is_told_of(
        stage, (4, 1), lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None
    )
    assert stage.leader()[0] == leading
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    assert stage.leader()[::2] == (1, (1,))


def test_strangers_go_also_from_a_topic_that_could_not_be_read_at_the_failover() -> None:
    stage = stage_with(1, 2, 4, p0=(1, 2))
    stage.leader_writes(TP, (1, 2, 4))
    stage.tree.refusal = lambda op: (
        ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == "/brokers/topics/t" else None
    )
    stage.expire()
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    assert stage.leader()[::2] == (1, (1, 2))


def no_state_is_written(op: Any) -> ZkCode | None:
    return ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None


def dropped_without_a_word() -> Stage:
    """A move that adds 3 to 1 is cancelled while no state can be written: 3 is told to delete its log, and has not yet;
    1, which leads, has not heard that 3 is no replica."""
    stage = stage_with(1, 2, 3, p0=(1,))
    move_to(stage, 3, 1)
    stage.tree.refusal = no_state_is_written
    move_to(stage, 1, reply_to=2)
    assert (3, True) in {(to, delete) for to, _, delete in stops_in(stage.take_sent())}
    assert stage.assigned().replicas == (1,)
    return stage


@pytest.mark.parametrize("target", [(1, 2), (4,)], ids=["cancelled", "replaced"])
def test_who_could_not_leave_the_isr_is_deleted_later(target: tuple[int, ...]) -> None:
    """The first write of a state is refused: 3, which is in sync, is dropped and only told to stop."""
    stage, refused = stage_with(1, 2, 3, 4, p0=(1, 2)), iter((True,))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.take_sent()
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if no_state_is_written(op) and next(refused, False) else None
    move_to(stage, *target, reply_to=2)
    waiting_ends(stage)
    assert 3 not in stage.assigned().replicas and stage.leader()[2] == (1, 2)
    assert [delete for to, _, delete in stops_in(stage.take_sent()) if to == 3][-2:] == [False, True]


def dropped_and_not_stopped() -> Stage:
    """3, which is in sync, is dropped while no state can be written: it is only told to stop, and the move waits."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.take_sent()
    stage.tree.refusal = no_state_is_written
    move_to(stage, 1, 2, reply_to=2)
    assert 3 not in stage.assigned().replicas and stage.state.is_begun(TP, BrokerId(3))
    return stage


def test_who_could_not_leave_the_isr_goes_with_its_topic() -> None:
    stage = dropped_and_not_stopped()
    stage.take_sent()
    stage.make("/admin/delete_topics/t")
    stage.run()
    assert not stage.exists("/brokers/topics/t")
    assert {to for to, _, delete in stops_in(stage.take_sent()) if delete} == {1, 2, 3}


def dropped_and_not_stopped_on_who_dies(*target: int) -> Stage:
    """3 cannot leave the ISR when a move to `target` drops it, and is dead when that is tried again; it comes back."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3))
    stage.tree.refusal = no_state_is_written
    move_to(stage, *target, reply_to=2)
    stage.broker_dies(3)
    stage.run()
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    stage.broker_starts(3)
    stage.run()
    assert not stage.state.moves_that_wait
    assert not any(delete for to, _, delete in stops_in(stage.take_sent()) if to == 3)
    return stage


def test_who_was_dead_when_a_move_went_on_without_it_is_deleted_when_that_ends() -> None:
    """Seed 2395."""
    stage = dropped_and_not_stopped_on_who_dies(4)
    assert stage.assigned().is_being_reassigned
    stage.leader_writes(TP, (1, 4))
    stage.run()
    assert stage.assigned().replicas == (4,) and not stage.state.is_begun(TP, BrokerId(3))
    assert [delete for to, _, delete in stops_in(stage.take_sent()) if to == 3] == [False, True]


@pytest.mark.parametrize("target", [(1,), (4, 1)], ids=["complete at once", "not at once"])
def test_who_was_dead_when_a_move_ended_is_deleted_by_the_next(target: tuple[int, ...]) -> None:
    stage = dropped_and_not_stopped_on_who_dies(1, 2)
    assert not stage.assigned().is_being_reassigned
    move_to(stage, *target, reply_to=3)
    assert [delete for to, _, delete in stops_in(stage.take_sent()) if to == 3] == [False, True]
    assert not stage.state.is_begun(TP, BrokerId(3)) and not stage.state.moves_that_wait


def test_who_was_dead_when_a_move_ended_goes_with_its_topic() -> None:
    stage = dropped_and_not_stopped_on_who_dies(1, 2)
    stage.make("/admin/delete_topics/t")
    stage.run()
    assert not stage.exists("/brokers/topics/t")
    assert {to for to, _, delete in stops_in(stage.take_sent()) if delete} == {1, 2, 3}


def test_who_could_not_leave_the_isr_is_a_stranger_to_the_next_topic_of_that_name() -> None:
    """A soak's 121st round: somebody had removed the znodes."""
    stage = dropped_and_not_stopped()
    for path in (STATE, *(str(parent) for parent in list(PurePosixPath(STATE).parents)[:3])):
        assert stage.others_write(Delete(path)).ok
    stage.run()
    waiting_ends(stage)
    stage.tree.refusal = lambda _: None
    stage.topic("t", p0=(3, 1))
    stage.run()
    assert stage.leader()[::2] == (3, (3, 1)) and not stage.logged(ev.TRANSITION_REFUSED)


def test_a_move_does_not_delete_who_is_alone_in_sync() -> None:
    """1, which leads, takes 3 out of the ISR when the controller is about to have 3 lead."""
    stage = stage_with(1, 2, 3, p0=(1,))
    move_to(stage, 3)
    stage.leader_writes(TP, (1, 3))
    perform, lagging = stage.perform, iter((True,))

    def racing(effect: Effect) -> Any:
        is_state = any(isinstance(op, SetData) and op.path == STATE for op in getattr(effect, "ops", ()))
        if is_state and next(lagging, False):
            stage.leader_writes(TP, (1,))
        return perform(effect)

    stage.perform = racing
    stage.run()
    waiting_ends(stage)
    leader, epoch, isr = stage.leader()
    assert (leader, isr) == (1, (1,)) and stage.assigned().is_being_reassigned
    sent = stage.take_sent()
    assert not any(delete for _, _, delete in stops_in(sent))
    assert (1, epoch) in {(to, told.leader_epoch) for to, told, _ in leaders_in(sent)}, (
        "it was stopped, and leads again"
    )
    stage.leader_writes(TP, (1, 3))
    stage.run()
    assert stage.leader()[::2] == (3, (3,)) and stage.assigned().replicas == (3,)
    assert (1, True) in {(to, delete) for to, _, delete in stops_in(stage.take_sent())}


@pytest.mark.parametrize("begins", ["when it is asked for", "when it is tried again"])
def test_who_is_added_again_is_in_sync_when_its_leader_has_heard_that_it_was_dropped(begins: str) -> None:
    stage = dropped_without_a_word()
    if begins == "when it is tried again":
        move_to(stage, 3, reply_to=3)
        stage.tree.refusal = lambda _: None
        stage.leader_writes(TP, (1, 3))
        waiting_ends(stage)
    else:
        stage.tree.refusal = lambda _: None
        stage.leader_writes(TP, (1, 3))
        move_to(stage, 3, reply_to=3)
    assert stage.leader()[::2] == (1, (1,)) and stage.assigned().is_being_reassigned
    assert leaders_in(stage.take_sent())[-1][0] == 3, "it begins with an empty log"
    stage.leader_writes(TP, (1, 3))
    stage.run()
    assert stage.leader()[::2] == (3, (3,)) and stage.assigned().replicas == (3,)


def test_who_is_added_again_is_not_elected_before_it_begins() -> None:
    """The leader dies when it has taken 3 back."""
    stage = dropped_without_a_word()
    move_to(stage, 3, 1, reply_to=3)
    stage.tree.refusal = lambda _: None
    stage.leader_writes(TP, (1, 3))
    stage.broker_dies(1)
    stage.run()
    assert stage.leader()[0] is None
    stage.broker_starts(1)
    stage.run()
    waiting_ends(stage)
    assert stage.leader()[::2] == (1, (1,)) and not stage.logged(ev.TRANSITION_REFUSED)


def test_who_begins_while_the_leader_is_dead_has_no_records() -> None:
    """World 79: 3, whose log is still to be deleted, was left alone in the ISR, and then told that it is new."""
    stage = dropped_without_a_word()
    move_to(stage, 3, 1, reply_to=3)
    stage.tree.refusal = lambda _: None
    stage.leader_writes(TP, (1, 3))
    stage.tree.refusal = no_state_is_written
    stage.run()
    stage.tree.refusal = lambda _: None
    stage.broker_dies(1)
    stage.run()
    assert stage.leader()[::2] == (None, (1,))
    waiting_ends(stage)
    assert stage.leader()[::2] == (None, (1,)), "3 has begun, with an empty log"
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[::2] == (1, (1,))


def test_who_is_added_and_dies_before_it_begins_begins_when_it_is_back() -> None:
    stage = dropped_without_a_word()
    move_to(stage, 3, 1, reply_to=3)
    stage.broker_dies(3)
    stage.run()
    assert stage.logged(ev.TRANSITION_REFUSED) == []
    stage.tree.refusal = lambda _: None
    stage.broker_starts(3)
    stage.run()
    waiting_ends(stage)
    stage.leader_writes(TP, (1, 3))
    stage.run()
    assert stage.leader()[::2] == (1, (1, 3)) and stage.assigned().replicas == (3, 1)


def test_who_is_added_and_has_not_begun_is_not_stopped_when_its_broker_shuts_down() -> None:
    stage = dropped_without_a_word()
    move_to(stage, 3, 1, reply_to=3)
    stage.take_sent()
    stage.run(events.ControlledShutdown(BrokerId(3), -1, 4))
    assert stops_in(stage.take_sent()) == [] and stage.logged(ev.TRANSITION_REFUSED) == []


def until_the_next_move(stage: Stage, then: Callable[[Any], ZkCode | None]) -> Callable[[Any], ZkCode | None]:
    """No state can be written until the replicas of the next move have been: refusals of a tree."""

    def refusal(op: Any) -> ZkCode | None:
        if isinstance(op, SetData) and op.path == "/brokers/topics/t":
            stage.tree.refusal = then
        return no_state_is_written(op)

    return refusal


def taken_back_by_who_was_added(*in_sync: int) -> Stage:
    """4, which a move adds to 1, leads; it has not heard that 3 was dropped, and takes it back into the ISR."""
    stage = stage_with(1, 2, 3, 4, p0=(1,))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 4))
    stage.broker_dies(1)
    stage.run()
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[::2] == (4, (4,))
    stage.tree.refusal = no_state_is_written
    move_to(stage, 4, reply_to=2)
    assert 3 not in stage.assigned().replicas
    stage.tree.refusal = lambda _: None
    stage.leader_writes(TP, in_sync)
    stage.tree.refusal = until_the_next_move(stage, lambda _: None)
    return stage


def test_a_move_is_refused_after_which_only_who_has_not_begun_would_be_in_sync() -> None:
    stage = taken_back_by_who_was_added(4, 3)
    move_to(stage, 3, reply_to=3)
    assert stage.replies[3].partitions[TP].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stage.leader()[0] == 4 and 4 in stage.assigned().replicas


def test_who_has_not_begun_is_no_reason_to_drop_a_leader_before_another_leads() -> None:
    """The move to 3 drops 4. All its targets are in the ISR, but 1 must lead first: 3 may not yet."""
    stage, perform = taken_back_by_who_was_added(4, 1, 3), Stage.perform
    leaders: list[int | None] = []

    def looking(effect: Effect) -> Any:
        result = perform(stage, effect)
        leaders.append(stage.leader()[0])
        return result

    stage.perform = looking
    move_to(stage, 3, reply_to=3)
    assert [leader for leader, _ in itertools.groupby(leaders)] == [4, 1]
    assert stage.leader()[2] == (1,) and stage.assigned().is_being_reassigned


def test_a_successor_takes_who_was_added_again_for_begun() -> None:
    """The controller dies when it has added 3, before the leader epoch with which 3 begins. Nothing in ZooKeeper tells
    that from a move whose targets have joined, in Kafka neither (docs/deviations.md)."""
    stage = dropped_without_a_word()
    stage.tree.refusal = lambda _: None
    stage.leader_writes(TP, (1, 3))

    def dies(op: Any) -> ZkCode | None:
        if isinstance(op, SetData) and op.path == STATE:
            raise Cut
        return None

    stage.tree.refusal = until_the_next_move(stage, dies)
    with suppress(Cut):
        move_to(stage, 3, reply_to=3)
    stage.tree.refusal = lambda _: None
    assert stage.assigned().adding_replicas == (3,) and stage.leader()[::2] == (1, (1, 3))
    stage.new_controller()
    stage.start()
    assert stage.leader()[::2] == (3, (3,)) and stage.assigned().replicas == (3,)


def test_a_move_to_who_died_in_the_isr_leaves_a_partition_that_waits_for_it() -> None:
    """ZooKeeper refused to take 2 out of the ISR when it died, so the move to it is complete at once."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == STATE else None
    stage.broker_dies(2)
    stage.run()
    stage.tree.refusal = lambda _: None
    move_to(stage, 2)
    assert stage.leader()[::2] == (None, (2,)) and stage.assigned().replicas == (2,)
    stage.broker_starts(2)
    stage.run()
    assert stage.leader()[::2] == (2, (2,))


def test_who_has_the_records_stays_in_the_isr_beside_one_whom_it_took_back() -> None:
    """4, which a cancelled move dropped, was taken back by a leader that shut down then and heard of nothing."""
    stage = stage_with(1, 4, p0=(1,))
    stage.leader_writes(TP, (1, 4))
    stage.broker_dies(1)
    stage.run()
    assert stage.leader()[::2] == (None, (1,))
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[::2] == (1, (1,))


def test_who_is_added_and_has_all_records_is_not_told_that_it_is_new() -> None:
    """The move is taken up when 2 returns. Were its log in a dir that has failed, it would make another, and lead."""
    stage = stage_with(1, 2, 3, p0=(1,))
    move_to(stage, 2, 3)
    assert {(to, is_new) for to, _, is_new in leaders_in(stage.take_sent())} >= {(2, True), (3, True)}
    stage.leader_writes(TP, (1, 2))
    stage.broker_dies(1)
    stage.run()
    stage.broker_dies(2)
    stage.run()
    assert stage.leader()[::2] == (None, (2,))
    stage.take_sent()
    stage.broker_starts(2)
    stage.run()
    assert stage.leader()[::2] == (2, (2,))
    told = leaders_in(stage.take_sent())
    assert told and not any(is_new for to, _, is_new in told if to == 2)
    assert (3, True) in {(to, is_new) for to, _, is_new in told}


def test_the_last_replica_stays_in_the_isr_beside_a_leader_that_a_move_has_dropped() -> None:
    """4, which a move adds, leads when the move is cancelled; its state cannot be written yet when 1 dies."""
    stage = stage_with(1, 4, 5, p0=(1,))
    move_to(stage, 1, 4, 5)
    stage.leader_writes(TP, (1, 4))
    stage.broker_dies(1)
    stage.run()
    stage.broker_starts(1)
    stage.leader_writes(TP, (4, 1))
    stage.run()
    stage.tree.refusal = no_state_is_written
    move_to(stage, 1)
    stage.tree.refusal = lambda _: None
    assert (stage.leader()[::2], stage.assigned().replicas) == ((4, (4, 1)), (1,))
    stage.broker_dies(1)
    stage.run()
    assert stage.leader()[::2] == (None, (1,))
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[::2] == (1, (1,))


def test_who_joins_before_its_move_has_begun_it_is_begun_all_the_same() -> None:
    """The leader is dropped by the next move; 5, which that adds, hears of the new one, and is in the ISR at once. That
    does not count, as nobody can tell it from one whose log is being deleted, until it joins again."""
    stage = stage_with(1, 2, 3, 4, 5, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 3))
    stage.broker_dies(1)
    stage.run()
    stage.broker_starts(1)
    stage.leader_writes(TP, (3, 1))
    stage.run()
    assert stage.leader()[0] == 3
    perform, raced = stage.perform, False

    def racing(effect: Any) -> Any:
        nonlocal raced
        if any(isinstance(r, LeaderAndIsrRequest) and r.to == 5 for r in getattr(effect, "requests", ())) and not raced:
            raced = True
            stage.leader_writes(TP, (*stage.leader()[2], 5))
        return perform(effect)

    stage.perform = racing
    move_to(stage, 5, reply_to=2)
    assert raced and stage.leader()[2] == (1,)
    stage.leader_writes(TP, (1, 5))
    stage.run()
    assert stage.assigned().replicas == (5,) and stage.leader()[2] == (5,)
    assert stage.state.replica_state(PartitionReplica(TP, BrokerId(5))) is ReplicaState.ONLINE
    assert not stage.logged(ev.TRANSITION_REFUSED)


def test_who_comes_back_before_its_move_has_begun_it_is_begun_with_the_move() -> None:
    """ZooKeeper refuses the state when 3 is added, so that the move waits; 3 dies, and is back before that is tried
    again. Its replica is not taken for one that was there before."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    path = TopicPartitionStateZNode.path(TP)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == path else None
    move_to(stage, 1, 3)
    stage.broker_dies(3)
    stage.run()
    stage.tree.refusal = lambda _: None
    stage.broker_starts(3)
    stage.run()
    assert not stage.logged(ev.TRANSITION_REFUSED)
    assert stage.state.is_begun(TP, BrokerId(3))


def test_a_move_that_fails_is_not_written_as_done_by_another_of_its_topic() -> None:
    """Both end at once; the state of partition 1 is refused, so its old replicas stay in the ISR."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2), p1=(1, 2))
    other = TopicPartition("t", 1)
    state_of_other = "/brokers/topics/t/partitions/1/state"

    def refusal(op: Any) -> ZkCode | None:
        leaves = isinstance(op, SetData) and op.path == state_of_other and b'"isr":[1]' in (op.data or b"")
        return ZkCode.NO_AUTH if leaves else None

    stage.tree.refusal = refusal
    stage.take_lines()
    stage.run(events.ApiPartitionReassignment({TP: (BrokerId(1),), other: (BrokerId(1),)}, 1))
    lines = [line for line in stage.take_lines() if line.startswith("zk   set /brokers/topics/t ")]
    written = [json.loads(line.partition("/brokers/topics/t ")[2]) for line in lines]
    assert written[-1]["partitions"] == {"0": [1], "1": [1, 2]}
    assert all(each["removing_replicas"].get("1") == [2] for each in written)


def test_a_topic_keeps_its_id_and_what_else_its_znode_says_through_a_move() -> None:
    stage = stage_with(1, 2, 3)
    znode = {"version": 3, "topic_id": "jLFmdEvyc0jNaA60SaJ1Mg", "partitions": {"0": [1, 2]}, "of_tomorrow": 5}
    stage.make("/brokers/topics/t", json.dumps(znode | {"adding_replicas": {}, "removing_replicas": {}}).encode())
    stage.run()
    stage.take_lines()
    move_to(stage, 3, 2)
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    lines = [line for line in stage.take_lines() if line.startswith("zk   set /brokers/topics/t ")]
    written = [json.loads(line.partition("/brokers/topics/t ")[2]) for line in lines]
    assert [(w["topic_id"], w["of_tomorrow"]) for w in written] == [(znode["topic_id"], 5)] * 2
    assert written[-1]["partitions"] == {"0": [3, 2]}


def test_partitions_that_somebody_adds_while_a_move_is_written_stay() -> None:
    """Before any write of the move's: the request that adds them does not pass through the controller's queue."""
    for at_write in itertools.count():
        stage = stage_with(1, 2, 3, p0=(1, 2))
        perform, writes = stage.perform, 0

        def adding(effect: Any, perform: Any = perform, stage: Stage = stage, at_write: int = at_write) -> Any:
            nonlocal writes
            if isinstance(effect, Write):
                if writes == at_write:
                    node = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
                    node["partitions"]["1"] = [2, 3]
                    stage.others_write(SetData("/brokers/topics/t", json.dumps(node).encode()))
                writes += 1
            return perform(effect)

        stage.perform = adding
        move_to(stage, 3, 2)
        stage.leader_writes(TP, (1, 2, 3))
        stage.run()
        if writes <= at_write:
            break
        assert stage.topic_node()[1].replicas == (2, 3), at_write
        assert stage.leader(TopicPartition("t", 1))[0] == 2, at_write
        assert stage.assigned().replicas == (3, 2) and not stage.assigned().is_being_reassigned, at_write
    assert at_write > 5


def test_a_move_never_drops_the_only_ones_with_the_records() -> None:
    stage = stage_with(1, 2, 3, p0=(1, 2))
    move_to(stage, 3)
    stage.leader_writes(TP, (1, 2, 3))
    for dead in (1, 2):
        stage.broker_dies(dead)
        stage.run()
    stage.broker_starts(1, 2)
    stage.run()
    if stage.assigned().is_being_reassigned:
        assert stage.leader()[2] == (3,)
        stage.take_sent()
        move_to(stage, 1, 2, reply_to=2)
        assert stage.replies[2].partitions[TP].error is not ErrorCode.NONE
        assert stops_in(stage.take_sent()) == [] and stage.leader()[0] == 3


def test_a_new_topic_inherits_no_move() -> None:
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.make("/admin/delete_topics/t")
    stage.run()
    assert not stage.exists("/brokers/topics/t")
    stage.topic("t", p0=(1, 2))
    stage.run()
    stage.leader_writes(TP, (1,))
    data = encode_partitions([TP])
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))
    stage.run()
    assert stage.leader() == (1, 0, (1,)) and not stage.state.partitions_being_reassigned


def test_a_topic_that_vanished_comes_back_as_another() -> None:
    stage = stage_with(1, 2, p0=(1, 2))
    for path in (STATE, *(STATE.rsplit("/", n)[0] for n in (1, 2, 3))):
        stage.others_write(Delete(path))
    stage.run()
    stage.topic("t", p0=(2, 1))
    stage.run()
    assert stage.leader() == (2, 0, (2, 1))


def test_the_marker_of_a_topic_that_vanished_goes_too() -> None:
    """Whoever lost patience with a deletion that waits has removed the topic by hand, and would make it anew."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.broker_dies(2)
    stage.run()
    stage.others_write(Create("/admin/delete_topics/t"))
    stage.run()
    for path in (STATE, *(STATE.rsplit("/", n)[0] for n in (1, 2, 3))):
        stage.others_write(Delete(path))
    stage.run()
    assert not stage.exists("/admin/delete_topics/t") and not stage.state.topics_to_be_deleted
    stage.topic("t", p0=(1,))
    stage.run()
    assert stage.leader() == (1, 0, (1,))


def test_the_wish_to_move_a_topic_that_vanished_goes_too() -> None:
    """While the znode is there no later wish is noticed."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    rows = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}
    stage.make("/admin/reassign_partitions", json.dumps(rows).encode())
    stage.run()
    assert TP in stage.state.partitions_being_reassigned
    for path in (STATE, *(STATE.rsplit("/", n)[0] for n in (1, 2, 3))):
        stage.others_write(Delete(path))
    stage.run()
    assert not stage.exists("/admin/reassign_partitions")


def test_partitions_that_are_seen_before_their_topic_start_once() -> None:
    stage = stage_with(1, 2)
    stage.make("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')
    stage.events.clear()
    stage.run(events.PartitionModifications("t"), events.TopicChange())
    assert stage.leader() == (1, 0, (1, 2))


# --- deletion


def test_a_half_deleted_topic_that_was_moving_goes() -> None:
    stage = stage_with(1, 2, 3)
    stage.new_controller()
    content = b'{"version":3,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{}}'
    stage.make("/brokers/topics/t", content)
    stage.make("/admin/delete_topics/t")
    stage.start()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_deletion_that_waits_for_a_move_waits_until_it_ends() -> None:
    """However brokers of the topic come and go meanwhile."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.new_controller()
    stage.make("/admin/delete_topics/t")
    stage.start()
    stage.take_sent()
    stage.broker_dies(2)
    stage.run()
    stage.broker_starts(2)
    stage.run()
    assert not any(delete for _, _, delete in stops_in(stage.take_sent()))
    stage.leader_writes(TP, (1, 2, 3, 4))
    stage.run()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_deletion_waits_for_no_move_of_a_partition_without_a_leader() -> None:
    """Nobody is elected for a topic that is to be deleted, so such a move would never end: a former controller had
    begun the deletion, whose first step takes the leader away."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.new_controller()
    stage.make("/admin/delete_topics/t")
    state = {"controller_epoch": 1, "leader": -1, "version": 1, "leader_epoch": 6, "isr": [2]}
    stage.others_write(SetData(STATE, json.dumps(state).encode()))
    stage.start()
    stage.run()
    stage.broker_dies(2)
    stage.run()
    stage.broker_starts(2)
    stage.run()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


@pytest.mark.parametrize("is_known_dead", [True, False], ids=["it is gone", "it bounces"])
def test_a_deletion_waits_for_a_move_that_goes_on_when_its_leader_is_back(is_known_dead: bool) -> None:
    """Nobody is elected for a topic that is to be deleted. 3, which the move adds, hears of the leader while that is
    dead, and follows nobody; so it must hear again when the leader is back (seed 7339)."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.new_controller()
    stage.make("/admin/delete_topics/t")
    stage.start()
    stage.broker_dies(1)
    if is_known_dead:
        stage.run()
        stage.broker_dies(3)
        stage.run()
        stage.broker_starts(3)
        stage.run()
    _, before, _ = stage.leader()
    stage.take_sent()
    stage.broker_starts(1)
    stage.run()
    told = {(to, state.leader, state.leader_epoch) for to, state, _ in leaders_in(stage.take_sent())}
    assert {(to, 1, before + 1) for to in (1, 2, 3, 4)} <= told
    stage.leader_writes(TP, (1, 2, 3, 4))
    stage.run()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_deletion_that_began_waits_for_no_move_when_another_topic_is_to_be_deleted() -> None:
    """3 comes back while 1 has still to answer; then somebody deletes another topic."""
    stage = stage_with(1, 2, 3, p0=(1, 2, 3))
    stage.topic("u", p0=(2, 3))
    stage.run()
    stage.broker_dies(3)
    stage.run()
    move_to(stage, 1, 3)
    assert stage.state.partitions_being_reassigned == {TP}
    stage.silent.add(1)
    stage.make("/admin/delete_topics/t")
    stage.run()
    stage.broker_starts(3)
    stage.run()
    stage.make("/admin/delete_topics/u")
    stage.run()
    stage.release(1)
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_state_that_was_removed_by_hand_does_not_hold_up_the_deletion() -> None:
    stage = stage_with(1, 2, p0=(1, 2))
    stage.others_write(Delete(STATE))
    stage.make("/admin/delete_topics/t")
    stage.run()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_partitions_of_a_topic_in_deletion_are_not_offline() -> None:
    stage = stage_with(1, 2, 3, p0=(1, 3))
    stage.broker_dies(3)
    stage.run()
    stage.make("/admin/delete_topics/t")
    stage.run()
    stage.new_controller()
    stage.start()
    assert stage.state.gauges()["OfflinePartitionsCount"] == 0


# --- brokers


@pytest.mark.parametrize("what", ["garbage", "gone", "a newer controller"])
def test_everybody_learns_that_a_broker_is_gone(what: str) -> None:
    stage = stage_with(1, 2, 3, p0=(1, 3))
    stage.leader_writes(TP, (1,))
    data = encode_partitions([TP])
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))
    stage.run()
    match what:
        case "garbage":
            stage.others_write(SetData(STATE, b"garbage"))
        case "gone":
            stage.others_write(Delete(STATE))
        case _:
            found = json.loads(stage.tree.read(GetData(STATE)).data or b"")
            stage.others_write(SetData(STATE, json.dumps({**found, "controller_epoch": 99}).encode()))
    stage.take_sent()
    stage.broker_dies(3)
    stage.run()
    told = {request.to: {b.broker_id for b in request.live_brokers} for request in metadata_in(stage.take_sent())}
    assert {to for to, live in told.items() if 3 not in live} == {1, 2}


def test_a_topic_whose_read_fails_once_gets_a_leader_all_the_same() -> None:
    stage = stage_with(1, 2)
    stage.tree.refusal = lambda op: (
        ZkCode.SESSION_MOVED if isinstance(op, GetData) and op.path == "/brokers/topics/t" else None
    )
    stage.topic("t", p0=(1, 2))
    stage.run()
    stage.tree.refusal = lambda _: None
    waiting, stage.timers = stage.timers, []
    stage.run(*(timer.event for timer in waiting))
    assert stage.leader() == (1, 0, (1, 2))


def test_an_entry_that_could_not_be_removed_is_removed_later() -> None:
    """Two moves by znode, of which one is done: the rewrite without it is refused once."""
    stage = stage_with(1, 2, 3, p0=(1, 2), p1=(1, 2))
    path, rows = "/admin/reassign_partitions", [{"topic": "t", "partition": n, "replicas": [1, 3]} for n in (0, 1)]
    stage.make(path, json.dumps({"version": 1, "partitions": rows}).encode())
    stage.run()
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == path else None
    stage.leader_writes(TP, (1, 2, 3))
    data = encode_partitions([TP])
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))
    stage.run()
    stage.tree.refusal = lambda _: None
    waiting, stage.timers = stage.timers, []
    stage.run(*(timer.event for timer in waiting))
    left = json.loads(stage.tree.read(GetData(path)).data or b"")["partitions"]
    assert [row["partition"] for row in left] == [1]


def test_a_notice_of_a_topic_that_cannot_be_read_leaves_it_as_unknown_as_it_is() -> None:
    """Its leader counted as one that leads otherwise when the topic can be read again, and could not become new."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.tree.refusal = lambda op: (
        ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == "/brokers/topics/t" else None
    )
    stage.expire()
    assert stage.state.serving and not stage.state.assignment(TP).replicas
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, encode_partitions([TP]), sequence=True))
    stage.run()
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    assert stage.logged(ev.TRANSITION_REFUSED) == []
    assert stage.leader()[0] == 1
    for broker_id in (1, 2):
        assert stage.state.replica_state(PartitionReplica(TP, BrokerId(broker_id))) is ReplicaState.ONLINE


# --- the office


@pytest.mark.parametrize("path", ["/admin/reassign_partitions", "/admin/preferred_replica_election", "/feature"])
def test_a_znode_that_must_not_be_read_costs_what_it_concerns(path: str) -> None:
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.topic("t", p0=(1, 2))
    stage.make(path, b"{}")
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == path else None
    stage.start()
    assert stage.state.serving and stage.state.epoch == 1 and stage.leader()[0] == 1


def test_an_office_is_given_up_whatever_fails_meanwhile() -> None:
    stage = stage_with(1, 2, p0=(1, 2))
    perform = stage.perform

    def broken(effect: Effect) -> Any:
        if isinstance(effect, RemoveBrokers):
            raise RuntimeError("a channel does not close")
        return perform(effect)

    stage.perform = broken
    stage.rival_wins()
    stage.run()
    assert not stage.state.serving and stage.state.epoch == 0


def test_an_office_that_is_lost_in_the_middle_of_a_bounce_leaves_no_channel() -> None:
    """A broker that came back has its new channel before it is alive again; whatever fails in between."""
    for nth in range(1, 12):
        stage = stage_with(1, 2, 3, p0=(1, 2), p1=(2, 1))
        perform, left = stage.perform, [nth]

        def lost(effect: Effect, perform: Any = perform, left: list[int] = left, stage: Stage = stage) -> Any:
            if isinstance(effect, Write):
                left[0] -= 1
                if left[0] == 0:
                    stage.rival_wins()
            return perform(effect)

        stage.perform = lost
        stage.broker_dies(1)
        stage.broker_starts(1)
        stage.run()
        if left[0] > 0:
            assert nth > 1, "nothing was written at all"
            break
        assert not stage.state.serving and not stage.channels, f"at write {nth}"


def test_there_is_no_second_term_without_an_end_of_the_first() -> None:
    """`/controller` vanishes between two reads of one event."""
    for at_step in (1, 2, 3, 4):
        stage = stage_with(1, 2, p0=(1, 2))
        perform, count = stage.perform, 0

        def vanishing(effect: Effect, perform: Any = perform, stage: Stage = stage, at_step: int = at_step) -> Any:
            nonlocal count
            count += 1
            if count == at_step:
                stage.others_write(Delete("/controller"))
            return perform(effect)

        stage.perform = vanishing
        stage.run(events.Reelect())
        stage.perform = perform
        stage.run()
        resigned, elected = stage.logged("controller.resigned"), stage.logged("controller.elected")
        assert len(elected) == len(resigned) + 1 and stage.state.serving, at_step


# --- fields of others


def test_what_nobody_here_understands_survives_every_rewrite() -> None:
    stage = stage_with(1, 2, 3)
    stage.make(
        "/brokers/topics/t", b'{"version":3,"partitions":{"0":[1,2]},"topic_id":"abc","something_newer":{"a":1}}'
    )
    stage.run()
    move_to(stage, 2, 1)
    assert json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")["something_newer"] == {"a": 1}
    stage.make("/brokers/topics/t", b'{"version":3,"partitions":{"0":[2,1]},"other":[1]}')
    stage.run()
    written = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
    assert written["topic_id"] == "abc" and written["other"] == [1], "the id is given back at once"
    stage.new_controller()
    stage.start()
    move_to(stage, 1, 2)
    written = json.loads(stage.tree.read(GetData("/brokers/topics/t")).data or b"")
    assert written["topic_id"] == "abc" and written["other"] == [1] and written["partitions"] == {"0": [1, 2]}


def test_leadership_goes_only_to_replicas() -> None:
    stage = stage_with(1, 2, 3, p0=(1, 2))
    move_to(stage, 3, 2)
    assert {to for to, _, _ in leaders_in(stage.take_sent())} == {1, 2, 3}
    assert TopicPartition("t", 0) in stage.state.partitions_being_reassigned
    assert stage.state.assignment(TP).adding_replicas == (BrokerId(3),)


# --- what a fuzz of every znode at every step found (tests/unit/core/test_fuzz.py)


def waiting_ends(stage: Stage) -> None:
    """The time of all timers has come."""
    waiting, stage.timers = stage.timers, []
    stage.now_ms += 2_000
    stage.run(*(timer.event for timer in waiting))


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_move_does_not_end_while_the_old_replicas_are_in_the_isr(nth: int) -> None:
    """Its last phase writes three states: the leader, and the ISR without each of two replicas."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.leader_writes(TP, (1, 2, 3, 4))
    sound = stage.tree.read(GetData(STATE)).data
    perform, writes = stage.perform, 0

    def damaging(effect: Effect) -> Any:
        nonlocal sound, writes
        writes += isinstance(effect, Write)
        if isinstance(effect, Write) and writes == nth:
            sound = stage.tree.read(GetData(STATE)).data
            stage.others_write(SetData(STATE, b"garbage"))
        return perform(effect)

    stage.perform = damaging
    stage.take_sent()
    stage.run()
    stage.perform = perform
    deleted = {to for to, _, delete in stops_in(stage.take_sent()) if delete}
    assert deleted == ({1} if nth == 3 else set()), "the others may be in the ISR"
    assert stage.assigned().is_being_reassigned and stage.state.assignment(TP) == stage.assigned()
    waiting_ends(stage)
    stage.others_write(SetData(STATE, sound))
    waiting_ends(stage)
    assert stage.assigned().replicas == (3, 4) and set(stage.leader()[2]) == {3, 4} and stage.leader()[0] == 3
    assert deleted | {to for to, _, delete in stops_in(stage.take_sent()) if delete} == {1, 2}


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_move_whose_topic_cannot_be_written_is_tried_again_without_haste(phase: str) -> None:
    """Not by its own writes, which its watch tells it of: that would never end."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    if phase == "after":
        move_to(stage, 3, 4)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path.endswith("/t") else None
    if phase == "after":
        stage.leader_writes(TP, (1, 2, 3, 4))
        stage.run()
        waiting_ends(stage)
        assert stage.leader()[1] < 12, "one attempt for each time that it waits"
        stage.tree.refusal = lambda _: None
        waiting_ends(stage)
        assert stage.assigned().replicas == (3, 4) and not stage.state.partitions_being_reassigned
    else:
        move_to(stage, 3, 4)
        assert stage.replies[1].partitions[TP].error is ErrorCode.UNKNOWN_SERVER_ERROR and stage.timers == []


def test_a_state_that_was_removed_is_not_begun_anew() -> None:
    """Only 2 has all records; after a failover nobody knows that, unless the znode is written again."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.broker_dies(1)
    stage.run()
    sound = stage.tree.read(GetData(STATE)).data
    stage.broker_starts(1)
    stage.run()
    stage.others_write(Delete(STATE))
    stage.new_controller()
    stage.start()
    assert not stage.exists(STATE) and stage.state.gauges()["OfflinePartitionsCount"] == 1
    assert any("it was removed" in line["reason"] for line in stage.logged(ev.ZK_DATA_REFUSED))
    stage.others_write(Create(STATE, sound))
    waiting_ends(stage)
    leader, epoch, isr = stage.leader()
    assert (leader, isr) == (2, (2,)) and epoch == json.loads(sound or b"")["leader_epoch"] + 1
    stage.topic("n", p0=(1, 2))
    stage.run()
    assert stage.leader(TopicPartition("n", 0))[0] == 1, "one that never had a state is begun"


IMPOSSIBLE_STATES = [
    ("nobody is in sync", {"isr": []}),
    ("one twice", {"isr": [1, 1]}),
    ("no broker", {"isr": [-3, 1]}),
    ("a leader that is not in sync", {"leader": 3}),
    ("no replica in sync", {"leader": 9, "isr": [9]}),
    ("an epoch of the past", {"leader_epoch": 0}),
]


@pytest.mark.parametrize(("_", "wrong"), IMPOSSIBLE_STATES, ids=[row[0] for row in IMPOSSIBLE_STATES])
def test_a_state_that_cannot_be_is_not_believed(_: str, wrong: dict[str, Any]) -> None:
    stage = stage_with(1, 2, 3, p0=(1, 2))
    move_to(stage, 2, 1)
    sound = stage.tree.read(GetData(STATE)).data or b""
    believed = stage.state.leadership(TP)
    written = json.dumps({**json.loads(sound), **wrong}).encode()
    stage.others_write(SetData(STATE, written))
    data = encode_partitions([TP])
    stage.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))
    stage.run()
    stage.broker_dies(2)
    stage.run()
    assert stage.state.leadership(TP) == believed and stage.tree.read(GetData(STATE)).data == written
    stage.others_write(SetData(STATE, sound))
    waiting_ends(stage)
    leader, _epoch, isr = stage.leader()
    assert leader == 1 and 3 not in isr and isr


def test_nobody_is_in_the_isr_who_is_no_replica_whenever_a_controller_dies() -> None:
    """A move replaces another one that had brought 3 into the ISR."""

    def make() -> Stage:
        stage = stage_with(1, 2, 3, 4, p0=(1, 2))
        move_to(stage, 3, 4)
        stage.leader_writes(TP, (1, 2, 3))
        stage.run()
        return stage

    def check(stage: Stage) -> None:
        assert set(stage.leader()[2]) <= set(stage.assigned().replicas)
        assert stage.leader()[0] in stage.leader()[2]

    assert faults_everywhere(make, lambda stage: move_to(stage, 4, 2, reply_to=2), check, Fault.CRASH) > 5


@pytest.mark.parametrize("kinds", [(SetData,), (GetData,), (SetData, GetData)], ids=["write", "read", "both"])
def test_a_state_that_cannot_be_changed_does_not_hold_up_the_deletion(kinds: tuple[type, ...]) -> None:
    stage = stage_with(1, 2, p0=(1, 2))
    stage.tree.refusal = lambda op: ZkCode.OTHER if isinstance(op, kinds) and op.path == STATE else None
    stage.make("/admin/delete_topics/t")
    stage.run()
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_registration_that_becomes_garbage_kills_nobody() -> None:
    stage = stage_with(1, 2, 3, p0=(1, 2))
    stage.others_write(SetData("/brokers/ids/1", b"garbage"))
    stage.broker_dies(3)
    stage.run()
    assert set(stage.state.live_brokers) == {1, 2} and stage.leader() == (1, 0, (1, 2))


# --- the deletion of a topic that moves


def test_a_topic_whose_move_could_not_begin_is_deleted() -> None:
    """The replica that was to be added never existed, so nobody can delete it."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    stage.others_write(SetData(STATE, b"garbage"))
    move_to(stage, 3)
    assert stage.assigned().adding_replicas == (3,), "it is tried again"
    stage.make("/admin/delete_topics/t")
    stage.run()
    waiting_ends(stage)
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")
    waiting_ends(stage)
    assert not stage.state.partitions_being_reassigned and stage.timers == []


@pytest.mark.parametrize("path", [STATE, "/brokers/topics/t"])
def test_a_move_that_is_tried_again_does_not_hold_up_a_deletion_that_has_started(path: str) -> None:
    """What both want to write is refused for a while: from the beginning, or after the targets have caught up."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    row = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3]}]}

    def refuse() -> None:
        stage.tree.refusal = lambda op: (
            ZkCode.NO_AUTH if isinstance(op, SetData | Create | Delete) and op.path == path else None
        )

    if path == STATE:
        refuse()
    stage.make("/admin/reassign_partitions", json.dumps(row).encode())
    stage.run()
    if path != STATE:
        stage.leader_writes(TP, (1, 2, 3))
        refuse()
        stage.run()
    stage.make("/admin/delete_topics/t")
    stage.run()
    waiting_ends(stage)
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    waiting_ends(stage)
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")
    assert not stage.exists("/admin/reassign_partitions") and stage.timers == []


def test_what_is_asked_for_a_deleted_topic_leaves_the_reassignment_znode() -> None:
    """Only the znode's creation is noticed: one that stays keeps every later wish from being heard."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    stage.topic("u", p0=(1, 2))
    stage.run()
    rows = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 4]}]}
    stage.make("/admin/reassign_partitions", json.dumps(rows).encode())
    stage.run()
    stage.make("/admin/delete_topics/t")
    stage.run()
    waiting_ends(stage)
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/reassign_partitions")
    rows["partitions"] = [{"topic": "u", "partition": 0, "replicas": [3, 4]}]
    stage.make("/admin/reassign_partitions", json.dumps(rows).encode())
    stage.run()
    assert stage.assigned(TopicPartition("u", 0)).adding_replicas == (3, 4)


# --- moves of a topic whose znode is refused for a while


def test_a_move_that_could_not_be_written_down_ends_with_its_targets_alone_in_the_isr() -> None:
    """Its old replicas were stopped once; then they heard of the partition again, and came back into the ISR."""
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path.endswith("/t") else None
    stage.leader_writes(TP, (1, 2, 3, 4))
    stage.run()
    assert stage.assigned().is_being_reassigned and set(stage.leader()[2]) == {3, 4}
    stage.leader_writes(TP, (3, 4, 1, 2))
    stage.run()
    waiting_ends(stage)
    stage.leader_writes(TP, (3, 4, 1, 2))
    stage.tree.refusal = lambda _: None
    stage.take_sent()
    waiting_ends(stage)
    assert stage.assigned().replicas == (3, 4) and not stage.assigned().is_being_reassigned
    assert set(stage.leader()[2]) == {3, 4}
    assert {to for to, _, delete in stops_in(stage.take_sent()) if delete} == {1, 2}


def test_a_move_of_a_topic_that_could_not_be_read_at_a_failover_goes_on() -> None:
    stage = stage_with(1, 2, 3, 4, p0=(1, 2))
    move_to(stage, 3, 4)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", "").endswith("/brokers/topics/t") else None
    stage.new_controller()
    stage.start()
    waiting_ends(stage)
    stage.tree.refusal = lambda _: None
    waiting_ends(stage)
    assert TP in stage.state.partitions_being_reassigned
    stage.leader_writes(TP, (1, 2, 3, 4))
    stage.run()
    assert stage.assigned().replicas == (3, 4) and not stage.assigned().is_being_reassigned
    assert set(stage.leader()[2]) == {3, 4}


def stage_without_a_readable_topic(dead: int | None = None) -> Stage:
    """Nothing can be read of `t`, of whose replicas this controller has never heard; it has just been deleted. One
    broker may have died before, which alone had its second partition."""
    stage = stage_with(1, 2, 3, p0=(1, 2), p1=(2, 3) if dead is None else (dead,))
    stage.others_write(SetData("/brokers/topics/t", b""))
    if dead is not None:
        stage.broker_dies(dead)
    stage.run()
    stage.new_controller()
    stage.start()
    stage.take_sent()
    stage.others_write(Create("/admin/delete_topics/t"))
    stage.run()
    return stage


def test_a_topic_of_which_nothing_can_be_read_is_deleted_on_each_broker() -> None:
    """A log that stayed would refuse the epochs of a later topic of that name."""
    stage = stage_without_a_readable_topic()
    stops = {
        (request.to, entry.topic_partition)
        for request in stage.take_sent()
        if isinstance(request, StopReplicaRequest)
        for entry in request.partition_states
        if entry.delete_partition
    }
    assert stops == {(broker, TopicPartition("t", n)) for broker in (1, 2, 3) for n in (0, 1)}
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")
    stage.topic("t", p0=(3,))
    stage.run()
    assert stage.leader()[0] == 3


@pytest.mark.parametrize("name", ["99999999999", "00", "\u0663", "x"])
def test_what_is_no_partition_of_such_a_topic_spoils_no_request(name: str) -> None:
    """A number that no request can carry would cost whatever else that request says: the topic would stay for ever."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    stage.make(f"/brokers/topics/t/partitions/{name}/state", b"{}")
    stage.others_write(SetData("/brokers/topics/t", b""))
    stage.new_controller()
    stage.start()
    stage.take_sent()
    stage.others_write(Create("/admin/delete_topics/t"))
    stage.run()
    stops = [request for request in stage.take_sent() if isinstance(request, StopReplicaRequest)]
    assert {entry.topic_partition for request in stops for entry in request.partition_states} == {TP}
    assert not stage.exists("/brokers/topics/t") and not stage.exists("/admin/delete_topics/t")


def test_a_topic_that_waits_to_be_deleted_is_left_alone_when_its_leader_dies() -> None:
    """Its partitions are gone for the controller, whose tables know no way back."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    stage.broker_dies(2)
    stage.run()
    stage.others_write(Create("/admin/delete_topics/t"))
    stage.run()
    stage.broker_dies(1)
    stage.run()
    assert stage.exists("/brokers/topics/t") and stage.logged(ev.TRANSITION_REFUSED) == []


def test_brokers_of_a_topic_that_can_be_read_again_are_not_told_that_they_are_new() -> None:
    """They have its logs, perhaps in a dir that has failed: who is new would make an empty one beside it."""
    stage = stage_with(1, 2, p0=(1, 2))
    topic = GetData("/brokers/topics/t", watch=True)
    stage.tree.refusal = lambda op: ZkCode.NO_AUTH if op == topic else None
    stage.new_controller()
    stage.start()
    assert stage.state.serving and stage.state.leadership(TP) is None
    stage.tree.refusal = lambda _: None
    stage.take_sent()
    waiting_ends(stage)
    told = leaders_in(stage.take_sent())
    assert {to for to, _, _ in told} == {1, 2} and not any(is_new for _, _, is_new in told)


def test_brokers_forget_a_topic_of_which_nothing_can_be_read_when_it_is_deleted() -> None:
    """Else clients find it with whoever knew of it, for as long as that one runs."""
    stage = stage_without_a_readable_topic()
    forgotten = {
        (request.to, entry.topic_partition)
        for request in stage.take_sent()
        if isinstance(request, UpdateMetadataRequest)
        for entry in request.partition_states
        if entry.being_deleted
    }
    assert forgotten == {(broker, TopicPartition("t", n)) for broker in (1, 2, 3) for n in (0, 1)}


def test_brokers_forget_also_those_of_its_partitions_of_which_only_the_dead_are_in_sync() -> None:
    """1 and 2 knew of a partition that 3 alone had: they live, and are none of those in sync."""
    stage = stage_without_a_readable_topic(dead=3)
    forgotten = {
        (request.to, entry.topic_partition.partition)
        for request in stage.take_sent()
        if isinstance(request, UpdateMetadataRequest)
        for entry in request.partition_states
        if entry.being_deleted
    }
    assert forgotten == {(broker, n) for broker in (1, 2) for n in (0, 1)}


def test_what_a_dead_broker_said_of_its_directories_does_not_hold_for_its_next_life() -> None:
    """Its answer is processed after its death; it alone is in sync."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.leader_writes(TP, (1,))
    stage.broker_dies(1)
    stage.run()
    stage.run(events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}))
    stage.broker_starts(1)
    stage.run()
    assert stage.leader()[0] == 1


@pytest.mark.parametrize(("is_old", "leader"), [(True, 1), (False, 2)], ids=["before it died", "since it is back"])
def test_what_a_broker_said_of_its_directories_before_it_came_back_does_not_hold(is_old: bool, leader: int) -> None:
    """Its answer is processed when it is there again, as another registration."""
    stage = stage_with(1, 2, p0=(1, 2))
    before = stage.state.live_brokers[BrokerId(1)].broker_epoch
    stage.leader_writes(TP, (1,))
    stage.broker_dies(1)
    stage.broker_starts(1)
    stage.run()
    stage.leader_writes(TP, (1, 2))
    stage.run()
    now = stage.state.live_brokers[BrokerId(1)].broker_epoch
    assert before != now and stage.leader()[0] == 1
    failed = {TP: ErrorCode.KAFKA_STORAGE_ERROR}
    asked = before if is_old else now
    stage.run(events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, failed, asked))
    assert stage.leader()[0] == leader
    stage.run(events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.STALE_BROKER_EPOCH, {}, asked))
    assert [row["error"] for row in stage.logged(ev.REQUEST_REFUSED)] == ["STALE_BROKER_EPOCH"], "a refusal is told"


def test_who_is_in_a_good_directory_again_leads_again() -> None:
    """The answer to an older request says that it failed, the next one that it did not."""
    stage = stage_with(1, 2, p0=(1,))
    for error, leader in ((ErrorCode.KAFKA_STORAGE_ERROR, None), (ErrorCode.NONE, 1)):
        stage.run(events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, {TP: error}))
        assert stage.leader()[::2] == (leader, (1,))


def test_who_was_moved_away_says_nothing_of_its_directory_any_more() -> None:
    """Its answer to the first request of a move comes when the move has ended without it."""
    stage = stage_with(1, 2, 3, p0=(1, 2))
    move_to(stage, 1, 3)
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert stage.assigned().replicas == (1, 3)
    for late in (BrokerId(2), BrokerId(3)):
        stage.run(events.LeaderAndIsrResponseReceived(late, ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}))
    assert not stage.logged(ev.TRANSITION_REFUSED) and stage.leader()[2] == (1,)


def test_who_is_being_deleted_says_nothing_of_its_directory_any_more() -> None:
    """Its answer to what it was told before comes when it has been told to delete: what it says of that counts."""
    stage = stage_with(1, 2, p0=(1, 2))
    stage.silent.add(2)
    stage.make("/admin/delete_topics/t")
    stage.run()
    stage.run(events.LeaderAndIsrResponseReceived(BrokerId(2), ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}))
    stage.release(2)
    assert not stage.logged(ev.TRANSITION_REFUSED) and not stage.logged(ev.TOPIC_DELETION_WAITED)
    assert not stage.exists("/brokers/topics/t")

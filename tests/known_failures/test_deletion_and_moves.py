"""D1 to D5, R1 to R5, X2, X3: topics go and replicas move, whatever happens meanwhile."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Read, Write, drive_now
from controller.core.request_batch import RequestBatch, send, stop_epoch
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Delete, GetData
from controller.wire.znodes import ReassignPartitionsZNode
from tests.worlds.stage import TP, Cut, Fault, Stage, faults_everywhere, leaders_in, metadata_in, move_to, stops_in

LEFT = ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")


def four_brokers(**partitions: tuple[int, ...]) -> Stage:
    stage = Stage()
    stage.broker_starts(1, 2, 3, 4)
    stage.topic("t", **(partitions or {"p0": (1, 2)}))
    stage.start()
    stage.take_sent()
    return stage


def mark(stage: Stage, topic: str = "t") -> None:
    if stage.exists(f"/brokers/topics/{topic}"):
        stage.make(f"/admin/delete_topics/{topic}")
    stage.run()


# --- deletion


@pytest.mark.known_failure("D1")
def test_after_a_failover_a_deletion_waits_for_the_move() -> None:
    """Whatever fails: nothing is deleted in the middle of the move, and the deletion goes on by itself after it."""

    def make() -> Stage:
        stage = four_brokers()
        move_to(stage, 3, 4)
        stage.end_session(stage.session)
        stage.make("/admin/delete_topics/t")
        stage.new_controller()
        stage.take_sent()
        return stage

    def check(stage: Stage) -> None:
        if stage.exists("/brokers/topics/t"):
            assert stage.assigned().is_being_reassigned
            assert [stop for stop in stops_in(stage.sent) if stop[2]] == []
            stage.leader_writes(TP, (1, 2, 3, 4))
            stage.run()
        assert [path for path in LEFT if stage.exists(path)] == []
        assert {to for to, _, delete in stops_in(stage.sent) if delete} == {1, 2, 3, 4}

    assert faults_everywhere(make, Stage.start, check) > 30


@pytest.mark.known_failure("D1")
def test_a_deletion_in_the_middle_of_a_move_starts_at_once_as_in_kafka() -> None:
    """The kept oddity "deletion does not wait": recorded from Kafka 3.9, so it must not change by accident."""
    stage = four_brokers()
    move_to(stage, 3, 4)
    mark(stage)
    assert [path for path in LEFT if stage.exists(path)] == []
    assert {to for to, _, delete in stops_in(stage.sent) if delete} == {1, 2, 3, 4}


@pytest.mark.known_failure("D3")
@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH], ids=lambda e: e.name)
def test_only_a_deletion_that_succeeded_counts(error: ErrorCode) -> None:
    stage = four_brokers()
    stage.silent |= {1, 2}
    mark(stage)
    stage.run(events.TopicDeletionStopReplicaResponseReceived(BrokerId(2), ErrorCode.NONE, {TP: ErrorCode.NONE}))
    assert stage.exists("/brokers/topics/t"), "1 has not answered"
    stage.run(events.TopicDeletionStopReplicaResponseReceived(BrokerId(1), ErrorCode.NONE, {TP: error}))
    assert stage.exists("/brokers/topics/t") and stage.exists("/admin/delete_topics/t")
    assert stage.state.gauges()["TopicsIneligibleToDeleteCount"] == 1
    stage.silent.clear()
    stage.broker_dies(1)
    stage.run()
    stage.broker_starts(1)
    stage.run()
    assert [path for path in LEFT if stage.exists(path)] == [], "it is tried again when the broker is back"


@pytest.mark.known_failure("D3")
def test_who_could_not_delete_counts_as_such_until_it_is_asked_again() -> None:
    """Kafka's `ReplicasIneligibleToDeleteCount`: what is left of one is tried again."""
    stage = four_brokers()
    stage.broker_dies(1)
    stage.run()
    stage.silent |= {2}
    mark(stage)
    assert stage.state.gauges()["ReplicasIneligibleToDeleteCount"] == 1
    stage.run(events.TopicDeletionStopReplicaResponseReceived(BrokerId(2), ErrorCode.NONE, {TP: ErrorCode.NONE}))
    assert stage.state.gauges()["ReplicasIneligibleToDeleteCount"] == 0
    assert stage.state.gauges()["TopicsIneligibleToDeleteCount"] == 1


@pytest.mark.known_failure("D3")
def test_a_deletion_ends_whatever_fails() -> None:
    def check(stage: Stage) -> None:
        assert [path for path in LEFT if stage.exists(path)] == []
        assert stage.state.topics == set()
        assert {to for to, _, delete in stops_in(stage.sent) if delete} == {1, 2}

    assert faults_everywhere(four_brokers, mark, check) > 20


@pytest.mark.known_failure("D4")
def test_a_stop_carries_the_leader_epoch() -> None:
    """Of the decision before it for a move, -2 for a deletion, -1 where nothing is known; never above the next one."""
    stage = four_brokers(p0=(1, 2, 3))
    move_to(stage, 1, 2)
    off = stops_in(stage.take_sent())
    epochs = [epoch for to, epoch, _ in off if to == 3]
    assert len(epochs) == 2 and epochs == sorted(epochs) and epochs[-1] == stage.leader()[1]
    move_to(stage, 1, 2, 3)
    back = [state.leader_epoch for to, state, _ in leaders_in(stage.take_sent()) if to == 3]
    assert min(back) > max(epochs), "a late stop is refused by the broker"
    mark(stage)
    assert {epoch for _, epoch, _ in stops_in(stage.take_sent())} == {-2}
    stage.topic("u", p0=(9,))
    stage.run()
    batch = RequestBatch()
    never_led = TopicPartition("u", 0)
    batch.add_stop_replica(BrokerId(1), never_led, stop_epoch(stage.state, never_led), delete=False)
    drive_now(send(stage.state, batch), stage.perform)
    assert stops_in(stage.take_sent(), never_led) == [(1, -1, False)]


@pytest.mark.known_failure("D5")
def test_gauges_equal_a_recount_while_topics_come_and_go() -> None:
    """The stage compares them after every event. Here with deletions that wait, and with every fault."""

    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        for topic in ("a", "b", "t"):
            stage.topic(topic, p0=(1, 2), p1=(2, 1))
        stage.start()
        stage.broker_dies(1)
        stage.run()
        return stage

    def act(stage: Stage) -> None:
        for topic in ("a", "b"):
            mark(stage, topic)
        stage.broker_starts(1)
        stage.run()

    def check(stage: Stage) -> None:
        act_again = 1 not in stage.broker_sessions
        for topic in ("a", "b"):
            mark(stage, topic)
        if act_again:
            stage.broker_starts(1)
            stage.run()
        gauges = stage.state.gauges()
        assert gauges["GlobalTopicCount"] == 1 and gauges["TopicsToDeleteCount"] == 0
        assert gauges["PreferredReplicaImbalanceCount"] == 1 and gauges["OfflinePartitionsCount"] == 0

    assert faults_everywhere(make, act, check) > 40


@pytest.mark.known_failure("D2")
def test_disabled_deletion_leaves_the_topic_whatever_fails() -> None:
    def make() -> Stage:
        stage = Stage(delete_topic_enable=False)
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1, 2))
        stage.start()
        return stage

    def act(stage: Stage) -> None:
        stage.make("/admin/delete_topics/t")
        stage.run()

    def check(stage: Stage) -> None:
        assert not stage.exists("/admin/delete_topics/t")
        assert stage.leader() == (1, 0, (1, 2))
        assert not any(e.being_deleted for r in metadata_in(stage.sent) for e in r.partition_states)

    assert faults_everywhere(make, act, check) > 5


@pytest.mark.known_failure("X2")
def test_a_deletion_that_waits_names_the_brokers_it_waits_for() -> None:
    stage = four_brokers(p0=(1, 2), p1=(3, 4))
    stage.broker_dies(2, 4)
    stage.run()
    mark(stage)
    waiting = stage.logged(ev.TOPIC_DELETION_WAITED)
    assert waiting[-1]["topic"] == "t" and waiting[-1]["brokers"] == [2, 4] and waiting[-1]["reason"]
    stage.broker_starts(2)
    stage.run()
    assert stage.logged(ev.TOPIC_DELETION_WAITED)[-1]["brokers"] == [4]
    assert stage.exists("/brokers/topics/t"), "it waits without limit, as in Kafka"
    stage.broker_starts(4)
    stage.run()
    assert [path for path in LEFT if stage.exists(path)] == []


@pytest.mark.known_failure("X3")
def test_the_znodes_of_a_topic_go_in_batches() -> None:
    """1,000 partitions in a handful of steps; Kafka takes some 4,000 round trips on its event thread."""
    steps: dict[int, list[int]] = {}
    for count in (10, 1_000):
        stage = Stage()
        stage.broker_starts(1)
        stage.topic("t", **{f"p{n}": (1,) for n in range(count)})
        stage.start()
        deletes: list[int] = []
        perform = stage.perform

        def counting(effect: Any, perform: Any = perform, deletes: list[int] = deletes) -> Any:
            if isinstance(effect, Write) and all(isinstance(op, Delete) for op in effect.ops):
                deletes.append(len(effect.ops))
            return perform(effect)

        stage.perform = counting
        mark(stage)
        steps[count] = deletes
        assert [path for path in LEFT if stage.exists(path)] == []
    assert len(steps[1_000]) == len(steps[10]) <= 6
    assert sum(steps[1_000]) > 2_000, "states and partitions, all at once"


# --- moves


@pytest.mark.known_failure("R1")
def test_leaders_learn_the_new_replicas_before_the_isr_loses_the_old_ones() -> None:
    stage = four_brokers(p0=(1, 2))
    move_to(stage, 1, 3)
    stage.take_lines()
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert stage.leader()[2] == (1, 3) and stage.assigned().replicas == (1, 3)
    lines = [line for line in stage.take_lines() if line.startswith(("zk   t-0", "send LeaderAndIsr"))]
    assert lines == [
        "zk   t-0 leader=1 leader_epoch=2 isr=1,2,3 if-partition_epoch=2",
        "send LeaderAndIsr to=1,3 t-0 leader=1 leader_epoch=2 isr=1,2,3 replicas=1,3",
        "zk   t-0 leader=1 leader_epoch=3 isr=1,3 if-partition_epoch=3",
        "send LeaderAndIsr to=1,3 t-0 leader=1 leader_epoch=3 isr=1,3 replicas=1,3",
    ]


@pytest.mark.known_failure("R1")
def test_the_removal_reads_what_is_stored_and_not_what_is_believed() -> None:
    """The leader took the old replica back meanwhile: the controller believes that it is out of the ISR."""
    stage = four_brokers(p0=(1, 2))
    stage.leader_writes(TP, (1,))
    stage.run(events.IsrChangeNotification())
    stage.state.lead(TP, stage.leadership(TP))
    perform, raced = stage.perform, False

    def racing(effect: Any) -> Any:
        nonlocal raced
        answer = perform(effect)
        if type(effect).__name__ == "Send" and not raced:
            for request in effect.requests:
                if isinstance(request, LeaderAndIsrRequest) and request.partition_states[0].assignment.replicas == (1,):
                    raced = True
                    stage.leader_writes(TP, (1, 2))
        return answer

    stage.perform = racing
    move_to(stage, 1)
    assert raced and stage.leader()[2] == (1,)


@pytest.mark.known_failure("R1", "R2")
def test_a_move_ends_within_its_replicas_whatever_fails() -> None:
    def act(stage: Stage) -> None:
        move_to(stage, 3, 4)
        if stage.assigned().is_being_reassigned:
            stage.leader_writes(TP, (1, 2, 3, 4))
        stage.run()

    def check(stage: Stage) -> None:
        if stage.assigned().replicas != (3, 4):
            if not stage.assigned().is_being_reassigned:
                move_to(stage, 3, 4, reply_to=9)
            if stage.assigned().is_being_reassigned and stage.leader()[2] != (1, 2, 3, 4):
                stage.leader_writes(TP, (1, 2, 3, 4))
            stage.run()
        assert stage.assigned().replicas == (3, 4) and not stage.assigned().is_being_reassigned
        assert stage.leader()[0] == 3 and sorted(stage.leader()[2]) == [3, 4]
        assert {to for to, _, delete in stops_in(stage.sent) if delete} == {1, 2}

    assert faults_everywhere(four_brokers, act, check) > 40


@pytest.mark.known_failure("R2")
def test_a_target_that_is_down_at_failover_does_not_end_the_move() -> None:
    stage = four_brokers(p0=(1, 2))
    move_to(stage, 2, 3)
    stage.broker_dies(3)
    stage.new_controller()
    stage.start()
    node = stage.assigned()
    assert (node.adding_replicas, node.removing_replicas) == ((3,), (1,))
    stage.broker_starts(3)
    stage.run()
    assert stage.assigned().is_being_reassigned
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert stage.assigned().replicas == (2, 3) and stage.leader()[0] == 2


@pytest.mark.known_failure("R3")
def test_the_znode_holds_what_is_neither_done_nor_refused_at_every_step() -> None:
    """One entry is at its target, one is of an unknown topic, two wait for a broker that is down."""
    text = ",".join(
        f'{{"topic":"{topic}","partition":{partition},"replicas":{replicas}}}'
        for topic, partition, replicas in (("t", 0, [1]), ("t", 1, [2, 9]), ("t", 2, [9]), ("none", 0, [1]))
    )

    def make() -> Stage:
        stage = Stage()
        stage.broker_starts(1, 2)
        stage.topic("t", p0=(1,), p1=(1, 2), p2=(2,))
        stage.make("/admin/reassign_partitions", f'{{"version":1,"partitions":[{text}]}}'.encode())
        return stage

    def entries(stage: Stage) -> set[tuple[str, int]]:
        found = stage.tree.read(GetData("/admin/reassign_partitions"))
        return {(tp.topic, tp.partition) for tp in ReassignPartitionsZNode.decode(found.data)} if found.ok else set()

    def act(stage: Stage) -> None:
        perform = stage.perform

        def watching(effect: Any) -> Any:
            answer = perform(effect)
            if isinstance(effect, Read | Write):
                assert {("t", 1), ("t", 2)} <= entries(stage), "an entry that is not done was lost"
            return answer

        stage.perform = watching
        stage.start()

    def check(stage: Stage) -> None:
        assert entries(stage) == {("t", 1), ("t", 2)}

    assert faults_everywhere(make, act, check) > 40


@pytest.mark.known_failure("R5")
def test_adding_replicas_are_announced_as_new_each_time() -> None:
    """Also when phase A runs again because the target came back, or the controller changed."""
    stage = four_brokers(p0=(1, 2))
    move_to(stage, 1, 3)
    first = leaders_in(stage.take_sent())
    stage.broker_dies(3)
    stage.run()
    stage.broker_starts(3)
    stage.take_sent()
    stage.run()
    again = [entry for entry in leaders_in(stage.take_sent()) if entry[1].leader_epoch == stage.leader()[1]]
    stage.new_controller()
    stage.start()
    successor = [entry for entry in leaders_in(stage.take_sent()) if entry[1].leader_epoch == stage.leader()[1]]
    for told in (first, again, successor):
        assert {is_new for to, _, is_new in told if to == 3} == {True}
        assert {is_new for to, _, is_new in told if to in (1, 2)} == {False}


@pytest.mark.known_failure("R4")
def test_a_move_that_only_adds_or_only_removes_is_resumed_as_it_is() -> None:
    for node, target, deleted in (
        (
            b'{"version":3,"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},"removing_replicas":{}}',
            (1, 2, 3),
            set(),
        ),
        (b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{"0":[2]}}', (1,), {2}),
    ):
        stage = four_brokers(p0=(1, 2))
        stage.new_controller()
        stage.make("/brokers/topics/t", node)
        if 3 in target:
            stage.leader_writes(TP, (1, 2, 3))
        stage.take_sent()
        stage.start()
        assert stage.assigned().replicas == target and not stage.assigned().is_being_reassigned
        assert {
            r.to
            for r in stage.sent
            if isinstance(r, StopReplicaRequest)
            for e in r.partition_states
            if e.delete_partition
        } == deleted


@pytest.mark.known_failure("R2")
def test_two_faults_in_a_row_are_no_worse() -> None:
    """A lost session in the failover that follows a crash in the move."""
    for first in range(1, 30, 4):
        for second in range(1, 50, 7):
            stage = four_brokers()
            stage.strike(Fault.CRASH, first)
            with suppress(Cut):
                move_to(stage, 3, 4)
            stage.new_controller()
            stage.strike(Fault.SESSION_LOSS, second)
            stage.start()
            stage.fault = None
            if not stage.assigned().is_being_reassigned:
                move_to(stage, 3, 4)
            stage.leader_writes(TP, (1, 2, 3, 4))
            stage.run()
            assert stage.assigned().replicas == (3, 4) and stage.leader()[0] == 3

"""E4, F2, F3, S2, S4, S6, S7, D4, R4, R5, I1, X2: what must hold of each, with a crash, a lost session, a lost reply
and a rival at every I/O step. Rows with a longer story of their own have their faults beside it, in the other files.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from controller.core import events
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrRequest, UpdateMetadataRequest
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import GetData, ZkCode, ZkReadOp
from tests.worlds.stage import TP, Fault, Stage, faults_everywhere, leaders_in, metadata_in, move_to, stops_in

U = TopicPartition("u", 0)
ORDERS = tuple(itertools.permutations((1, 2, 3)))


def brokers(*ids: int, **settings: Any) -> Stage:
    stage = Stage(**settings)
    stage.broker_starts(*ids)
    return stage


def started(*ids: int, replicas: tuple[int, ...] = (1, 2), **settings: Any) -> Stage:
    stage = brokers(*ids, **settings)
    stage.topic("t", p0=replicas)
    stage.start()
    return stage


def starts(stage: Stage, *ids: int) -> None:
    """Those of them that do not live yet."""
    if missing := [broker for broker in ids if broker not in stage.broker_sessions]:
        stage.broker_starts(*missing)
    stage.run()


def terms(sent: Sequence[Any]) -> dict[tuple[int, int], list[Any]]:
    """What each broker was sent in each term, in order."""
    found: dict[tuple[int, int], list[Any]] = {}
    for request in sent:
        found.setdefault((request.controller_epoch, request.to), []).append(request)
    return found


@pytest.mark.known_failure("E4")
def test_a_failover_in_which_anything_cannot_be_read_leaves_a_term_that_works() -> None:
    """Each znode in turn is refused from the moment in which the failover first reads it, and later allowed again."""

    def refused_from(nth: int) -> tuple[Stage, str | None]:
        stage = started(1, 2)
        stage.end_session(stage.session)
        stage.new_controller()
        asked: list[str] = []

        def refuse(op: Any) -> ZkCode | None:
            path = getattr(op, "path", None)
            if stage.exists(str(path)) and isinstance(op, ZkReadOp) and path not in asked:
                asked.append(path)
            return ZkCode.NO_AUTH if len(asked) >= nth and path == asked[nth - 1] else None

        stage.tree.refusal = refuse
        stage.start()
        return stage, asked[nth - 1] if len(asked) >= nth else None

    for at_step in range(1, 100):
        stage, path = refused_from(at_step)
        if path is None:
            break
        assert stage.state.serving or (stage.channels == set() and stage.timers), path
        stage.tree.refusal = lambda _: None
        for _ in range(3):
            stage.now_ms += 10_000
            waiting, stage.timers = stage.timers, []
            stage.run(*(timer.event for timer in waiting))
        stage.topic("u", p0=(2, 1))
        stage.run(events.TopicChange())
        assert stage.leadership(U).leader == 2 and stage.leader()[0] in (1, 2), path
        assert set(stage.state.live_brokers) == {1, 2}, path
    assert at_step > 8


@pytest.mark.known_failure("F2")
def test_a_second_term_is_like_the_first() -> None:
    def check(stage: Stage) -> None:
        starts(stage, 3)
        stage.topic("u", p0=(3, 1))
        stage.run()
        assert stage.leadership(U).leader == 3
        last = {request.to: {b.broker_id for b in request.live_brokers} for request in metadata_in(stage.sent)}
        assert all(last[broker] >= {1, 2, 3} for broker in (1, 2, 3))
        assert {to for to, _, _ in leaders_in(stage.sent, U)} == {1, 3}

    assert faults_everywhere(lambda: started(1, 2), Stage.expire, check) > 40


@pytest.mark.known_failure("F3")
@pytest.mark.parametrize("when", ["at failover", "at a join"])
def test_live_brokers_come_before_the_first_leader_and_isr_of_each_term(when: str) -> None:
    def make() -> Stage:
        stage = brokers(1, 2)
        stage.topic("t", p0=(1, 3), p1=(3, 1), p2=(3,))
        if when == "at a join":
            stage.start()
        return stage

    def check(stage: Stage) -> None:
        if when == "at a join":
            starts(stage, 3)
        for (_, to), requests in terms(stage.sent).items():
            first = next((n for n, r in enumerate(requests) if isinstance(r, LeaderAndIsrRequest)), None)
            if first is not None:
                before = [r for r in requests[:first] if isinstance(r, UpdateMetadataRequest)]
                assert before and to in {broker.broker_id for broker in before[0].live_brokers}
        assert stage.leader()[0] == 1 and (when == "at failover" or stage.leader(TopicPartition("t", 2))[0] == 3)

    act = Stage.start if when == "at failover" else lambda stage: starts(stage, 3)
    assert faults_everywhere(make, act, check) > 10


@pytest.mark.known_failure("S2")
@pytest.mark.parametrize("how", ["dies", "shuts down"])
def test_the_order_of_the_replicas_decides(how: str) -> None:
    def make() -> Stage:
        stage = brokers(1, 2, 3)
        stage.topic("t", **{f"p{n}": order for n, order in enumerate(ORDERS)})
        stage.start()
        for n, order in enumerate(ORDERS):
            tp = TopicPartition("t", n)
            stage.leader_writes(tp, (order[0], *(r for r in (3, 2, 1) if r != order[0])))
        stage.run()
        return stage

    def act(stage: Stage) -> None:
        if how == "dies" and 1 in stage.broker_sessions:
            stage.broker_dies(1)
        elif how == "shuts down":
            stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))
        stage.run()

    def check(stage: Stage) -> None:
        act(stage)
        for n, order in enumerate(ORDERS):
            assert stage.leader(TopicPartition("t", n))[0] == next(r for r in order if r != 1)

    assert faults_everywhere(make, act, check) > 15


@pytest.mark.known_failure("S4")
def test_each_of_many_new_brokers_is_heard_of_and_hears_all() -> None:
    new = tuple(range(2, 12))

    def check(stage: Stage) -> None:
        starts(stage, *new)
        last = {request.to: {b.broker_id for b in request.live_brokers} for request in metadata_in(stage.sent)}
        assert all(last[broker] >= {1, *new} for broker in (1, *new))
        assert set(stage.state.live_brokers) == {1, *new}
        whole = [epoch_to for epoch_to, requests in terms(stage.sent).items() if len(told_all(requests)) > 2]
        assert whole == [], "told everything again and again"

    def told_all(requests: Sequence[Any]) -> list[Any]:
        return [r for r in requests if isinstance(r, UpdateMetadataRequest) and len(r.partition_states) == 20]

    def make() -> Stage:
        stage = brokers(1)
        stage.topic("t", **{f"p{n}": (1,) for n in range(20)})
        stage.start()
        stage.take_sent()
        return stage

    assert faults_everywhere(make, lambda stage: starts(stage, *new), check) > 5


@pytest.mark.known_failure("S6")
def test_the_balance_never_elects_who_is_catching_up() -> None:
    def make() -> Stage:
        stage = started(1, 2, auto_leader_rebalance_enable=True)
        stage.broker_dies(1)
        stage.run()
        stage.take_sent()
        return stage

    def act(stage: Stage) -> None:
        starts(stage, 1)
        stage.run(events.AutoPreferredReplicaLeaderElection())

    def check(stage: Stage) -> None:
        act(stage)
        assert stage.leader() == (2, 1, (2,))
        assert {state.leader for _, state, _ in leaders_in(stage.sent)} <= {2}

    assert faults_everywhere(make, act, check) > 5


@pytest.mark.known_failure("S7")
def test_replicas_keep_their_order_in_every_request() -> None:
    order = (3, 1, 2)

    def act(stage: Stage) -> None:
        if not stage.exists("/brokers/topics/t"):
            stage.make("/brokers/topics/t", b'{"partitions":{"0":[3,1,2]},"version":1}')
        stage.run()

    def make() -> Stage:
        stage = brokers(1, 2, 3)
        stage.start()
        return stage

    def check(stage: Stage) -> None:
        act(stage)
        entries = [e for r in stage.sent if not isinstance(r, UpdateMetadataRequest) for e in r.partition_states]
        assert {entry.assignment.replicas for entry in entries} == {order}
        assert {e.replicas for r in metadata_in(stage.sent) for e in r.partition_states} == {order}
        assert stage.leader() == (3, 0, order)

    assert faults_everywhere(make, act, check) > 10


@pytest.mark.known_failure("D4")
def test_a_stop_never_names_a_later_epoch_than_the_next_appointment() -> None:
    """A move off 3 and back to 3: whichever arrives last, the broker knows which of the two was meant last."""

    def act(stage: Stage) -> None:
        move_to(stage, 1, 2)
        move_to(stage, 1, 2, 3, reply_to=2)

    def check(stage: Stage) -> None:
        move_to(stage, 1, 2, 3, reply_to=9)
        sent = stage.sent
        stops = [(n, epoch) for n, r in enumerate(sent) for to, epoch, _ in stops_in([r]) if to == 3]
        appointed = [(n, s.leader_epoch, new) for n, r in enumerate(sent) for to, s, new in leaders_in([r]) if to == 3]
        assert all(epoch >= 0 for _, epoch in stops), "a move knows the epoch"
        for then, after, is_new in appointed:  # a successor repeats what it finds, and then stops 3 again
            assert all(before < after + (not is_new) for at, before in stops if at < then)
        if stops:  # else the first move was refused: its controller had lost the office
            assert stops[-1][0] < appointed[-1][0] and appointed[-1][2]

    assert faults_everywhere(lambda: started(1, 2, 3, replicas=(1, 2, 3)), act, check) > 30


@pytest.mark.known_failure("R4")
def test_what_is_added_and_what_is_removed_are_told_apart_by_each_successor() -> None:
    def make() -> Stage:
        stage = started(1, 2, 4)
        stage.end_session(stage.session)
        node = {"version": 3, "partitions": {"0": [4, 1, 2]}, "adding_replicas": {"0": [4]}}
        stage.make("/brokers/topics/t", json.dumps({**node, "removing_replicas": {"0": [2]}}).encode())
        stage.new_controller()
        stage.take_sent()
        return stage

    def check(stage: Stage) -> None:
        if stage.assigned().is_being_reassigned and 4 not in stage.leader()[2]:
            stage.leader_writes(TP, (*stage.leader()[2], 4))
        stage.run()
        assert stage.assigned().replicas == (4, 1) and not stage.assigned().is_being_reassigned
        assert {to for to, _, delete in stops_in(stage.sent) if delete} == {2}

    assert faults_everywhere(make, Stage.start, check) > 40


@pytest.mark.known_failure("R5")
def test_who_is_added_is_new_in_each_term_and_nobody_else_is() -> None:
    def make() -> Stage:
        stage = started(1, 2, 3)
        stage.take_sent()
        return stage

    def check(stage: Stage) -> None:
        if not stage.assigned().is_being_reassigned:
            move_to(stage, 1, 3, reply_to=2)
        announced = {(to, is_new) for to, _, is_new in leaders_in(stage.sent)}
        assert (3, True) in announced and announced & {(1, True), (2, True)} == set()
        last = max(epoch for epoch, to in terms(stage.sent) if to == 3)
        assert any(is_new for to, _, is_new in leaders_in(terms(stage.sent)[last, 3])), "its successor says so, too"

    assert faults_everywhere(make, lambda stage: move_to(stage, 1, 3), check) > 20


@pytest.mark.known_failure("I1")
def test_after_a_lost_race_the_next_change_works() -> None:
    """The leader removes a follower, and a broker dies of which the controller believes that it is in the ISR."""

    def make() -> Stage:
        stage = started(1, 2, 3, replicas=(1, 2, 3))
        stage.leader_writes(TP, (1, 3))
        return stage

    def act(stage: Stage) -> None:
        stage.broker_dies(1)
        stage.run()

    def check(stage: Stage) -> None:
        assert stage.leader()[0] == 3 and stage.leader()[2] == (3,)
        believed, stored = stage.state.leadership(TP), stage.leadership(TP)
        assert believed is not None and believed.partition_epoch == stored.partition_epoch
        assert (believed.leader, believed.isr) == (stored.leader, stored.isr)
        epoch = stage.leader()[1]
        starts(stage, 1)
        stage.leader_writes(TP, (3, 1))
        move_to(stage, 1, 3, reply_to=9)
        stage.broker_dies(3)
        stage.run()
        assert stage.leader()[0] == 1 and stage.leader()[1] > epoch

    assert faults_everywhere(make, act, check) > 5


@pytest.mark.known_failure("X2")
def test_whoever_takes_over_a_deletion_names_whom_it_waits_for() -> None:
    def make() -> Stage:
        stage = brokers(1, 2, 3, 4)
        stage.topic("t", p0=(1, 2), p1=(3, 4))
        stage.start()
        stage.broker_dies(2, 4)
        stage.run()
        return stage

    def act(stage: Stage) -> None:
        if not stage.exists("/admin/delete_topics/t"):
            stage.make("/admin/delete_topics/t")
        stage.run()

    def check(stage: Stage) -> None:
        act(stage)
        waiting = stage.logged(ev.TOPIC_DELETION_WAITED)
        assert waiting, [line.event for line in stage.logs]
        assert waiting[-1]["topic"] == "t" and waiting[-1]["brokers"] == [2, 4]
        starts(stage, 2, 4)
        assert not stage.tree.read(GetData("/brokers/topics/t")).ok
        assert not stage.exists("/admin/delete_topics/t")

    assert faults_everywhere(make, act, check, Fault.CRASH, Fault.SESSION_LOSS, Fault.LOST_REPLY, Fault.RIVAL) > 10

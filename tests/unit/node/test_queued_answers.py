"""Answers made of what the controller's queue says: elections, once the new leaders lead; shutdowns; moves.

Source: Kafka 3.9 `DelayedElectLeader`; spec broker.md §16.6, §16.7, controller.md §11.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.effects import ElectionAnswer, PartitionOutcome, ReassignmentAnswer, ShutdownAnswer
from controller.core.events import ApiPartitionReassignment, ControlledShutdown
from controller.node.requests.context import NOT_CONTROLLER_TEXT
from controller.node.requests.queued import (
    SHUTDOWN_HELD_MS,
    elect_leaders_failed,
    handle_alter_partition_reassignments,
    handle_controlled_shutdown,
    handle_elect_leaders,
)
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import NO_BROKER_EPOCH, BrokerId, LeaderAndIsr, TopicPartition

ELECTED, REFUSED = TopicPartition("t", 0), TopicPartition("u", 1)


def led_by(leader: int | None) -> LeaderAndIsr | None:
    return LeaderAndIsr(leader=BrokerId(leader) if leader else None, isr=()) if leader is not None else None


#: 2 was elected; who leads when that is answered, who leads when it was waited for -> the answer, with time to wait and
#: without
LEADERS: list[tuple[str, int | None, int | None, ErrorCode, ErrorCode]] = [
    ("it leads", 2, 2, ErrorCode.NONE, ErrorCode.NONE),
    ("it leads soon", 1, 2, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT),
    ("another still leads", 1, 1, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ("nobody leads yet", 0, 0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ("nothing is known any more", None, None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
]


@pytest.mark.parametrize("timeout_ms", [0, 5_000])
@pytest.mark.parametrize(("_", "at_once", "later", "in_time", "without"), LEADERS, ids=[row[0] for row in LEADERS])
def test_an_elected_leader_is_answered_when_it_leads(
    _: str, at_once: int | None, later: int | None, in_time: ErrorCode, without: ErrorCode, timeout_ms: int
) -> None:
    leaders = {ELECTED: led_by(at_once), REFUSED: led_by(1)}
    waits: list[int] = []

    async def ask(make: Callable[[int], Any]) -> ElectionAnswer:
        assert make(1).partitions == {ELECTED, REFUSED}
        refused = PartitionOutcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "no")
        return ElectionAnswer({ELECTED: PartitionOutcome(leader=BrokerId(2)), REFUSED: refused})

    async def wait(condition: Callable[[], bool], timeout_ms: int) -> None:
        if not condition():
            waits.append(timeout_ms)
            leaders[ELECTED] = led_by(later)

    node: Any = SimpleNamespace(loop=SimpleNamespace(ask=ask), wait=wait, state=SimpleNamespace(leadership=leaders.get))
    chosen = [SimpleNamespace(topic=tp.topic, partitions=[tp.partition]) for tp in (REFUSED, ELECTED)]
    body = SimpleNamespace(election_type=0, topic_partitions=chosen, timeout=timeout_ms)
    request: Any = SimpleNamespace(api_key=ApiKey.ELECT_LEADERS, api_version=2, body=body)
    answer = asyncio.run(handle_elect_leaders(node, request))
    of_t, of_u = answer["replica_election_results"]
    assert (of_t["topic"], of_u["topic"]) == ("t", "u")
    code = in_time if timeout_ms else without
    assert of_t["partition_result"] == [{"partition_id": 0, "error_code": code, "error_message": None}]
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert of_u["partition_result"] == [{"partition_id": 1, "error_code": code, "error_message": "no"}]
    assert waits == ([timeout_ms] if timeout_ms and at_once != 2 else [])


def test_an_election_of_all_is_answered_when_all_that_were_elected_lead() -> None:
    """Those that ever had a leader are asked for, but for deleted ones, and those left out of the answer whose leader
    stays. Tried with Kafka 3.9.1."""
    stays, early, late, never = (TopicPartition("t", number) for number in range(4))
    leaders = {stays: led_by(1), early: led_by(2), late: led_by(0), never: None, TopicPartition("gone", 0): led_by(1)}

    async def ask(make: Callable[[int], Any]) -> ElectionAnswer:
        assert make(1).partitions == {stays, early, late}
        elected = PartitionOutcome(leader=BrokerId(2))
        return ElectionAnswer({stays: PartitionOutcome(ErrorCode.ELECTION_NOT_NEEDED), early: elected, late: elected})

    async def wait(condition: Callable[[], bool], timeout_ms: int) -> None:
        assert not condition(), "one of both leads"
        leaders[late] = led_by(2)
        assert condition()

    state = SimpleNamespace(
        leadership=leaders.get, all_partitions=lambda: list(leaders), topics_with_deletion_started={"gone"}
    )
    node: Any = SimpleNamespace(loop=SimpleNamespace(ask=ask), wait=wait, state=state, check_active=lambda: None)
    request: Any = SimpleNamespace(api_version=0, body=SimpleNamespace(topic_partitions=None, timeout=5_000))
    answer = asyncio.run(handle_elect_leaders(node, request))
    done = [{"partition_id": tp.partition, "error_code": 0, "error_message": None} for tp in (early, late)]
    assert answer["replica_election_results"] == [{"topic": "t", "partition_result": done}]


def test_an_election_of_none_is_one_of_none() -> None:
    """Null alone means all."""

    async def ask(make: Callable[[int], Any]) -> ElectionAnswer:
        assert make(1).partitions == frozenset()
        return ElectionAnswer({})

    state = SimpleNamespace(leadership=lambda tp: led_by(1), all_partitions=lambda: [ELECTED])
    node: Any = SimpleNamespace(loop=SimpleNamespace(ask=ask), state=state, check_active=lambda: None)
    request: Any = SimpleNamespace(api_version=0, body=SimpleNamespace(topic_partitions=[], timeout=0))
    assert asyncio.run(handle_elect_leaders(node, request)) == {"replica_election_results": []}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("named", [None, [], ["t", "u"]], ids=["all", "none", "two topics"])
def test_what_failed_as_a_whole_is_told_at_the_top_but_that_another_is_the_controller(
    named: list[str] | None, code: ErrorCode, version: int
) -> None:
    """Partitions that are named tell that; version 0 has no top to tell it at."""
    chosen = None if named is None else [SimpleNamespace(topic=topic, partitions=[0, 3]) for topic in named]
    request: Any = SimpleNamespace(api_version=version, body=SimpleNamespace(topic_partitions=chosen))
    said = elect_leaders_failed(request, code, "why")
    built = protocol.build(ApiKey.ELECT_LEADERS, version, said, response=True)
    rows = [
        (topic.topic, row.partition_id, row.error_code, row.error_message)
        for topic in built.replica_election_results
        for row in topic.partition_result
    ]
    assert rows == [(topic, p, code, "why") for topic in named or () for p in (0, 3)]
    if version == 0:
        assert "error_code" not in said
    else:
        is_told_below = bool(named) and code is ErrorCode.NOT_CONTROLLER
        assert built.error_code == (ErrorCode.NONE if is_told_below else code)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_shutdown_is_answered_with_what_the_broker_still_leads(version: int, error: ErrorCode) -> None:
    remaining = (TopicPartition("u", 3), TopicPartition("t", 7), TopicPartition("t", 2))
    successors = frozenset({BrokerId(2), BrokerId(4)})
    asked: list[Any] = []
    held: list[int] = []
    counted: list[str] = []
    is_pending = True

    async def ask(make: Callable[[int], Any]) -> ShutdownAnswer:
        asked.append(make(5))
        return ShutdownAnswer(error, remaining, successors)

    async def wait(condition: Callable[[], bool], timeout_ms: int) -> None:
        nonlocal is_pending
        assert not condition()
        is_pending = False
        assert condition(), "the new leaders have answered"
        held.append(timeout_ms)

    def pending(brokers: Any) -> Callable[[], bool]:
        assert set(brokers) == successors
        counted.append("what is queued now")
        return lambda: is_pending

    node: Any = SimpleNamespace(loop=SimpleNamespace(ask=ask), wait=wait, channels=SimpleNamespace(pending=pending))
    epoch = {"broker_epoch": 77} if version >= 2 else {}
    request: Any = SimpleNamespace(api_version=version, body=SimpleNamespace(broker_id=3, **epoch))
    answer = asyncio.run(handle_controlled_shutdown(node, request))
    built = protocol.build(ApiKey.CONTROLLED_SHUTDOWN, version, answer, response=True)
    assert asked == [ControlledShutdown(BrokerId(3), 77 if epoch else NO_BROKER_EPOCH, 5)]
    assert built.error_code == error and held == ([SHUTDOWN_HELD_MS] if error is ErrorCode.NONE else [])
    assert len(counted) == len(held), "what is queued for them meanwhile is not waited for"
    assert [(row.topic_name, row.partition_index) for row in built.remaining_partitions] == sorted(remaining)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_moves_are_asked_for_and_answered_partition_by_partition(error: ErrorCode) -> None:
    wishes: dict[TopicPartition, Any] = {
        TopicPartition("u", 1): (BrokerId(3), BrokerId(1)),
        TopicPartition("t", 4): None,
        TopicPartition("t", 0): (),
    }
    no = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    outcomes = {tp: PartitionOutcome(no, "none") if each is None else PartitionOutcome() for tp, each in wishes.items()}

    async def ask(make: Callable[[int], Any]) -> ReassignmentAnswer:
        assert make(5) == ApiPartitionReassignment(wishes, 5)
        return ReassignmentAnswer(error, outcomes if error is ErrorCode.NONE else {})

    topics = [
        SimpleNamespace(
            name=name,
            partitions=[
                SimpleNamespace(partition_index=tp.partition, replicas=None if each is None else list(each))
                for tp, each in wishes.items()
                if tp.topic == name
            ],
        )
        for name in ("u", "t")
    ]
    node: Any = SimpleNamespace(loop=SimpleNamespace(ask=ask))
    request: Any = SimpleNamespace(api_version=0, body=SimpleNamespace(topics=topics))
    answer = asyncio.run(handle_alter_partition_reassignments(node, request))
    built = protocol.build(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, answer, response=True)
    rows = [
        (topic.name, row.partition_index, row.error_code, row.error_message)
        for topic in built.responses
        for row in topic.partitions
    ]
    text = {ErrorCode.NONE: "", ErrorCode.NOT_CONTROLLER: NOT_CONTROLLER_TEXT}.get(error)
    assert (built.error_code, built.error_message) == (error, text)
    assert rows == ([("t", 0, 0, None), ("t", 4, no, "none"), ("u", 1, 0, None)] if error is ErrorCode.NONE else [])

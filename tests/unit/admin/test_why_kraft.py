"""What `kwob why` and a dry run say of a KRaft cluster: fencing, eligible leaders, the quorum of controllers, steps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.admin.cluster.failures import Refused
from controller.admin.cluster.kraft import describe_quorum
from controller.admin.reassignment.effect import PartitionMove, steps
from controller.admin.why.commands import Commands
from controller.admin.why.diagnosis import diagnose
from controller.admin.why.facts import BrokerFacts, PartitionFacts, TopicFacts
from controller.admin.why.finding import Finding, Trouble
from controller.admin.why.quorum import Quorum, QuorumReplica, read_quorum
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

T0 = TopicPartition("t", 0)
B1, B2, B3 = map(BrokerId, (1, 2, 3))


def voter(number: int, end: int, at_ms: int | None) -> QuorumReplica:
    return QuorumReplica(replica_id=number, log_end_offset=end, last_caught_up_ms=at_ms)


LEADER = voter(1, 100, 50_000)


def quorum(*others: QuorumReplica, observers: tuple[QuorumReplica, ...] = ()) -> Quorum:
    return Quorum(leader=1, epoch=4, high_watermark=100, voters=(LEADER, *others), observers=observers)


@pytest.mark.parametrize("late_ms", [None, 0, 2_999, 3_000, 3_001])
@pytest.mark.parametrize("end", [99, 100, 101])
def test_who_lacks_records_for_longer_than_three_seconds_is_behind(end: int, late_ms: int | None) -> None:
    other = voter(2, end, None if late_ms is None else 50_000 - late_ms)
    is_behind = end < 100 and (late_ms is None or late_ms > 3_000)
    assert [(v.replica_id, n, ms) for v, n, ms in quorum(other).behind] == (
        [(2, 100 - end, late_ms)] if is_behind else []
    )
    lag = quorum(observers=(other,)).observer_lag(2)
    assert lag == ((100 - end, late_ms) if is_behind else None)


#: voters, of which so many keep up -> how many are needed, and what that means
MAJORITIES = [
    (2, 1, 2, "nothing can change until more of them do"),
    (3, 2, 2, "one more loss, and nothing can change"),
    (4, 2, 3, "nothing can change until more of them do"),
    (4, 3, 3, "one more loss, and nothing can change"),
    (5, 4, 3, "1 more may be lost"),
    (6, 3, 4, "nothing can change until more of them do"),
    (7, 6, 4, "2 more may be lost"),
]


@pytest.mark.parametrize(("voters", "keeping", "needed", "meaning"), MAJORITIES)
def test_more_than_half_of_the_voters_are_needed(voters: int, keeping: int, needed: int, meaning: str) -> None:
    others = [voter(n, 100 if n <= keeping else 7, 50_000 if n <= keeping else None) for n in range(2, voters + 1)]
    *_, last = quorum(*others).sentences()
    assert last == f"{keeping} of {voters} controllers keep up and {needed} are needed: {meaning}"


def found(topic: TopicFacts) -> list[Finding]:
    return diagnose(topic, Commands(bootstrap="b:1"))


def facts(isr: tuple[BrokerId, ...], *dead: BrokerId, is_kraft: bool = True, **more: Any) -> TopicFacts:
    of_partition = {name: more.pop(name) for name in ("elr", "adding_replicas", "leader") if name in more}
    leader = of_partition.pop("leader", isr[0] if isr else None)
    partition = PartitionFacts(partition=T0, replicas=(B1, B2, B3), isr=isr, leader=leader, **of_partition)
    brokers = {b: BrokerFacts(broker_id=b, is_alive=b not in dead, answers=b not in dead) for b in (B1, B2, B3)}
    return TopicFacts(
        topic="t",
        partitions=(partition,),
        brokers=brokers,
        controller=B1,
        asked_brokers=True,
        is_kraft=is_kraft,
        **more,
    )


def words(topic: TopicFacts) -> str:
    return " / ".join(line for finding in found(topic) for line in (finding.summary, *finding.because, *finding.next))


def test_a_broker_that_is_away_is_fenced_and_zookeeper_is_not_named() -> None:
    told = words(facts((B1, B2), B3))
    assert "broker 3 is not alive: it is fenced" in told
    assert "ZooKeeper" not in told and "session" not in told.replace("broker.session.timeout.ms", "")
    assert "it is not registered" in words(facts((B1, B2), B3, is_kraft=False))


def test_a_leader_may_come_from_the_eligible_leader_replicas() -> None:
    told = words(facts((), B1, B2, B3, elr=(B2,), leader=None))
    assert "the ISR is empty; a leader must come from it, or from the eligible leader replicas (ELR): 2" in told


def test_a_move_is_done_once_those_that_are_added_are_in_sync() -> None:
    told = words(facts((B1, B2), adding_replicas=(B3,)))
    assert "it is done once 3 are in the ISR, which is 1,2: one change of the metadata log then sets replicas" in told


@pytest.mark.parametrize(
    ("others", "lines"),
    [
        ((voter(2, 100, 49_700), voter(3, 99, 49_200)), []),
        (
            (voter(2, 100, 49_700), voter(3, 40, 20_000)),
            [
                "controller 3 is 60 records behind in the metadata log, for 30 s",
                "2 of 3 controllers keep up and 2 are needed: one more loss, and nothing can change",
            ],
        ),
        (
            (voter(2, 98, 10_000), voter(3, -1, None)),
            [
                "controller 2 is 2 records behind in the metadata log, for 40 s",
                "controller 3 is 100 records behind in the metadata log, never seen caught up",
                "1 of 3 controllers keep up and 2 are needed: nothing can change until more of them do",
            ],
        ),
    ],
)
def test_controllers_that_are_behind(others: tuple[QuorumReplica, ...], lines: list[str]) -> None:
    assert list(quorum(*others).sentences()) == lines
    told = [f for f in found(facts((B1, B2, B3), quorum=quorum(*others))) if f.trouble is Trouble.QUORUM]
    assert [list(finding.because) for finding in told] == ([lines] if lines else [])


def test_a_broker_that_does_not_follow_the_metadata_log() -> None:
    behind = quorum(observers=(voter(3, 70, 30_000),))
    assert behind.observer_lag(3) == (30, 20_000) and behind.observer_lag(2) is None
    assert "broker 3 is alive, but 30 records behind in the metadata log" in words(facts((B1, B2), quorum=behind))


def test_the_answer_to_describe_quorum() -> None:
    def row(number: int, **more: Any) -> SimpleNamespace:
        return SimpleNamespace(replica_id=number, log_end_offset=9, **more)

    partition = SimpleNamespace(
        error_code=0, leader_id=1, leader_epoch=3, high_watermark=8, observers=(row(4),),
        current_voters=(row(1, last_caught_up_timestamp=77), row(2, last_caught_up_timestamp=-1)),
    )  # fmt: skip
    answer = SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[partition])])
    told = read_quorum(answer)
    assert told is not None
    assert (told.leader, [v.last_caught_up_ms for v in told.voters], told.observers[0].replica_id) == (1, [77, None], 4)
    assert read_quorum(SimpleNamespace(error_code=31, topics=[])) is None and read_quorum(None) is None


@pytest.mark.parametrize(
    ("code", "topics", "refusal"),
    [
        (7, [], ErrorCode.REQUEST_TIMED_OUT),
        (0, [SimpleNamespace(partitions=[SimpleNamespace(error_code=6)])], ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["no controller is reached", "who answers is no controller", "nothing is said"],
)
def test_a_quorum_that_is_not_described_is_a_refusal(code: int, topics: list[Any], refusal: ErrorCode) -> None:
    async def call_any(*_: object) -> Any:
        return SimpleNamespace(error_code=code, topics=topics)

    admin: Any = SimpleNamespace(call_any=call_any)
    with pytest.raises(Refused) as refused:
        asyncio.run(describe_quorum(admin))
    assert refused.value.code is refusal


def test_the_steps_of_a_move_in_kraft() -> None:
    meanwhile = ReplicaAssignment(replicas=(B2, B3, B1), adding_replicas=(B2, B3), removing_replicas=(B1,))
    move = PartitionMove(
        partition=T0, meanwhile=meanwhile, target=(B2, B3), leader=B1, leader_after=B2, bytes_per_copy=1, is_kraft=True
    )
    assert steps(move) == [
        "metadata log: PartitionChange with replicas [2,3,1] adding [2,3] removing [1]; every broker reads it",
        "2,3 begin to copy from leader 1",
        "wait until 2,3 are in the ISR: the leader asks for it by AlterPartition",
        "metadata log: in one PartitionChange replicas [2,3], ISR without [1], leader 2",
        "1 read it and delete their replicas",
    ]

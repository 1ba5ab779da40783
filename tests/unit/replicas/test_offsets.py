"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: who is told what, and from which version on.

Source: spec clients.md §5, broker.md §14; Kafka 3.9 `KafkaApis.handleListOffsetRequestV1AndAbove`,
`Partition.fetchOffsetForTimestamp`, `Partition.deleteRecordsOnLeader`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.types import DeleteRecordsResult, EpochEnd, ListedOffset
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP, COMPACTED = TopicPartition("t", 0), TopicPartition("c", 0)
NONE, FENCED, AHEAD, NOT_LEADER, UNKNOWN, UNSUPPORTED, LATER, NO_LEADER, OUT_OF_RANGE, STORAGE = (
    ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
#: base timestamp of each batch of two records that broker 1 leads; the follower has the first two batches
TIMES = (100, 300, 200)
LATEST, EARLIEST, NEWEST, LOCAL, TIERED = -1, -2, -3, -4, -5


def batch(at: int) -> bytes:
    return build_values([(b"k", b"v"), (b"k", b"w")], timestamp=at)


def run(tmp_path: Path, scenario: Any, **settings: Any) -> None:
    """Broker 1 leads `TP` with 2, which lacks the last batch. High watermark 4, end 6, epoch 1 from offset 2 on."""

    async def prepared(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        leader = cluster.nodes[1].manager
        for number, at in enumerate(TIMES):
            if number == 1:
                cluster.appoint(TP, 1, (1, 2), (1, 2))
            if number == 2:
                await cluster.world.sleep(1)
                cluster.nodes[2].paused.add(TP)
                await cluster.world.sleep(1)
            await leader.producing.produce({TP: batch(at)}, acks=1, timeout_ms=100)
        partition = cluster.nodes[1].partition(TP)
        assert (partition.hw, partition.log.leo, partition.log.epochs.entries) == (4, 6, [(0, 0), (1, 2)])
        await scenario(cluster)

    Cluster.run(tmp_path, prepared, brokers=(1, 2), **{"replica_lag_time_max_ms": 1_000_000, **settings})


def listed(cluster: Cluster, timestamp: int, broker: int = 1, tp: TopicPartition = TP, **asked: int) -> ListedOffset:
    question = OffsetQuestion(timestamp=timestamp, **{"replica_id": -1, "version": 9, **asked})
    return cluster.nodes[broker].manager.offsets.list_offset(tp, question)


#: time -> what a consumer is told, what a follower is: (time, offset, leader epoch)
TOLD: dict[int, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    LATEST: ((-1, 4, 1), (-1, 6, 1)),
    EARLIEST: ((-1, 0, 0), (-1, 0, 0)),
    LOCAL: ((-1, 0, 0), (-1, 0, 0)),
    TIERED: ((-1, -1, -1), (-1, -1, -1)),
    NEWEST: ((300, 2, 1), (300, 2, 1)),
    0: ((100, 0, 0), (100, 0, 0)),
    100: ((100, 0, 0), (100, 0, 0)),
    101: ((300, 2, 1), (300, 2, 1)),
    300: ((300, 2, 1), (300, 2, 1)),
    301: ((-1, -1, -1), (-1, -1, -1)),
}


def test_offsets_by_time(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for at, (consumer, follower) in TOLD.items():
            for replica_id, (timestamp, offset, epoch) in ((-1, consumer), (2, follower)):
                expected = ListedOffset(timestamp=timestamp, offset=offset, leader_epoch=epoch)
                assert listed(cluster, at, replica_id=replica_id) == expected, (at, replica_id)
        leader = cluster.nodes[1].partition(TP)
        leader.log.raise_log_start(3)
        assert listed(cluster, EARLIEST) == ListedOffset(offset=3, leader_epoch=1)
        assert listed(cluster, 0) == ListedOffset(timestamp=300, offset=3, leader_epoch=1)
        leader.log.append_as_leader(batch(900), leader_epoch=1, now_ms=1)
        assert listed(cluster, NEWEST) == listed(cluster, 301) == ListedOffset(), "not committed yet"
        assert listed(cluster, NEWEST, replica_id=2) == ListedOffset(timestamp=900, offset=6, leader_epoch=1)

    run(tmp_path, scenario)


def test_what_a_former_topic_left_is_found_by_time_with_the_epoch_of_its_batch(tmp_path: Path) -> None:
    """A lower epoch follows: the cache knows the former ones no more, and of the first offset none is told."""

    async def scenario(cluster: Cluster) -> None:
        log = cluster.nodes[1].partition(TP).log
        log.assign_epoch(0, log.leo)
        assert log.epochs.entries == [(0, 6)]
        assert listed(cluster, 101) == ListedOffset(timestamp=300, offset=2, leader_epoch=1)
        assert listed(cluster, NEWEST) == ListedOffset(timestamp=300, offset=2, leader_epoch=1)
        assert listed(cluster, EARLIEST) == ListedOffset(offset=0, leader_epoch=-1)

    run(tmp_path, scenario)


SINCE = {LATEST: 1, EARLIEST: 1, NEWEST: 7, LOCAL: 8, TIERED: 9, -6: 99}


@pytest.mark.parametrize("version", range(10))
def test_each_kind_of_time_may_be_asked_for_from_its_version_on(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        told = {at: listed(cluster, at, version=version).error for at in SINCE}
        assert told == {at: NONE if version >= since else UNSUPPORTED for at, since in SINCE.items()}

    run(tmp_path, scenario)


def test_who_may_be_asked(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for epoch, error in ((-1, NONE), (0, FENCED), (1, NONE), (2, AHEAD)):
            assert listed(cluster, LATEST, current_leader_epoch=epoch).error is error
            ends = cluster.nodes[1].manager.offsets.epoch_end(TP, leader_epoch=0, current_leader_epoch=epoch)
            assert ends == (EpochEnd(leader_epoch=0, end_offset=2) if error is NONE else EpochEnd(error=error))
        assert listed(cluster, LATEST, broker=2).error is NOT_LEADER
        assert listed(cluster, LATEST, broker=2, replica_id=1).error is NOT_LEADER
        assert listed(cluster, LATEST, broker=2, replica_id=-2) == ListedOffset(offset=4, leader_epoch=1)
        assert listed(cluster, 101, broker=2, replica_id=-2) == ListedOffset(timestamp=300, offset=2, leader_epoch=1)
        assert listed(cluster, LATEST, replica_id=-2) == ListedOffset(offset=6, leader_epoch=1)
        assert listed(cluster, LATEST, broker=2, replica_id=-2, current_leader_epoch=0).error is FENCED
        assert listed(cluster, LATEST, tp=COMPACTED).error is UNKNOWN
        cluster.metadata.known.add(COMPACTED)
        assert listed(cluster, LATEST, tp=COMPACTED).error is NOT_LEADER, "it is somewhere else"
        ask = cluster.nodes[1].manager.offsets.epoch_end
        assert [(ask(TP, leader_epoch=n).leader_epoch, ask(TP, leader_epoch=n).end_offset) for n in (0, 1, 2)] == [
            (0, 2), (1, 6), (-1, -1),
        ]  # fmt: skip
        assert cluster.nodes[2].manager.offsets.epoch_end(TP, leader_epoch=0).error is NOT_LEADER
        cluster.nodes[1].manager.fail_log_dir(str(cluster.nodes[1].partition(TP).log.log_dir))
        assert listed(cluster, LATEST).error is STORAGE
        assert cluster.nodes[1].manager.offsets.epoch_end(TP, leader_epoch=0).error is STORAGE

    run(tmp_path, scenario)


def test_a_new_leader_does_not_know_how_much_is_committed(tmp_path: Path) -> None:
    """Until its high watermark has reached the start of its epoch: neither the newest, nor that there is none."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), to=(1,))
        for version, error in ((5, LATER), (4, NO_LEADER)):
            assert listed(cluster, LATEST, version=version).error is error
            assert listed(cluster, 301, version=version).error is error
            assert listed(cluster, 101, version=version).offset == 2, "what is found is committed"
            assert listed(cluster, EARLIEST, version=version).offset == 0
            assert listed(cluster, LATEST, version=version, replica_id=2).offset == 6
            assert listed(cluster, 301, version=version, replica_id=2) == ListedOffset()
        cluster.nodes[2].paused.clear()
        cluster.resend(TP, (1, 2), to=(2,))
        await cluster.world.sleep(2)
        assert listed(cluster, LATEST) == ListedOffset(offset=6, leader_epoch=2)
        assert listed(cluster, 301) == ListedOffset()

    run(tmp_path, scenario)


# -- DeleteRecords ----------------------------------------------------------------------------------------------------


def test_what_may_be_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, follower = cluster.nodes[1].manager, cluster.nodes[2].manager
        cluster.appoint(COMPACTED, 1, (1,), (1,), is_new=True)
        leader.configs.set_topic_config("c", {"cleanup.policy": "compact"})

        async def deleted(offset: int, tp: TopicPartition = TP, manager: Any = leader) -> DeleteRecordsResult:
            return (await manager.offsets.delete_records({tp: offset}, timeout_ms=2_000))[tp]

        for offset in (5, 7, -2):
            assert await deleted(offset) == DeleteRecordsResult(error=OUT_OF_RANGE)
        assert await deleted(0, COMPACTED) == DeleteRecordsResult(error=ErrorCode.POLICY_VIOLATION)
        assert await deleted(0, TP, follower) == DeleteRecordsResult(error=NOT_LEADER)
        assert await deleted(0, TopicPartition("x", 0)) == DeleteRecordsResult(error=UNKNOWN)
        assert await deleted(0) == DeleteRecordsResult(low_watermark=0)
        assert cluster.nodes[1].partition(TP).log.log_start_offset == 0
        late = DeleteRecordsResult(error=ErrorCode.REQUEST_TIMED_OUT, low_watermark=0)
        assert await deleted(1) == late, "the follower has not heard; as low as when it was asked"
        assert cluster.nodes[1].partition(TP).log.log_start_offset == 1
        waiting = asyncio.ensure_future(deleted(-1))
        await cluster.world.sleep(0.1)
        assert not waiting.done() and cluster.nodes[1].partition(TP).log.log_start_offset == 4
        cluster.set_alive({1})
        assert await waiting == DeleteRecordsResult(low_watermark=4), "who is dead is not waited for"
        cluster.set_alive({1, 2})
        cluster.nodes[2].paused.clear()
        both = await leader.offsets.delete_records({TP: 4, COMPACTED: 0}, timeout_ms=5_000)
        assert both == {
            TP: DeleteRecordsResult(low_watermark=4),
            COMPACTED: DeleteRecordsResult(error=ErrorCode.POLICY_VIOLATION),
        }
        assert cluster.nodes[2].partition(TP).log.log_start_offset == 4

    run(tmp_path, scenario)


#: cleanup.policy -> whether records of the topic may be deleted by offset
POLICIES = {"delete": True, "compact,delete": True, "delete,compact": True, "compact": False, "": False}


@pytest.mark.parametrize("policy", POLICIES)
def test_records_are_deleted_where_the_policy_is_to_delete_whatever_else_it_is(tmp_path: Path, policy: str) -> None:
    """And no record, where it is not. Source: Kafka 3.9 `Partition.deleteRecordsOnLeader`, `LogConfig.delete`."""
    is_allowed = POLICIES[policy]

    async def scenario(cluster: Cluster) -> None:
        leader, log = cluster.nodes[1].manager, cluster.nodes[1].partition(TP).log
        leader.configs.set_topic_config("t", {"cleanup.policy": policy})
        cluster.set_alive({1})
        for offset, start in ((1, 1), (0, 1), (-1, 4)):
            answer = (await leader.offsets.delete_records({TP: offset}, timeout_ms=2_000))[TP]
            refused = DeleteRecordsResult(error=ErrorCode.POLICY_VIOLATION)
            assert answer == (DeleteRecordsResult(low_watermark=start) if is_allowed else refused)
            assert log.log_start_offset == (start if is_allowed else 0)
        (beyond,) = (await leader.offsets.delete_records({TP: 5}, timeout_ms=2_000)).values()
        assert beyond.error is (OUT_OF_RANGE if is_allowed else ErrorCode.POLICY_VIOLATION), "the policy comes first"

    run(tmp_path, scenario)


@pytest.mark.parametrize("offset", [-1, 4, 3])
def test_a_deletion_ends_where_it_was_to_although_producers_go_on(tmp_path: Path, offset: int) -> None:
    """-1 is the high watermark of the moment at which it is asked, be it the second time. Source: Kafka 3.9
    `Partition.deleteRecordsOnLeader`, whose answer says what `DelayedDeleteRecords` waits for."""

    async def scenario(cluster: Cluster) -> None:
        node, partition = cluster.nodes[1], cluster.nodes[1].partition(TP)
        for _ in range(2):
            cluster.nodes[2].paused.clear()
            start = partition.hw if offset == -1 else offset
            waiting = asyncio.ensure_future(node.manager.offsets.delete_records({TP: offset}, timeout_ms=5_000))
            while not waiting.done():
                await node.manager.producing.produce({TP: batch(1)}, acks=1, timeout_ms=100)
                await cluster.world.sleep(0.1)
            assert waiting.result() == {TP: DeleteRecordsResult(low_watermark=start)}
            assert (partition.log.log_start_offset, partition.hw > start) == (start, True)

    run(tmp_path, scenario)

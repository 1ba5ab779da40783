"""Requests that wait, and until when; throttles, and whom they do not hold up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.records import iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALL = (1, 2, 3)
FROM_START = {TP: FetchPartition(fetch_offset=0, max_bytes=1 << 20)}


def run(cluster_of: type[Cluster], tmp_path: Path, scenario: Any, **settings: Any) -> Any:
    return cluster_of.run(tmp_path, scenario, brokers=ALL, **settings)


def test_below_min_insync_replicas_a_producer_waits_for_its_time_out_and_its_records_stay(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            node.manager.configs.set_topic_config("t", {"min.insync.replicas": "2"})
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        waiting = asyncio.ensure_future(cluster.produce(TP, 1, acks=-1, timeout_ms=100_000))
        await cluster.world.until(lambda: cluster.isr(TP) == (1,), within_s=60, what="2 is out")
        assert (await waiting).error is ErrorCode.REQUEST_TIMED_OUT
        partition = cluster.nodes[1].partition(TP)
        assert (partition.hw, partition.log.leo) == (1, 2)

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize(
    ("needed", "error"), [("2", ErrorCode.NONE), ("3", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
)
def test_a_producer_learns_when_its_records_are_on_fewer_replicas_than_it_needs_by_now(
    cluster_of: type[Cluster], tmp_path: Path, needed: str, error: ErrorCode
) -> None:
    """All in sync have them, and before the producer is answered more are asked for than are in sync. The records stay,
    and it is told where they are. Source: Kafka 3.9 `Partition.checkEnoughReplicasReachOffset`."""

    async def scenario(cluster: Cluster) -> None:
        manager, partition = cluster.nodes[1].manager, cluster.nodes[1].partition
        cluster.nodes[2].paused.add(TP)
        cluster.appoint(TP, 1, (1, 2), ALL, is_new=True, to=(1, 2))
        waiting = asyncio.ensure_future(cluster.produce(TP, 1, acks=-1))
        await cluster.world.sleep(0.5)
        assert not waiting.done()
        position = FetchPartition(fetch_offset=1, max_bytes=1, current_leader_epoch=0, log_start_offset=0)
        outcome = {"returned_bytes": 0, "throttled": False, "error": ErrorCode.NONE, "now_ms": manager.table.now_ms()}
        partition(TP).record_fetch(2, position, **outcome)
        manager.configs.set_topic_config("t", {"min.insync.replicas": needed})
        answer = await waiting
        assert (answer.error, answer.base_offset, partition(TP).hw, partition(TP).log.leo) == (error, 0, 1, 1)

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("who", [-1, 3])
@pytest.mark.parametrize("is_refused_first", [False, True])
def test_who_is_refused_one_partition_is_answered_at_once_of_all(
    cluster_of: type[Cluster], tmp_path: Path, who: int, is_refused_first: bool
) -> None:
    """A partition that is not here does not make a fetch wait, nor does it take the others from a follower."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1, 3), is_new=True)
        cluster.nodes[3].paused.add(TP)
        await cluster.produce(TP, 1)
        nowhere = TopicPartition("x", 0)
        order = (nowhere, TP) if is_refused_first else (TP, nowhere)
        partitions = {tp: FetchPartition(fetch_offset=1, max_bytes=1 << 20) for tp in order}
        before = cluster.world.loop.time()
        results = await cluster.nodes[1].manager.fetching.fetch(
            FetchRequest(partitions=partitions, replica_id=who, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
        )
        assert list(results) == list(order) and cluster.world.loop.time() == before
        assert (results[nowhere].error, results[TP].error) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
        follower = cluster.nodes[1].partition(TP).led.followers[3]
        assert follower.log_end_offset == (1 if who == 3 else -1)

    run(cluster_of, tmp_path, scenario)


def test_records_that_one_replica_keeps_let_their_deletion_time_out(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        before = cluster.world.loop.time()
        done = await cluster.nodes[1].manager.offsets.delete_records({TP: 1}, timeout_ms=2_000)
        assert done[TP].error is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.loop.time() - before == pytest.approx(2.0, abs=0.05)
        assert cluster.nodes[1].partition(TP).log.log_start_offset == 1

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("dies_first", [True, False], ids=["died before", "dies meanwhile"])
def test_a_deletion_waits_for_no_replica_that_is_dead(
    cluster_of: type[Cluster], tmp_path: Path, dies_first: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        if dies_first:
            cluster.set_alive((1, 2))
        deletion = cluster.nodes[1].manager.offsets.delete_records({TP: 1}, timeout_ms=60_000)
        waiting = asyncio.ensure_future(deletion)
        await cluster.world.sleep(1)
        assert waiting.done() == dies_first
        cluster.set_alive((1, 2))
        await cluster.world.sleep(0.1)
        assert waiting.done()
        done = (await waiting)[TP]
        assert (done.error, done.low_watermark) == (ErrorCode.NONE, 1)

    run(cluster_of, tmp_path, scenario)


def test_a_deletion_that_waits_learns_that_leadership_moved(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        waiting = asyncio.ensure_future(cluster.nodes[1].manager.offsets.delete_records({TP: 1}, timeout_ms=60_000))
        await cluster.world.sleep(1)
        cluster.appoint(TP, 2, ALL, ALL)
        assert (await waiting)[TP].error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(cluster_of, tmp_path, scenario)


NONE, FENCED, ELSEWHERE, STORAGE, UNKNOWN = (
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
LED_ON, ANOTHER, DELETED, FAILED, GONE, ANEW = (
    "the leader leads on in a newer epoch, by fewer followers",
    "another leader",
    "the replica is deleted",
    "the disk fails",
    "the topic is deleted",
    "the topic is made anew",
)
#: who waits, at which broker -> what each is told at once when this becomes of the partition there
WAITERS = [
    ("a consumer", 1, {LED_ON: FENCED, ANOTHER: FENCED, DELETED: ELSEWHERE, FAILED: STORAGE, ANEW: FENCED}),
    (
        "a consumer at a follower",
        2,
        {LED_ON: FENCED, ANOTHER: FENCED, DELETED: ELSEWHERE, FAILED: STORAGE, ANEW: FENCED},
    ),
    ("a follower", 1, {LED_ON: FENCED, ANOTHER: FENCED, DELETED: ELSEWHERE, FAILED: STORAGE, ANEW: FENCED}),
    (
        "a follower that is left out",
        1,
        {LED_ON: FENCED, ANOTHER: FENCED, DELETED: ELSEWHERE, FAILED: STORAGE, ANEW: FENCED},
    ),
    ("a producer", 1, {LED_ON: NONE, ANOTHER: ELSEWHERE, DELETED: ELSEWHERE, FAILED: STORAGE, ANEW: ELSEWHERE}),
    ("a deletion of records", 1, {LED_ON: NONE, ANOTHER: ELSEWHERE, DELETED: UNKNOWN, FAILED: STORAGE}),
]


def ask(cluster: Cluster, who: str, broker: int) -> Any:
    """The error of a request that waits, for replica 3 or for records, as long as nothing happens."""
    manager = cluster.nodes[broker].manager

    async def error() -> ErrorCode:
        match who:
            case "a producer":
                return ErrorCode((await cluster.produce(TP, broker, acks=-1, timeout_ms=60_000)).error)
            case "a deletion of records":
                return ErrorCode((await manager.offsets.delete_records({TP: 1}, timeout_ms=60_000))[TP].error)
        position = FetchPartition(fetch_offset=1, max_bytes=100, current_leader_epoch=0)
        request = FetchRequest(
            partitions={TP: position},
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=100,
            replica_id={"a follower": 2, "a follower that is left out": 3}.get(who, -1),
        )
        return ErrorCode((await manager.fetching.fetch(request))[TP].error)

    return asyncio.ensure_future(error())


@pytest.mark.parametrize("change", [LED_ON, ANOTHER, DELETED, FAILED, GONE, ANEW])
@pytest.mark.parametrize(("who", "broker", "errors"), WAITERS, ids=[row[0] for row in WAITERS])
def test_who_waits_learns_at_once_what_became_of_the_partition(
    cluster_of: type[Cluster], tmp_path: Path, who: str, broker: int, errors: dict[str, ErrorCode], change: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        await cluster.world.until(lambda: cluster.nodes[2].partition(TP).hw == 1, within_s=5, what="2 knows that")
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        waiting = ask(cluster, who, broker)
        await cluster.world.sleep(1)
        assert not waiting.done()
        before = cluster.world.loop.time()
        match change:
            case "another leader":
                cluster.appoint(TP, 2, ALL, ALL)
            case "the topic is deleted":  # brokers hear of it in their metadata first
                cluster.metadata.known.discard(TP)
                cluster.stop_replica(TP, broker, delete=True)
            case "the topic is made anew":
                cluster.stop_replica(TP, broker, delete=True)
                cluster.appoint(TP, 1, ALL, ALL, is_new=True, to=(broker,))
            case "the replica is deleted":
                cluster.stop_replica(TP, broker, delete=True)
            case "the disk fails":
                cluster.nodes[broker].manager.fail_log_dir(str(cluster.nodes[broker].partition(TP).log.log_dir))
            case _:
                cluster.appoint(TP, 1, (1, 2), (1, 2))
        assert await waiting is errors.get(change, UNKNOWN)
        assert cluster.world.loop.time() - before < 0.1

    run(cluster_of, tmp_path, scenario)


# -- throttles --------------------------------------------------------------------------------------------------------


def test_a_leader_never_holds_up_members_of_the_isr_but_counts_their_bytes(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    """Its budget is used up at once; acks=all still goes through, and only who is outside the ISR gets nothing."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), ALL, is_new=True)
        cluster.nodes[3].paused.add(TP)
        leader = cluster.nodes[1].manager
        leader.configs.set_throttled_replicas("t", "*", "")
        leader.configs.set_throttle_rates(leader=1)
        before = cluster.world.loop.time()
        for _ in range(10):
            assert (await cluster.produce(TP, 1, [b"x" * 1000], acks=-1)).error is ErrorCode.NONE
        assert cluster.world.loop.time() - before < 2
        quota = leader.table.leader_quota
        assert quota.is_exceeded(cluster.world.clock.now_ms()), "the bytes of the member count"

        async def fetched(replica_id: Any) -> Any:
            results = await leader.fetching.fetch(
                FetchRequest(
                    partitions=FROM_START, replica_id=replica_id, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20
                )
            )
            return len(list(iterate(results[TP].records)))

        used = quota.rate(cluster.world.clock.now_ms())
        assert (await fetched(3), await fetched(-1)) == (0, 10), "consumers are no replicas"
        assert quota.rate(cluster.world.clock.now_ms()) == used, "nor does what they get count"

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("comes_meanwhile", [False, True])
def test_a_throttled_fetch_of_a_replica_outside_the_isr_is_recorded_and_waits(
    cluster_of: type[Cluster], tmp_path: Path, comes_meanwhile: bool
) -> None:
    """Whatever comes meanwhile: it is not given that either. Source: Kafka 3.9 `DelayedFetch.tryComplete`."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1, 3), is_new=True)
        cluster.nodes[3].paused.add(TP)
        await cluster.produce(TP, 1, [b"a"])
        leader = cluster.nodes[1].manager
        leader.configs.set_throttled_replicas("t", "0:1", "")
        leader.configs.set_throttle_rates(leader=0)
        leader.table.leader_quota.record(1, cluster.world.clock.now_ms())
        before = cluster.world.loop.time()
        request = FetchRequest(partitions=FROM_START, replica_id=3, max_wait_ms=500, min_bytes=1, max_bytes=100)
        waiting = asyncio.ensure_future(leader.fetching.fetch(request))
        await cluster.world.sleep(0.2)
        if comes_meanwhile:
            await cluster.produce(TP, 1, [b"b"])
        results = await waiting
        assert (results[TP].error, results[TP].records) == (ErrorCode.NONE, b"")
        assert cluster.world.loop.time() - before == pytest.approx(0.5, abs=0.01)
        assert cluster.nodes[1].partition(TP).led.followers[3].log_end_offset == 0

    run(cluster_of, tmp_path, scenario)


def test_a_follower_goes_on_with_what_is_in_sync_though_its_rate_is_exceeded(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        follower = cluster.nodes[2].manager
        follower.configs.set_throttled_replicas("t", "", "*")
        follower.configs.set_throttle_rates(follower=1)
        before = cluster.world.loop.time()
        for _ in range(5):
            await cluster.world.sleep(1)
            assert (await cluster.produce(TP, 1, [b"x" * 1000], acks=-1)).error is ErrorCode.NONE
        assert follower.table.follower_quota.is_exceeded(cluster.world.clock.now_ms())
        assert cluster.world.loop.time() - before < 8
        assert cluster.isr(TP) == (1, 2)

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_rate_is_that_of_all_throttled_partitions_together(
    cluster_of: type[Cluster], tmp_path: Path, side: Any
) -> None:
    """Three partitions in each answer, the last of which has little; one of another topic is not throttled."""
    rate, sizes = 20_000, {TopicPartition("t", 0): 200_000, TopicPartition("t", 1): 190_000, TopicPartition("t", 2): 10}
    free = TopicPartition("u", 0)

    async def scenario(cluster: Cluster) -> None:
        for tp, size in (sizes | {free: 300_000}).items():
            cluster.appoint(tp, 1, (1,), (1,), to=(1,), is_new=True)
            for _ in range(max(1, size // 10_000)):
                await cluster.produce(tp, 1, [b"x" * min(size, 9_900)])
        configs = cluster.nodes[1 if side == "leader" else 2].manager.configs
        configs.set_throttled_replicas("t", *(("*", "") if side == "leader" else ("", "*")))
        configs.set_throttle_rates(**{side: rate})
        before = cluster.world.loop.time()
        for tp in (*sizes, free):
            cluster.appoint(tp, 1, (1,), (1, 2), is_new=True)
        await cluster.world.until(lambda: 2 in cluster.isr(free), within_s=5, what="2 has what is not throttled")
        await cluster.world.until(lambda: all(2 in cluster.isr(tp) for tp in sizes), within_s=90, what="2 has the rest")
        took = cluster.world.loop.time() - before
        assert 0.75 < took * rate / sum(sizes.values()) < 1.5

    run(cluster_of, tmp_path, scenario, replica_fetch_max_bytes=10_000, num_replica_fetchers=1)


# -- how much a fetch returns -----------------------------------------------------------------------------------------

#: what, bytes in all, bytes per partition, version -> batches of 't-0' and of 't-1' (each has three of about 1 kB)
AMOUNTS = [
    ("all there is", 1 << 20, 1 << 20, 11, [3, 3]),
    ("one batch at least, of the first partition alone", 1, 1, 11, [1, 0]),
    ("before version 3 not even one", 1, 1, 2, [0, 0]),
    ("whole batches within the partition's limit", 1 << 20, 2_500, 11, [2, 2]),
    ("what is left of the limit of all is for the next", 4_500, 1 << 20, 11, [3, 1]),
]


@pytest.mark.parametrize(("_", "in_all", "each", "version", "expected"), AMOUNTS, ids=[a[0] for a in AMOUNTS])
def test_a_fetch_keeps_to_its_limits(
    cluster_of: type[Cluster], tmp_path: Path, _: Any, in_all: Any, each: Any, version: Any, expected: Any
) -> None:
    other = TopicPartition("t", 1)

    async def scenario(cluster: Cluster) -> None:
        for tp in (TP, other):
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
            for _ in range(3):
                await cluster.produce(tp, 1, [b"x" * 1000])
        partitions = {tp: FetchPartition(fetch_offset=0, max_bytes=each) for tp in (TP, other)}
        results = await cluster.nodes[1].manager.fetching.fetch(
            FetchRequest(partitions=partitions, max_wait_ms=0, min_bytes=1, max_bytes=in_all, version=version)
        )
        assert [result.error for result in results.values()] == [ErrorCode.NONE] * 2
        assert [len(list(iterate(results[tp].records))) for tp in (TP, other)] == expected

    run(cluster_of, tmp_path, scenario)

"""What clients and followers are answered partition by partition, what is counted of it, and how long it takes."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition, FetchResult, ProduceResult
from broker_sim.topic_meters import TopicMeter
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode
from controller.wire.records import Record, build_batch, build_values
from controller.wire.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.worlds.replicas import Cluster

A, B, OTHER, NOWHERE = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("u", 0),
    TopicPartition("x", 0),
)
NONE, UNKNOWN, INVALID, TIMED_OUT = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_RECORD,
    ErrorCode.REQUEST_TIMED_OUT,
)


def batch(count: int = 1, *, key: bytes | None = b"k") -> bytes:
    return build_values([(key, b"v" * 50)] * count, timestamp=1)


def run(tmp_path: Path, scenario: Any, *, brokers: Any = (1,), **settings: Any) -> None:
    async def prepared(cluster: Cluster) -> None:
        for tp in (A, B, OTHER):
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
        await scenario(cluster)

    Cluster.run(tmp_path, prepared, brokers=brokers, **settings)


def counts(cluster: Cluster, topic: str | None = None) -> dict[str, int]:
    """What is not 0."""
    meters = cluster.nodes[1].manager.table.meters
    meter: TopicMeter = meters.all if topic is None else meters.topics[topic]
    return {name: value for name, value in dataclasses.asdict(meter).items() if value}


def copied(cluster: Cluster, broker: int = 1) -> tuple[int, int, int, int]:
    """Bytes that replicas took and gave; those because of a reassignment."""
    meters = cluster.nodes[broker].manager.table.meters
    taken = meters.replication_bytes_in, meters.reassignment_bytes_in
    return (*taken, meters.replication_bytes_out, meters.reassignment_bytes_out)


# -- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_what_a_producer_is_told_of_each_partition(tmp_path: Path, acks: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        manager.configs.set_topic_config("u", {"cleanup.policy": "compact"})
        await manager.producing.produce({A: batch(5)}, acks=1, timeout_ms=9)
        cluster.nodes[1].partition(A).log.raise_log_start(2)
        sent = {NOWHERE: batch(), OTHER: batch(2, key=None), A: batch(3), B: batch(2)[:-1] + b"!"}
        told = await manager.producing.produce(sent, acks=acks, timeout_ms=9)
        faults = tuple((n, "Compacted topic cannot accept message without key in topic partition u-0") for n in (0, 1))
        assert (told[OTHER].error, told[OTHER].log_start_offset, told[OTHER].record_errors) == (INVALID, 0, faults)
        assert "2 record errors" in (told[OTHER].message or "") and told[OTHER].base_offset == -1
        assert {tp: result for tp, result in told.items() if tp != OTHER} == {
            NOWHERE: ProduceResult(error=UNKNOWN),
            A: ProduceResult(base_offset=5, log_start_offset=2),
            B: ProduceResult(error=ErrorCode.CORRUPT_MESSAGE),
        }
        t_bytes = len(batch(5)) + len(batch(3))
        assert counts(cluster, "t") == {"messages_in": 8, "bytes_in": t_bytes, "total_produce_requests": 3}
        assert counts(cluster, "u") == {"total_produce_requests": 1, "failed_produce_requests": 1}
        assert counts(cluster, "x") == {"total_produce_requests": 1}
        assert counts(cluster) == {
            "messages_in": 8, "bytes_in": t_bytes, "total_produce_requests": 5, "failed_produce_requests": 1,
        }  # fmt: skip
        manager.configs.set_topic_config("t", {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "200"})
        sent = {A: batch(), B: batch(5)}
        told = await manager.producing.produce(sent, acks=acks, timeout_ms=9)
        now_ms = cluster.world.clock.now_ms()
        assert told == {
            A: ProduceResult(base_offset=8, log_append_time_ms=now_ms, log_start_offset=2),
            B: ProduceResult(error=ErrorCode.MESSAGE_TOO_LARGE),
        }

    run(tmp_path, scenario)


def test_what_a_broker_writes_of_its_own_is_not_checked_again_and_waits_for_nobody(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        manager.configs.set_topic_config("t", {"cleanup.policy": "compact", "min.insync.replicas": "2"})
        cluster.appoint(A, 1, (1,), (1, 9))
        keyless = batch(2, key=None)
        assert manager.producing.append_own(A, keyless) is NONE
        assert manager.producing.append_own(NOWHERE, keyless) is UNKNOWN
        assert (cluster.nodes[1].log_end(A), counts(cluster, "t")["messages_in"]) == (2, 2)
        told = await manager.producing.produce({A: keyless}, acks=1, timeout_ms=9, is_client=False)
        assert told == {A: ProduceResult(base_offset=2, log_start_offset=0)}
        assert (await manager.producing.produce({A: keyless}, acks=1, timeout_ms=9))[A].error is INVALID
        told = await manager.producing.produce({A: batch()}, acks=-1, timeout_ms=9)
        assert told == {A: ProduceResult(error=ErrorCode.NOT_ENOUGH_REPLICAS, log_start_offset=0)}

    run(tmp_path, scenario)


def test_producers_wait_each_for_its_time_and_are_counted_meanwhile(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, loop = cluster.nodes[1].manager, cluster.world.loop
        cluster.appoint(A, 1, (1, 2), (1, 2))
        cluster.nodes[2].paused.add(A)
        cluster.appoint(A, 1, (1, 2), (1, 2))

        async def produced(timeout_ms: int) -> tuple[Any, float]:
            began = loop.time()
            told = await manager.producing.produce({A: batch(), B: batch()}, acks=-1, timeout_ms=timeout_ms)
            return told, loop.time() - began

        waiting = [asyncio.ensure_future(produced(timeout_ms)) for timeout_ms in (3_000, 5_000)]
        for at, count in ((1, 2), (4, 1), (6, 0)):
            await cluster.world.sleep(at - loop.time() % 1000)
            assert manager.table.meters.waiting_produce == count
        for number, (told, took) in enumerate([await each for each in waiting]):
            assert told == {
                A: ProduceResult(error=TIMED_OUT, base_offset=number, log_start_offset=0),
                B: ProduceResult(base_offset=number, log_start_offset=0),
            }
            assert took == pytest.approx((3, 5)[number])

    run(tmp_path, scenario, brokers=(1, 2), replica_lag_time_max_ms=1_000_000)


def test_who_gives_up_waits_no_longer(tmp_path: Path) -> None:
    """A client that goes takes its requests along."""

    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        cluster.appoint(A, 1, (1, 2), (1, 2))
        cluster.nodes[2].paused.add(A)
        cluster.appoint(A, 1, (1, 2), (1, 2))
        meters = manager.table.meters
        asked = (
            asyncio.ensure_future(manager.producing.produce({A: batch()}, acks=-1, timeout_ms=9_000)),
            asyncio.ensure_future(fetched(cluster, wanted(b=0), max_wait_ms=9_000)),
        )
        await cluster.world.sleep(1)
        assert (meters.waiting_produce, meters.waiting_fetch) == (1, 1)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert (meters.waiting_produce, meters.waiting_fetch) == (0, 0)

    run(tmp_path, scenario, brokers=(1, 2), replica_lag_time_max_ms=1_000_000)


# -- those who fetch --------------------------------------------------------------------------------------------------


def wanted(**offsets: int) -> dict[TopicPartition, FetchPartition]:
    names = {"a": A, "b": B, "other": OTHER, "nowhere": NOWHERE}
    return {names[name]: FetchPartition(offset, 1 << 20) for name, offset in offsets.items()}


async def fetched(cluster: Cluster, partitions: Any, **how: Any) -> tuple[Any, float]:
    """The results and how long they took."""
    began = cluster.world.loop.time()
    request = FetchRequest(partitions=partitions, **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **how})
    results = await cluster.nodes[1].manager.fetching.fetch(request)
    return results, cluster.world.loop.time() - began


def test_what_a_consumer_gets_of_each_partition(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.nodes[1].manager.producing.produce({B: batch(2), OTHER: batch(3)}, acks=1, timeout_ms=9)
        cluster.nodes[1].partition(B).log.raise_log_start(1)
        b, other = (b"".join(cluster.nodes[1].manager.read_records(tp)) for tp in (B, OTHER))
        results, took = await fetched(
            cluster, wanted(nowhere=0, a=0, b=1, other=0), max_wait_ms=9_000, min_bytes=99_999
        )
        assert took == 0, "an error is told at once"
        assert results == {
            NOWHERE: FetchResult(error=UNKNOWN),
            A: FetchResult(NONE, 0, 0, 0),
            B: FetchResult(NONE, 2, 2, 1, b),
            OTHER: FetchResult(NONE, 3, 3, 0, other),
        }
        assert counts(cluster, "t") | {"messages_in": 0, "bytes_in": 0} == {
            "messages_in": 0, "bytes_in": 0, "total_produce_requests": 1, "total_fetch_requests": 2,
            "bytes_out": len(b),
        }  # fmt: skip
        assert counts(cluster)["bytes_out"] == len(b) + len(other) and counts(cluster)["total_fetch_requests"] == 4
        for offset, error in ((0, ErrorCode.OFFSET_OUT_OF_RANGE), (2, NONE), (3, ErrorCode.OFFSET_OUT_OF_RANGE)):
            results, _ = await fetched(cluster, wanted(b=offset))
            assert results == {B: FetchResult(error) if error else FetchResult(NONE, 2, 2, 1)}
        for limit, sizes in ((len(b), (len(b), 0)), (len(b) + len(other), (len(b), len(other))), (1, (len(b), 0))):
            results, _ = await fetched(cluster, wanted(b=1, other=0), max_bytes=limit)
            assert tuple(len(result.records) for result in results.values()) == sizes
            results, _ = await fetched(cluster, wanted(a=0, other=0), max_bytes=limit)
            assert len(results[OTHER].records) == len(other), "the first that has any gives one at least"

    run(tmp_path, scenario)


@pytest.mark.parametrize(("min_bytes", "wait_ms", "takes"), [(1, 0, 0), (1, 700, 0.7), (0, 700, 0), (119, 900, 0.5)])
def test_a_consumer_waits_for_enough_bytes(tmp_path: Path, min_bytes: int, wait_ms: int, takes: float) -> None:
    """A batch of 119 bytes comes to one partition after half a second where one waits for so much."""

    async def scenario(cluster: Cluster) -> None:
        manager, one = cluster.nodes[1].manager, build_batch([Record(0, 1, b"", b"v" * 51)])
        assert len(one) == 119
        waiting = asyncio.ensure_future(fetched(cluster, wanted(a=0, b=0), max_wait_ms=wait_ms, min_bytes=min_bytes))
        await cluster.world.sleep(0.25)
        assert manager.table.meters.waiting_fetch == (takes > 0)
        await cluster.world.sleep(0.25)
        if min_bytes > 1:
            await manager.producing.produce({B: one}, acks=1, timeout_ms=9)
        results, took = await waiting
        assert took == pytest.approx(takes) and manager.table.meters.waiting_fetch == 0
        assert [len(result.records) for result in results.values()] == [0, 119 if min_bytes > 1 else 0]
        asked = counts(cluster)["total_fetch_requests"]
        assert asked == (4 if takes else 2), "read when it came, and when it was answered"

    run(tmp_path, scenario)


def test_a_consumer_is_answered_when_all_that_came_is_enough(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, one = cluster.nodes[1].manager, batch()
        how = {"max_wait_ms": 9_000, "min_bytes": 2 * len(one)}
        waiting = asyncio.ensure_future(fetched(cluster, wanted(a=0, b=0), **how))
        for tp in (A, B):
            await cluster.world.sleep(0.5)
            await manager.producing.produce({tp: one}, acks=1, timeout_ms=9)
        results, took = await waiting
        assert took == pytest.approx(1.0) and [len(result.records) for result in results.values()] == [len(one)] * 2

    run(tmp_path, scenario)


def test_what_came_while_a_follower_waited_is_told_with_its_next_fetch(tmp_path: Path) -> None:
    """Of each partition by itself; what was there at once is told at once."""

    async def scenario(cluster: Cluster) -> None:
        manager, one = cluster.nodes[1].manager, batch()
        for tp in (A, B, OTHER):
            cluster.appoint(tp, 1, (1,), (1, 3))
        await manager.producing.produce({OTHER: one}, acks=1, timeout_ms=9)
        position = {tp: FetchPartition(0, 1 << 20, 1) for tp in (A, OTHER, B)}
        how = {"replica_id": 3, "max_wait_ms": 9_000, "min_bytes": 2 * len(one)}
        waiting = asyncio.ensure_future(fetched(cluster, position, **how))
        await cluster.world.sleep(0.5)
        await manager.producing.produce({B: one}, acks=1, timeout_ms=9)
        assert (await waiting)[1] == pytest.approx(0.5)
        await fetched(cluster, {tp: FetchPartition(1, 100, 1) for tp in (B, OTHER)}, replica_id=3)
        await cluster.stop(1)
        rows = [row for row in cluster.rows(1) if row["ev"] == "fetch"]
        told = [(row["topic"], row["partition"], row["offset"], row["bytes"]) for row in rows]
        size = len(one)
        assert sorted(told) == [("t", 0, 0, 0), ("t", 1, 0, 0), ("t", 1, 1, size), ("u", 0, 0, size), ("u", 0, 1, 0)]

    run(tmp_path, scenario)


def test_what_followers_are_given_is_counted_and_what_a_reassignment_adds_beside_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.nodes[1].manager.producing.produce({A: batch(2), B: batch(3)}, acks=1, timeout_ms=9)
        sizes = [cluster.nodes[1].partition(tp).log.size_bytes for tp in (A, B)]
        cluster.appoint(A, 1, (1,), (1, 2))
        state = LeaderAndIsr(leader=1, isr=(1,), leader_epoch=1, partition_epoch=1)
        cluster.zk.states[B] = (state, 1)
        assignment = ReplicaAssignment(replicas=(1, 2), adding_replicas=(2,))
        entry = LeaderAndIsrEntry(topic_partition=B, state=state, assignment=assignment, is_new=False)
        for broker in (1, 2):
            cluster.nodes[broker].manager.leader_and_isr([entry])
        await cluster.world.until(lambda: cluster.isr(A) == cluster.isr(B) == (1, 2), within_s=5, what="2 has both")
        assert copied(cluster) == (0, 0, sum(sizes), sizes[1])
        assert copied(cluster, 2) == (sum(sizes), sizes[1], 0, 0)
        assert "bytes_out" not in counts(cluster), "that of clients"

    run(tmp_path, scenario, brokers=(1, 2))


def test_a_throttle_counts_each_partition_that_gives_records_with_what_it_costs_beside_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        for tp in (A, B, OTHER):
            cluster.appoint(tp, 1, (1,), (1, 3))
        await manager.producing.produce({A: batch(), OTHER: batch()}, acks=1, timeout_ms=9)
        manager.configs.set_throttled_replicas("t", "*", "")
        position = {tp: FetchPartition(0, 1 << 20, 1) for tp in (B, OTHER, A)}
        results, _ = await fetched(cluster, position, replica_id=3)
        assert [len(result.records) > 0 for result in results.values()] == [False, True, True]
        rate = manager.table.leader_quota.rate(cluster.world.clock.now_ms())
        assert rate == len(results[A].records) + 42

    run(tmp_path, scenario)


# -- how long a follower waits ----------------------------------------------------------------------------------------


def requests_of_follower(cluster: Cluster) -> list[tuple[float, int, list[str]]]:
    """(when, how long it would wait, partitions of its session) of each fetch that broker 1 is asked from now on."""
    seen: list[tuple[float, int, list[str]]] = []
    fetching = cluster.nodes[1].manager.fetching
    answer = fetching.fetch

    async def fetch(request: FetchRequest) -> Any:
        names = sorted(f"{tp.topic}-{tp.partition}" for tp in request.partitions)
        seen.append((round(cluster.world.loop.time() - began, 1), request.max_wait_ms, names))
        return await answer(request)

    began = cluster.world.loop.time()
    fetching.fetch = fetch
    return seen


def test_a_follower_waits_longer_while_nothing_comes_and_not_so_when_something_did(tmp_path: Path) -> None:
    """From half a second on, twice as long each time; at once as long as it may where nothing is left to learn."""

    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[3].paused.add(A)
        seen = requests_of_follower(cluster)
        cluster.appoint(A, 1, (1, 2, 3), (1, 2, 3))
        await cluster.produce(A, 1)
        await cluster.world.sleep(38)
        assert [wait for _, wait, _ in seen] == [12_000, 500, 1_000, 2_000, 4_000, 8_000, 12_000, 12_000]
        assert [at for at, _, _ in seen] == [0, 0, 0.5, 1.5, 3.5, 7.5, 15.5, 27.5]
        seen.clear()
        await cluster.produce(A, 1)
        await cluster.world.sleep(2)
        assert [wait for _, wait, _ in seen] == [500, 1_000, 2_000], "what has come may be followed by more"
        cluster.nodes[3].paused.clear()
        await cluster.world.sleep(20)
        assert [wait for _, wait, _ in seen][-1] == 12_000

    run(tmp_path, scenario, brokers=(1, 2, 3), replica_fetch_wait_max_ms=12_000, replica_lag_time_max_ms=1_000_000)


@pytest.mark.parametrize("first", ["is paused", "is failed", "is throttled"])
def test_one_partition_holds_up_no_other_of_its_fetcher(tmp_path: Path, first: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        follower = cluster.nodes[2].manager
        for tp in (A, B):
            cluster.appoint(tp, 1, (1,), (1, 2))
            await cluster.produce(tp, 1)
        await cluster.world.sleep(2)
        if first == "is paused":
            cluster.nodes[2].paused.add(A)
        elif first == "is failed":
            cluster.appoint(A, 1, (1,), (1, 2), to=(1,))
        else:
            follower.configs.set_throttled_replicas("t", "", "0:2")
            follower.configs.set_throttle_rates(follower=0)
            cluster.stop_replica(A, 2, delete=True)
            follower.table.follower_quota.record(1, cluster.world.clock.now_ms())
            cluster.appoint(A, 1, (1,), (1, 2))
        await cluster.world.sleep(3)
        for tp in (A, B):
            await cluster.produce(tp, 1)
        await cluster.world.sleep(2)
        ends = [cluster.nodes[2].log_end(tp) for tp in (A, B)]
        assert ends == [0 if first == "is throttled" else 1, 2]

    run(tmp_path, scenario, brokers=(1, 2))


def test_what_is_given_up_while_an_answer_is_under_way_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for tp in (A, B):
            cluster.appoint(tp, 1, (1,), (1, 2))
        await cluster.world.sleep(1)
        answer = cluster.nodes[1].answer_fetch

        async def slowly(body: Any) -> Any:
            made = await answer(body)
            await asyncio.sleep(0.3)
            return made

        cluster.nodes[1].answer_fetch = slowly
        await cluster.world.sleep(1)
        await cluster.nodes[1].manager.producing.produce({A: batch(), B: batch()}, acks=1, timeout_ms=9)
        await cluster.world.sleep(0.1)
        cluster.stop_replica(A, 2, delete=True)
        await cluster.world.sleep(0.25)
        assert cluster.nodes[2].log_end(B) == 1

    run(tmp_path, scenario, brokers=(1, 2))


def test_an_empty_log_holds_up_no_other_that_has_to_be_cut(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for tp in (A, B):
            cluster.appoint(tp, 1, (1,), (1, 2))
        await cluster.produce(B, 1)
        await cluster.world.sleep(2)
        seen = requests_of_follower(cluster)
        for tp in (A, B):
            cluster.appoint(tp, 1, (1,), (1, 2))
        await cluster.world.sleep(0.2)
        assert ["t-0", "t-1"] in [names for _, _, names in seen]

    run(tmp_path, scenario, brokers=(1, 2))

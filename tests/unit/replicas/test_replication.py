"""Leaders and followers as a cluster sees them: records travel, the ISR follows, restarts and failures lose nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALL = (1, 2, 3)


def run(cluster_of: type[Cluster], tmp_path: Path, scenario: Any, **settings: Any) -> Any:
    return cluster_of.run(tmp_path, scenario, brokers=ALL, **settings)


def test_acks_all_is_answered_when_every_member_has_the_records(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        result = await cluster.produce(TP, 1, [b"a", b"b"], acks=-1)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
        assert [cluster.nodes[b].log_end(TP) for b in ALL] == [2, 2, 2]
        assert cluster.nodes[1].partition(TP).hw == 2
        await cluster.world.sleep(1)
        assert [cluster.nodes[b].partition(TP).hw for b in ALL] == [2, 2, 2]
        for broker in ALL:
            data = b"".join(cluster.nodes[broker].manager.read_records(TP))
            assert [r.value for r in iterate(data)] == [b"a", b"b"]

    run(cluster_of, tmp_path, scenario)


def test_a_silent_follower_leaves_the_isr_and_returns(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.world.sleep(5)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(2)
        await cluster.produce(TP, 1)
        await cluster.world.sleep(60)
        assert cluster.isr(TP) == (1, 2)
        assert cluster.nodes[1].partition(TP).hw == 1
        cluster.nodes[3].paused.clear()
        await cluster.world.until(lambda: cluster.isr(TP) == (1, 2, 3), within_s=5, what="3 is back")
        assert [partitions for _, partitions in cluster.zk.propagated] == [(TP,)]
        await cluster.world.sleep(10)
        assert len(cluster.zk.propagated) == 2

    run(cluster_of, tmp_path, scenario)


@pytest.mark.known_failure("I3")
def test_a_follower_at_the_end_of_an_idle_log_stays_in_the_isr(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.world.sleep(5)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(300)
        assert cluster.isr(TP) == ALL

    run(cluster_of, tmp_path, scenario)


def test_a_new_leader_makes_followers_cut_what_was_never_committed(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"committed"], acks=-1)
        await cluster.world.sleep(2)
        for broker in (2, 3):
            cluster.nodes[broker].paused.add(TP)
        await cluster.world.sleep(1)
        await cluster.produce(TP, 1, [b"lost-1", b"lost-2"])
        for broker in (2, 3):
            cluster.nodes[broker].paused.clear()
        cluster.appoint(TP, 2, (2, 3), ALL)
        await cluster.produce(TP, 2, [b"new"])
        await cluster.world.until(lambda: cluster.isr(TP) == (2, 3, 1), within_s=10, what="1 has rejoined")
        logs = [b"".join(cluster.nodes[b].manager.read_records(TP)) for b in ALL]
        assert logs[0] == logs[1] == logs[2]
        assert [r.value for r in iterate(logs[0])] == [b"committed", b"new"]

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("clean", [pytest.param(True, id="after a clean stop"), pytest.param(False, id="after a kill")])
def test_a_restarted_broker_has_its_log_and_catches_up(cluster_of: type[Cluster], tmp_path: Path, clean: Any) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        await cluster.world.sleep(7)
        await cluster.stop(3, clean=clean)
        cluster.appoint(TP, 1, (1, 2), ALL)
        await cluster.produce(TP, 1, [b"b"], acks=-1)
        await cluster.start(3)
        assert cluster.nodes[3].manager.table.dirs.get(TP).leo == 1
        cluster.appoint(TP, 1, (1, 2), ALL)
        await cluster.world.until(lambda: cluster.isr(TP) == (1, 2, 3), within_s=5, what="3 is back")
        assert cluster.nodes[3].log_end(TP) == 2

    run(cluster_of, tmp_path, scenario)


def test_min_insync_replicas_refuses_acks_all_only(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            node.manager.configs.set_topic_config("t", {"min.insync.replicas": "2"})
        cluster.appoint(TP, 1, (1,), ALL, to=(1,), is_new=True)
        assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.nodes[1].log_end(TP) == 0
        assert (await cluster.produce(TP, 1, acks=1)).error is ErrorCode.NONE
        assert cluster.nodes[1].partition(TP).hw == 0

    run(cluster_of, tmp_path, scenario)


def test_acks_all_times_out_while_a_member_is_silent(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.world.sleep(5)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        before = cluster.world.loop.time()
        assert (await cluster.produce(TP, 1, acks=-1, timeout_ms=1_500)).error is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.loop.time() - before == pytest.approx(1.5)
        assert cluster.nodes[1].log_end(TP) == 1

    run(cluster_of, tmp_path, scenario)


def test_a_waiting_producer_learns_that_leadership_moved(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.world.sleep(5)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        waiting = asyncio.ensure_future(cluster.produce(TP, 1, acks=-1))
        await cluster.world.sleep(1)
        cluster.appoint(TP, 2, ALL, ALL)
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(cluster_of, tmp_path, scenario)


@pytest.mark.known_failure("I5")
def test_a_refused_isr_write_stays_pending_until_the_next_leader_and_isr(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.world.sleep(1)
        state, version = cluster.zk.states[TP]
        cluster.zk.states[TP] = (state, version + 1)
        await cluster.produce(TP, 1)
        await cluster.world.sleep(200)
        assert cluster.zk.refused == [TP]
        cluster.appoint(TP, 1, ALL, ALL)
        await cluster.produce(TP, 1)
        await cluster.world.sleep(60)
        assert cluster.isr(TP) == (1, 2)

    run(cluster_of, tmp_path, scenario)


CLASSES = [
    pytest.param(5, None, ErrorCode.STALE_CONTROLLER_EPOCH, id="an older leader epoch"),
    pytest.param(0, None, ErrorCode.STALE_CONTROLLER_EPOCH, id="the same leader epoch"),
    pytest.param(-1, (2, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="a newer one, but not our replica"),
]


@pytest.mark.parametrize(("age", "replicas", "expected"), CLASSES)
@pytest.mark.known_failure("C1")
def test_leader_and_isr_is_classified_by_its_leader_epoch(
    cluster_of: type[Cluster], tmp_path: Path, age: Any, replicas: Any, expected: Any
) -> None:
    from controller.wire.control import LeaderAndIsrEntry
    from controller.wire.types import LeaderAndIsr, ReplicaAssignment

    async def scenario(cluster: Cluster) -> None:
        for _ in range(8):
            cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        entry = LeaderAndIsrEntry(
            topic_partition=TP,
            state=LeaderAndIsr(leader=1, isr=(1,), leader_epoch=7 - age, partition_epoch=99),
            assignment=ReplicaAssignment(replicas=replicas or ALL),
        )
        assert cluster.nodes[1].manager.leader_and_isr([entry]) == {TP: expected}
        assert cluster.nodes[1].partition(TP).leader_epoch == 7

    run(cluster_of, tmp_path, scenario)


@pytest.mark.known_failure("I4")
def test_a_follower_of_an_unknown_leader_keeps_its_epoch_but_gets_its_log(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        answers = cluster.appoint(TP, 9, (9,), (9, 2), to=(2,), is_new=True)
        assert answers == {2: ErrorCode.NONE}
        assert cluster.nodes[2].partition(TP).leader_epoch == -1
        assert cluster.nodes[2].log_end(TP) == 0

    run(cluster_of, tmp_path, scenario)


@pytest.mark.parametrize("how", ["cut", "emptied"])
def test_the_high_watermark_of_a_follower_is_within_its_log(
    cluster_of: type[Cluster], tmp_path: Path, how: str
) -> None:
    """However far the leader's is; also after a cut below it, as after an unclean election."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 9, (9,), (9, 2), to=(2,), is_new=True)
        partition = cluster.nodes[2].partition(TP)
        assert partition.log is not None
        partition.log.append_as_leader(build_values([(None, b"x")] * 7, timestamp=1), leader_epoch=0, now_ms=1)
        partition.log.append_as_leader(build_values([(None, b"y")] * 3, timestamp=1), leader_epoch=0, now_ms=1)
        for of_the_leader, own in ((40, 10), (9, 9)):
            partition.follow_watermark(of_the_leader)
            assert partition.hw == own
        if how == "cut":
            partition.truncate(7)
        else:
            partition.truncate_fully(4)
        assert partition.hw == partition.log.leo == (7 if how == "cut" else 4)

    run(cluster_of, tmp_path, scenario)


STOPS = [
    pytest.param(0, False, ErrorCode.NONE, True, id="equal epoch, keep"),
    pytest.param(-1, False, ErrorCode.FENCED_LEADER_EPOCH, True, id="older epoch"),
    pytest.param(1, True, ErrorCode.NONE, False, id="newer epoch, delete"),
    pytest.param(-9, True, ErrorCode.NONE, False, id="during topic deletion"),
]


@pytest.mark.parametrize(("ahead", "delete", "expected", "is_kept"), STOPS)
@pytest.mark.known_failure("D4")
def test_stop_replica(
    cluster_of: type[Cluster], tmp_path: Path, ahead: Any, delete: Any, expected: Any, is_kept: Any
) -> None:
    async def scenario(cluster: Cluster) -> None:
        for _ in range(3):
            cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        epoch = -2 if ahead == -9 else 2 + ahead
        assert cluster.stop_replica(TP, 2, delete=delete, epoch=epoch) is expected
        folder = tmp_path / "2-a"
        assert (folder / "t-0").exists() is is_kept
        renamed = list(folder.glob("t-0.*-delete"))
        assert len(renamed) == (0 if is_kept else 1)
        await cluster.world.sleep(61)
        assert not list(folder.glob("*-delete"))
        if not is_kept:
            with pytest.raises(KeyError):
                cluster.nodes[2].partition(TP)

    run(cluster_of, tmp_path, scenario)


@pytest.mark.known_failure("R5")
def test_a_failed_log_dir_takes_its_partitions_offline_and_no_other(cluster_of: type[Cluster], tmp_path: Path) -> None:
    other = TopicPartition("u", 0)

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        cluster.appoint(other, 1, ALL, ALL, is_new=True)
        node = cluster.nodes[1]
        path = str(node.partition(TP).log.log_dir)
        assert node.partition(other).log.log_dir != node.partition(TP).log.log_dir
        node.manager.fail_log_dir(path)
        assert node.failed_dirs == [path]
        assert (await cluster.produce(TP, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await cluster.produce(other, 1)).error is ErrorCode.NONE
        assert cluster.appoint(TP, 2, (2, 3), ALL)[1] is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.appoint(TopicPartition("v", 0), 1, (1,), (1,))[1] is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.appoint(TopicPartition("w", 0), 1, (1,), (1,), is_new=True)[1] is ErrorCode.NONE
        assert [d.error for d in node.manager.describe_log_dirs()].count(ErrorCode.KAFKA_STORAGE_ERROR) == 1
        assert not node.manager.all_log_dirs_failed

    run(cluster_of, tmp_path, scenario, dirs=("a", "b"))


def test_an_io_error_at_an_append_fails_the_dir(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1,), is_new=True)
        log = cluster.nodes[1].partition(TP).log
        log.segments[0].log_path.mkdir()
        assert (await cluster.produce(TP, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.nodes[1].failed_dirs == [str(tmp_path / "1-a")]
        assert cluster.nodes[1].manager.all_log_dirs_failed

    run(cluster_of, tmp_path, scenario)


def test_a_consumer_waits_for_committed_records_only(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.world.sleep(5)
        for broker in (2, 3):
            cluster.nodes[broker].paused.add(TP)
        await cluster.world.sleep(1)
        await cluster.produce(TP, 1, [b"a"])
        partitions = {TP: FetchPartition(fetch_offset=0, max_bytes=1 << 20)}

        def fetch(max_wait_ms: Any) -> Any:
            request = FetchRequest(partitions=partitions, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20)
            return cluster.nodes[1].manager.fetching.fetch(request)

        empty = await fetch(300)
        assert (empty[TP].error, empty[TP].records, empty[TP].high_watermark) == (ErrorCode.NONE, b"", 0)
        waiting = asyncio.ensure_future(fetch(20_000))
        await cluster.world.sleep(1)
        assert not waiting.done()
        for broker in (2, 3):
            cluster.nodes[broker].paused.clear()
        result = (await waiting)[TP]
        assert [r.value for r in iterate(result.records)] == [b"a"]

    run(cluster_of, tmp_path, scenario)


FETCH_ERRORS = [
    pytest.param({"fetch_offset": 5}, -1, ErrorCode.OFFSET_OUT_OF_RANGE, id="beyond the end"),
    pytest.param({"current_leader_epoch": 0}, -1, ErrorCode.FENCED_LEADER_EPOCH, id="an older epoch"),
    pytest.param({"current_leader_epoch": 9}, -1, ErrorCode.UNKNOWN_LEADER_EPOCH, id="a newer epoch"),
    pytest.param({"current_leader_epoch": 1}, 8, ErrorCode.UNKNOWN_LEADER_EPOCH, id="no replica, with epoch"),
    pytest.param({}, 8, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="no replica, without epoch"),
]


@pytest.mark.parametrize(("fields", "replica_id", "expected"), FETCH_ERRORS)
def test_a_fetch_is_refused(
    cluster_of: type[Cluster], tmp_path: Path, fields: Any, replica_id: Any, expected: Any
) -> None:
    async def scenario(cluster: Cluster) -> None:
        for _ in range(2):
            cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        partitions = {TP: FetchPartition(**{"fetch_offset": 0, "max_bytes": 100} | fields)}
        before = cluster.world.loop.time()
        results = await cluster.nodes[1].manager.fetching.fetch(
            FetchRequest(partitions=partitions, replica_id=replica_id, max_wait_ms=500, min_bytes=1, max_bytes=100)
        )
        assert results[TP].error is expected
        assert cluster.world.loop.time() == before

    run(cluster_of, tmp_path, scenario)


@pytest.mark.feature("002-09")
def test_a_throttled_new_replica_copies_at_about_the_rate(cluster_of: type[Cluster], tmp_path: Path) -> None:
    rate = 20_000

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1,), to=(1,), is_new=True)
        for _ in range(40):
            await cluster.produce(TP, 1, [b"x" * 9_900])
        leader = cluster.nodes[1].manager
        leader.configs.set_throttled_replicas("t", "0:1", "")
        leader.configs.set_throttle_rates(leader=rate)
        cluster.appoint(TP, 1, (1,), (1, 2), is_new=True)
        before = cluster.world.loop.time()
        await cluster.world.until(lambda: 2 in cluster.isr(TP), within_s=60, what="2 has copied the log")
        took = cluster.world.loop.time() - before
        assert 0.5 * 400_000 / rate < took < 2 * 400_000 / rate
        assert any(r.get("throttled") for r in cluster.rows(1))

    run(cluster_of, tmp_path, scenario, replica_fetch_max_bytes=10_000, replica_fetch_response_max_bytes=10_000)


def test_a_throttled_follower_leaves_out_what_is_not_in_sync(cluster_of: type[Cluster], tmp_path: Path) -> None:
    rate = 20_000

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1,), to=(1,), is_new=True)
        for _ in range(40):
            await cluster.produce(TP, 1, [b"x" * 9_900])
        follower = cluster.nodes[2].manager
        follower.configs.set_throttled_replicas("t", "", "*")
        follower.configs.set_throttle_rates(follower=rate)
        cluster.appoint(TP, 1, (1,), (1, 2), is_new=True)
        before = cluster.world.loop.time()
        await cluster.world.until(lambda: 2 in cluster.isr(TP), within_s=60, what="2 has copied the log")
        took = cluster.world.loop.time() - before
        assert 0.5 * 400_000 / rate < took < 2 * 400_000 / rate

    run(cluster_of, tmp_path, scenario, replica_fetch_max_bytes=10_000, replica_fetch_response_max_bytes=10_000)


def test_records_are_deleted_on_all_replicas_before_the_answer(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        for value in (b"a", b"b", b"c"):
            await cluster.produce(TP, 1, [value], acks=-1)
        manager = cluster.nodes[1].manager
        too_far = await manager.offsets.delete_records({TP: 4}, timeout_ms=1_000)
        assert too_far[TP].error is ErrorCode.OFFSET_OUT_OF_RANGE
        done = await manager.offsets.delete_records({TP: 2}, timeout_ms=10_000)
        assert (done[TP].error, done[TP].low_watermark) == (ErrorCode.NONE, 2)
        assert [cluster.nodes[b].partition(TP).log.log_start_offset for b in ALL] == [2, 2, 2]

    run(cluster_of, tmp_path, scenario)


@pytest.mark.feature("002-17")
def test_a_replica_that_does_not_exist_yet_goes_to_the_dir_asked_for(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        target = str(tmp_path / "1-b")
        cluster.metadata.known.add(TP)
        assert manager.moves.alter({TP: target}) == {TP: ErrorCode.REPLICA_NOT_AVAILABLE}
        assert manager.moves.alter({TP: "/nowhere"}) == {TP: ErrorCode.LOG_DIR_NOT_FOUND}
        cluster.appoint(TP, 1, (1,), (1,), is_new=True)
        assert str(cluster.nodes[1].partition(TP).log.log_dir) == target
        assert manager.moves.alter({TP: target}) == {TP: ErrorCode.NONE}

    run(cluster_of, tmp_path, scenario, dirs=("a", "b"))


def test_a_fetcher_whose_leader_dies_goes_on_with_the_next_one(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        await cluster.produce(TP, 1, [b"a"], acks=-1)
        await cluster.stop(1, clean=False)
        await cluster.world.sleep(3)
        cluster.appoint(TP, 2, (2, 3), ALL)
        assert (await cluster.produce(TP, 2, [b"b"], acks=-1)).error is ErrorCode.NONE
        assert cluster.nodes[3].log_end(TP) == 2

    run(cluster_of, tmp_path, scenario)


def test_a_changed_min_isr_counts_at_once_and_stands_in_the_trace(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), ALL, to=(1,), is_new=True)
        await cluster.produce(TP, 1)
        assert cluster.nodes[1].partition(TP).hw == 1
        cluster.nodes[1].manager.configs.set_topic_config("t", {"min.insync.replicas": "2"})
        await cluster.produce(TP, 1)
        assert cluster.nodes[1].partition(TP).hw == 1
        assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.nodes[1].manager.configs.set_topic_config("t", {})
        await cluster.produce(TP, 1)
        assert cluster.nodes[1].partition(TP).hw == 3
        told = [(r["ev"], r.get("key"), r.get("value"), r.get("hw")) for r in cluster.rows(1) if r.get("topic") == "t"]
        assert told[1:] == [
            ("append", None, None, 1),
            ("config", "min.insync.replicas", "2", None),
            ("append", None, None, 1),
            ("config", "*", None, None),
            ("append", None, None, 3),
        ]

    run(cluster_of, tmp_path, scenario)


def test_a_follower_with_nothing_to_learn_asks_seldom_and_a_new_partition_does_not_wait_for_it(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        asked: list[tuple[float, int]] = []
        serve = cluster.nodes[1].answer_fetch

        async def counted(body: Any) -> Any:
            if body.replica_id == 2:
                asked.append((cluster.world.loop.time(), body.max_wait))
            return await serve(body)

        cluster.nodes[1].answer_fetch = counted
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(60)
        waits = [wait for _, wait in asked]
        assert set(waits) == {10_000}
        assert len(asked) <= 7
        asked.clear()
        other = TopicPartition("t", 1)
        cluster.appoint(other, 1, (1, 2), (1, 2), is_new=True)
        before = cluster.world.loop.time()
        assert (await cluster.produce(other, 1, acks=-1, timeout_ms=5_000)).error is ErrorCode.NONE
        assert cluster.world.loop.time() - before < 1
        before = cluster.world.loop.time()
        assert (await cluster.produce(TP, 1, acks=-1, timeout_ms=5_000)).error is ErrorCode.NONE
        assert cluster.world.loop.time() - before < 1
        assert cluster.isr(TP) == (1, 2)

    run(cluster_of, tmp_path, scenario, replica_fetch_wait_max_ms=10_000)


def test_a_follower_that_waits_for_long_hears_of_the_watermark_in_half_a_second(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    """As at Kafka's `replica.fetch.wait.max.ms`: the fetch after one that brought records does not wait for long."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(3)
        for end in (1, 2, 3):
            assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.NONE
            await cluster.world.sleep(0.6)
            assert cluster.nodes[2].partition(TP).hw == end
        cluster.appoint(TP, 1, (1, 2), (1, 2))
        await cluster.world.sleep(0.6)
        assert cluster.nodes[2].partition(TP).hw == 3

    run(cluster_of, tmp_path, scenario, replica_fetch_wait_max_ms=10_000)


def test_without_a_longer_setting_an_idle_follower_asks_every_half_second(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(5)
        fetches = sum(row.get("n", 1) for row in cluster.rows(1) if row["ev"] == "fetch")
        await cluster.world.sleep(10)
        cluster.nodes[1].manager.table.trace.flush_runs()
        after = sum(row.get("n", 1) for row in cluster.rows(1) if row["ev"] == "fetch")
        assert 10 <= after - fetches <= 42

    run(cluster_of, tmp_path, scenario)

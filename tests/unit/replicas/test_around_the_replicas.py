"""What the replicas of a broker have in common: slow disks, throttles, moves of many at a time, the end of a life."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

PARTITIONS = [TopicPartition("t", number) for number in range(12)]
STRANGER = TopicPartition("x", 0)


def run(tmp_path: Path, scenario: Any, *, count: int = 2, dirs: Any = ("a", "b"), **settings: Any) -> None:
    """Broker 1 leads so many partitions, with three batches each; the first in its first dir, the next in the next."""

    async def prepared(cluster: Cluster) -> None:
        for tp in PARTITIONS[:count]:
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
            for _ in range(3):
                await cluster.produce(tp, 1, [b"x" * 100])
        await scenario(cluster)

    Cluster.run(tmp_path, prepared, brokers=(1,), dirs=dirs, **settings)


# -- slow disks -------------------------------------------------------------------------------------------------------


def test_who_waits_for_slow_disks_waits_for_the_slowest_of_all_that_it_touches(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        table, loop = cluster.nodes[1].manager.table, cluster.world.loop
        asked: dict[str, int] = {}
        speeds = {str(tmp_path / "1-a"): 100, str(tmp_path / "1-b"): 10}

        def disk_wait_s(name: str, size_bytes: int) -> float:
            asked[Path(name).name] = size_bytes
            return size_bytes / speeds[name]

        table.disk_wait_s = disk_wait_s
        a, b, other = PARTITIONS[:3]
        table.partitions[STRANGER] = table.partitions[other]
        table.partitions[other].log, gone = None, table.partitions[other].log
        for sizes, expected, waits in (
            ([(a, 10)], {"1-a": 10}, 0.1),
            (
                [(TopicPartition("y", 0), 50), (STRANGER, 9), (a, 0), (a, 10), (b, 4), (a, 30)],
                {"1-a": 40, "1-b": 4},
                0.4,
            ),
            ([(b, 1), (a, 70), (b, 1)], {"1-a": 70, "1-b": 2}, 0.7),
            ([(a, 0), (other, 99)], {}, 0),
            ([], {}, 0),
        ):
            asked.clear()
            began = loop.time()
            await table.wait_for_disks(sizes)
            assert (asked, loop.time() - began) == (expected, pytest.approx(waits))
        table.partitions[other].log = gone
        del table.partitions[STRANGER]

    run(tmp_path, scenario, count=3)


@pytest.mark.parametrize("wait_s", [0.0, 0.5])
def test_a_slow_disk_holds_up_who_writes_and_who_reads_but_no_fetch_that_finds_nothing(
    tmp_path: Path, wait_s: float
) -> None:
    """Nothing is written before the disk has had its time."""

    async def scenario(cluster: Cluster) -> None:
        manager, loop = cluster.nodes[1].manager, cluster.world.loop
        sizes: list[int] = []
        manager.table.disk_wait_s = lambda name, size_bytes: sizes.append(size_bytes) or wait_s
        one, log = PARTITIONS[0], cluster.nodes[1].partition(PARTITIONS[0]).log
        batch, began = cluster.batch([b"v" * 50]), loop.time()
        writing = asyncio.ensure_future(manager.producing.produce({one: batch}, acks=1, timeout_ms=100))
        await cluster.world.sleep(0.4)
        assert log.leo == (3 if wait_s else 4)
        assert ((await writing)[one].error, sizes) == (ErrorCode.NONE, [len(batch)])
        assert loop.time() == pytest.approx(began + max(0.4, wait_s))
        for offset, size in ((3, len(batch)), (4, 0)):
            sizes.clear()
            began, partitions = loop.time(), {one: FetchPartition(fetch_offset=offset, max_bytes=1 << 20)}
            request = FetchRequest(partitions=partitions, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
            found = await manager.fetching.fetch(request)
            assert (len(found[one].records), sizes) == (size, [size] if size else [])
            assert loop.time() == pytest.approx(began + (wait_s if size else 0))

    run(tmp_path, scenario)


# -- throttles --------------------------------------------------------------------------------------------------------


def test_each_rate_is_set_and_traced_by_itself(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        table, names = manager.table, ("leader", "follower", "alter_log_dirs")
        for rates in ((1, 2, 3), (1, 5, 3), (1, 5, 4), (None, 5, None), (None, None, None), (None, None, 7)):
            manager.configs.set_throttle_rates(**dict(zip(names, rates, strict=True)))
            quotas = table.leader_quota, table.follower_quota, table.alter_log_dirs_quota
            assert tuple(quota.bound for quota in quotas) == rates
        await cluster.stop(1)
        keys = "leader.replication", "follower.replication", "replica.alter.log.dirs"
        rows = [(row["key"], row.get("value")) for row in cluster.rows(1) if row.get("key", "").startswith(keys)]
        short = [(key[:3], value) for key, value in rows]
        assert short == [
            ("lea", "1"), ("fol", "2"), ("rep", "3"), ("fol", "5"), ("rep", "4"), ("lea", None), ("rep", None),
            ("fol", None), ("rep", "7"),
        ]  # fmt: skip

    run(tmp_path, scenario)


# -- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "movers"), [(None, 2), (1, 1), (2, 2)])
def test_many_move_at_once_and_at_no_cost_but_that_of_the_disks(
    tmp_path: Path, threads: int | None, movers: int
) -> None:
    """One for each dir, where nothing is said; those that are numbered like one that is there already have nothing to
    move. What cannot move is told so, each by itself."""

    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        table, loop = manager.table, cluster.world.loop
        target = tmp_path / "1-c"
        manager.configs.set_throttle_rates(alter_log_dirs=0)
        table.alter_log_dirs_quota.record(1, cluster.world.clock.now_ms())
        wanted = {STRANGER: str(target), **dict.fromkeys(PARTITIONS, str(target))}
        codes = manager.moves.alter(wanted)
        assert codes == {STRANGER: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **dict.fromkeys(PARTITIONS, ErrorCode.NONE)}
        moving = [table.partitions[tp] for tp in PARTITIONS if table.partitions[tp].log.log_dir != target]
        assert {(p.future_log.leo, p.future_hw, p.future_cut) for p in moving} == {(0, 0, None)} and len(moving) == 8
        await cluster.world.sleep(2)
        assert table.supervisor.running.count("log-dir-move") == movers
        manager.moves.pause([PARTITIONS[0]])
        manager.moves.resume([STRANGER, TopicPartition("y", 1), *PARTITIONS])
        manager.configs.set_throttle_rates()
        began = loop.time()
        await cluster.world.until(
            lambda: all(p.log.log_dir == target for p in moving), within_s=60, what="all have moved"
        )  # fmt: skip
        assert loop.time() - began < 1.2, "after the pause for the throttle"
        assert all((p.log.leo, p.hw, p.future_log) == (3, 3, None) for p in moving)

    run(
        tmp_path, scenario, count=12, dirs=("a", "b", "c"), num_replica_alter_log_dirs_threads=threads,
        replica_fetch_max_bytes=1, replica_fetch_response_max_bytes=1,
    )  # fmt: skip


def test_what_has_nothing_to_copy_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, target = cluster.nodes[1].manager, tmp_path / "1-b"
        empty = [TopicPartition("e", number) for number in range(12)]
        for tp in empty:
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
        began = cluster.world.loop.time()
        manager.moves.alter(dict.fromkeys(empty, str(target)))
        moving = [manager.table.partitions[tp] for tp in empty]
        await cluster.world.until(
            lambda: all(p.log.log_dir == target for p in moving), within_s=60, what="all have moved"
        )  # fmt: skip
        assert cluster.world.loop.time() - began < 0.1

    run(tmp_path, scenario, dirs=("a", "b"))


def test_a_move_is_not_taken_up_for_a_replica_that_is_not_served(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        table, tp = manager.table, PARTITIONS[0]
        manager.configs.set_throttle_rates(alter_log_dirs=0)
        table.alter_log_dirs_quota.record(1, cluster.world.clock.now_ms())
        assert manager.moves.alter({tp: str(tmp_path / "1-b")}) == {tp: ErrorCode.NONE}
        partition = table.partitions[tp]
        future, log = partition.future_log, partition.log
        for served in (None, partition):
            partition.log = partition.future_log = None
            if served is None:
                del table.partitions[tp]
            else:
                table.partitions[tp] = partition
            manager.moves.resume([tp])
            assert partition.future_log is None
        partition.log = log
        manager.moves.resume([tp])
        assert partition.future_log is future

    run(tmp_path, scenario)


def test_a_throttled_move_looks_again_after_its_backoff(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, tp = cluster.nodes[1].manager, PARTITIONS[0]
        partition, quota = manager.table.partitions[tp], manager.table.alter_log_dirs_quota
        quota.bound = 0
        quota.record(1, cluster.world.clock.now_ms())
        assert manager.moves.alter({tp: str(tmp_path / "1-b")}) == {tp: ErrorCode.NONE}
        for waits, is_there in ((0.9995, False), (0.001, True)):
            await cluster.world.sleep(waits)
            assert (partition.log.log_dir.name == "1-b") is is_there
            quota.bound = None

    run(tmp_path, scenario)


def test_a_leader_lags_behind_nobody_and_a_fetcher_that_ends_is_named_after_its_leader(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, (tp, other) = cluster.nodes[1].manager, PARTITIONS[:2]
        cluster.appoint(tp, 1, (1, 2), (1, 2))
        await cluster.produce(tp, 1)
        partition = manager.table.partitions[tp]
        assert (partition.hw, partition.log.leo) == (3, 4)
        assert [r.offset_lag for d in manager.describe_log_dirs([tp]) for r in d.replicas] == [0]
        cluster.set_alive({1, 7})
        cluster.appoint(other, 7, (7,), (1, 7))
        await cluster.world.sleep(1)
        cluster.appoint(other, 1, (1,), (1, 7))
        assert "fetcher-7-stop" in manager.table.supervisor.running

    run(tmp_path, scenario)


# -- the end of a life ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["by default", "clean", "killed", "abandoned"])
def test_a_life_ends_once(tmp_path: Path, how: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        manager, tp = cluster.nodes[1].manager, PARTITIONS[0]
        waiters = cluster.nodes[1].partition(tp).higher_watermark
        before = waiters.wakes
        match how:
            case "by default":
                await manager.shutdown()
            case "clean":
                await manager.shutdown(broker_epoch=77)
            case "killed":
                await manager.shutdown(clean=False)
            case _:
                manager.abandon()
        await manager.shutdown(broker_epoch=5)
        marks = [tmp_path / f"1-{name}" / checkpoints.CLEAN_SHUTDOWN_FILE for name in "ab"]
        if how in ("by default", "clean"):
            epoch = 77 if how == "clean" else -1
            assert [json.loads(mark.read_text())["brokerEpoch"] for mark in marks] == [epoch, epoch]
            assert checkpoints.read_offsets(tmp_path / "1-a" / checkpoints.HIGH_WATERMARK_FILE) == {tp: 3}
        else:
            assert [mark.exists() for mark in marks] == [False, False]
        is_over = how != "abandoned"
        assert (waiters.wakes > before, manager.is_leader(tp)) == (is_over, not is_over)
        assert not manager.is_leader(STRANGER)
        downs = [row for row in cluster.rows(1) if row["ev"] == "down"]
        assert len(downs) == (how in ("by default", "clean"))

    run(tmp_path, scenario)


# -- settings of topics -----------------------------------------------------------------------------------------------


def test_topics_without_settings_of_their_own_share_one_value(tmp_path: Path) -> None:
    """Thousands of topics: neither memory nor time for each of them."""

    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[1].manager
        config_of, shared = manager.table.config_of, manager.table.config_of("t")
        assert config_of("u") is config_of("t") is shared and shared.segment_bytes == 1 << 30
        manager.configs.set_topic_config("u", {"segment.bytes": "5000"})
        assert (config_of("u").segment_bytes, config_of("t") is shared) == (5_000, True)
        manager.configs.set_broker_config({"log.segment.bytes": "7000"})
        assert (config_of("u").segment_bytes, config_of("t").segment_bytes) == (5_000, 7_000)
        assert config_of("v") is config_of("t") is not shared
        manager.configs.set_topic_config("u", {})
        assert config_of("u") is config_of("t")
        assert {log.config.segment_bytes for log in manager.table.dirs.all_logs()} == {7_000}

    run(tmp_path, scenario)


@pytest.mark.parametrize("of_one_topic", [True, False])
@pytest.mark.parametrize("was", ["the leader", "a follower", "not here"])
def test_how_many_must_be_in_sync_counts_for_a_leader_whatever_it_was_when_that_was_said(
    tmp_path: Path, was: str, of_one_topic: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        configs, tp = cluster.nodes[2].manager.configs, PARTITIONS[0]
        if was != "not here":
            cluster.appoint(tp, 2 if was == "the leader" else 1, (1, 2), (1, 2), is_new=True)
        for value, error in (("2", ErrorCode.NOT_ENOUGH_REPLICAS), (None, ErrorCode.NONE)):
            values = {} if value is None else {"min.insync.replicas": value}
            configs.set_topic_config("t", values) if of_one_topic else configs.set_broker_config(values)
            cluster.appoint(tp, 2, (2,), (1, 2))
            assert (await cluster.produce(tp, 2, acks=-1)).error is error
            if was == "a follower":
                cluster.appoint(tp, 1, (1, 2), (1, 2))

    Cluster.run(tmp_path, scenario, brokers=(1, 2))

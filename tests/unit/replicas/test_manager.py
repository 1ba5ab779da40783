"""What a data plane says of itself: what was repaired, who is alive, what lies where, which quotas it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_sim.replicas.manager import ReplicaManager
from broker_sim.replicas.types import FetchPartition
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 3)


def run(tmp_path: Path, scenario: Any, *, brokers: Any = (1, 2), **settings: Any) -> None:
    Cluster.run(tmp_path, scenario, brokers=brokers, **settings)


def test_what_was_repaired_at_the_start_is_told_piece_by_piece(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1,), is_new=True)
        for _ in range(2):
            await cluster.produce(TP, 1)
        log = cluster.nodes[1].partition(TP).log
        path, size = log.segments[0].log_path, log.size_bytes
        await cluster.stop(1, clean=False)
        path.write_bytes(path.read_bytes()[: size - 3])
        points = path.parent.parent / "replication-offset-checkpoint"
        points.write_text("no checkpoint")
        with capture_logs() as lines:
            await cluster.start(1)
        told = {line["path"]: line for line in lines if line["event"] == ev.LOG_RECOVERED}
        assert set(told) == {str(path), str(points)}
        torn, unreadable = told[str(path)], told[str(points)]
        assert (torn["topic"], torn["partition"], torn["lost_bytes"]) == ("t", 0, size // 2 - 3)
        assert torn["reason"] == "the last bytes are no intact batch"
        assert (unreadable["topic"], unreadable["partition"], unreadable["lost_bytes"]) == (None, None, 0)
        assert unreadable["reason"].startswith("taken as empty: ")
        cluster.appoint(TP, 1, (1,), (1,))
        assert cluster.nodes[1].log_end(TP) == 1
        await cluster.stop(1)
        with capture_logs() as lines:
            await cluster.start(1)
        assert ev.LOG_RECOVERED not in [line["event"] for line in lines], "a clean end leaves nothing to repair"

    run(tmp_path, scenario, brokers=(1,))


def test_a_dir_that_failed_before_the_start_is_told_when_there_is_somebody_to_tell(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        (tmp_path / "1-b").write_text("a file where a dir should be")
        with capture_logs() as lines:
            await cluster.start(1)
        node = cluster.nodes[1]
        assert node.failed_dirs == [str(tmp_path / "1-b")], "once"
        failed = [(line["log_dir"], line["reason"]) for line in lines if line["event"] == ev.LOG_DIR_FAILED]
        assert failed == [(str(tmp_path / "1-b"), "cannot be read")]
        for _ in range(2):
            node.manager.fail_log_dir(str(tmp_path / "1-b"))
        node.manager.fail_log_dir(str(tmp_path / "nowhere"))
        assert node.failed_dirs == [str(tmp_path / "1-b")] and not node.manager.all_log_dirs_failed
        assert node.manager.log_dir_names == [str(tmp_path / "1-a"), str(tmp_path / "1-b")]
        node.manager.fail_log_dir(str(tmp_path / "1-a"))
        assert node.failed_dirs == [str(tmp_path / "1-b"), str(tmp_path / "1-a")] and node.manager.all_log_dirs_failed

    run(tmp_path, scenario, brokers=(), dirs=("a", "b"))


def test_what_lies_where_and_how_far_it_is(tmp_path: Path) -> None:
    """A replica lags behind its high watermark, one that moves behind the replica, one that nobody serves by -1."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        cluster.appoint(OTHER, 1, (1,), (1,), is_new=True)
        manager = cluster.nodes[1].manager
        for _ in range(3):
            await cluster.produce(TP, 1)
        await cluster.world.sleep(1)
        log = cluster.nodes[1].partition(TP).log
        others = [d for d in manager.log_dir_names if d != str(log.log_dir)]
        manager.configs.set_throttle_rates(leader=None, follower=None, alter_log_dirs=0)
        assert manager.moves.alter({TP: others[0]}) == {TP: ErrorCode.NONE}

        def rows(*only: TopicPartition) -> list[tuple[str, int, int, bool]]:
            told = manager.describe_log_dirs(only or None)
            assert [d.path for d in told] == manager.log_dir_names
            assert all(d.error is ErrorCode.NONE and 0 < d.usable_bytes <= d.total_bytes for d in told)
            return [
                (r.topic_partition.topic, r.size_bytes, r.offset_lag, r.is_future) for d in told for r in d.replicas
            ]

        assert sorted(rows()) == [("t", 0, 3, True), ("t", log.size_bytes, 0, False), ("u", 0, 0, False)]
        assert sorted(rows(TP)) == sorted(rows())[:2] and rows(TopicPartition("x", 0)) == []
        follower = cluster.nodes[2].partition(TP)
        cluster.nodes[2].paused.add(TP)
        await cluster.produce(TP, 1)
        assert sorted(row[2:] for row in rows(TP)) == [(0, False), (4, True)], "above the watermark, too"
        follower.attach_log(follower.log, 5)
        ((lag,),) = [
            [r.offset_lag for r in d.replicas] for d in cluster.nodes[2].manager.describe_log_dirs() if d.replicas
        ]
        assert lag == 2
        del manager.table.partitions[OTHER]
        assert ("u", 0, -1, False) in rows() and manager.local_partitions() == {TP, OTHER}
        manager.fail_log_dir(str(log.log_dir))
        assert manager.local_partitions() == ({OTHER} if manager.table.dirs.get(OTHER) else set())
        assert not manager.is_leader(TP)
        with pytest.raises(KafkaError) as offline:
            manager.table.get(TP)
        assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert list(manager.read_records(TP)) == []

    run(tmp_path, scenario, dirs=("a", "b"))


def test_who_is_alive_counts_at_once_for_each_partition_that_is_led(tmp_path: Path) -> None:
    """Who is outside the ISR and has caught up holds the high watermark while it is alive (Kafka 3.6 and later)."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        led = cluster.nodes[1].partition(TP).led
        assert set(led.alive) == {1, 2}
        cluster.set_alive({1})
        assert set(led.alive) == {1} and cluster.nodes[2].partition(TP).led is None
        wakes = cluster.nodes[1].partition(TP).log_starts_changed.wakes
        cluster.set_alive({1})
        assert cluster.nodes[1].partition(TP).log_starts_changed.wakes == wakes, "nothing changed"
        cluster.set_alive({1, 2})
        assert cluster.nodes[1].partition(TP).log_starts_changed.wakes == wakes + 1
        rows = [(row["ev"], row["replica"]) for row in cluster.rows(1) if "broker" in row["ev"]]
        assert rows == [("broker_down", 2), ("broker_up", 2)]

    run(tmp_path, scenario)


def test_quotas_have_the_window_of_the_settings(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        table = cluster.nodes[1].manager.table
        for quota in (table.leader_quota, table.follower_quota, table.alter_log_dirs_quota):
            quota.record(6_000, 1_000)
            assert [quota.rate(at) for at in (1_000, 3_000, 5_000)] == [3_000.0, 3_000.0, 1_500.0]
            assert quota.rate(7_000) == 0.0, "three windows of two seconds later it is forgotten"
            quota.set_throttled("t", "0:1")
            assert quota.is_throttled(TP) and not quota.is_throttled(OTHER)

    run(tmp_path, scenario, replication_quota_window_num=3, replication_quota_window_size_seconds=2)


@pytest.mark.parametrize(
    ("is_alive", "log_starts", "low"), [(True, 0, 0), (True, 2, 2), (True, None, -1), (False, None, 3), (False, 0, 3)]
)
def test_the_low_watermark_is_that_of_the_leader_and_its_live_followers(
    tmp_path: Path, is_alive: bool, log_starts: int | None, low: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1,), (1, 2), is_new=True)
        for _ in range(4):
            await cluster.produce(TP, 1)
        partition = cluster.nodes[1].partition(TP)
        partition.log.raise_log_start(3)
        if log_starts is not None:
            position = FetchPartition(fetch_offset=4, max_bytes=9, current_leader_epoch=0, log_start_offset=log_starts)
            keys = {"returned_bytes": 0, "throttled": False, "error": ErrorCode.NONE, "now_ms": 1}
            partition.record_fetch(2, position, **keys)
        if is_alive:
            cluster.set_alive({1, 2})
        assert partition.low_watermark() == low

    run(tmp_path, scenario, brokers=(1,))


def test_of_a_start_that_is_refused_the_trace_tells_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is none of the broker's lives: what was to be done after its logs were loaded went wrong."""

    async def scenario(cluster: Cluster) -> None:
        with monkeypatch.context() as refused:
            refused.setattr(ReplicaManager, "startup", lambda manager: None)
            await cluster.start(1)
            await cluster.stop(1)
        assert cluster.rows(1) == []
        await cluster.world.sleep(1)
        await cluster.start(1)
        await cluster.stop(1)
        assert [row["ev"] for row in cluster.rows(1) if row["ev"] in ("start", "down")] == ["start", "down"]

    run(tmp_path, scenario, brokers=())

"""What a broker says of its log dirs is what lies there; what it writes on its own, and finds again after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


async def produce(cluster: Any, topic: str, value: bytes) -> None:
    rows = [{"index": 0, "records": build_values([(None, value)], timestamp=1)}]
    body = {"acks": 1, "timeout": 3000, "topic_data": [{"name": topic, "partition_data": rows}]}
    answer = await cluster.call(1, ApiKey.PRODUCE, 8, body)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def described(cluster: Any, topics: Any = None, version: int = 2) -> dict[str, Any]:
    answer = await cluster.call(1, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
    return {result.log_dir: result for result in answer.results}


def on_disk(folder: Path, pattern: str = "*.log") -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def test_describe_log_dirs_says_what_lies_there(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2, log_segment_bytes=2_000)
        for topic in ("t", "u"):
            await cluster.create_topic(topic, [(1,)])
        for _ in range(5):
            await produce(cluster, "t", b"x" * 900)
        dirs = await described(cluster)
        assert set(dirs) == {str(path) for path in broker.identity.log_dirs}
        assert sorted(topic.name for found in dirs.values() for topic in found.topics) == ["t", "u"]
        for path, found in dirs.items():
            assert found.error_code == ErrorCode.NONE
            for topic in found.topics:
                (partition,) = topic.partitions
                assert partition.partition_size == on_disk(Path(path) / f"{topic.name}-0")
                assert (partition.offset_lag, partition.is_future_key) == (0, False)

    in_memory(scenario)


def of(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topic": topic, "partitions": list(partitions)}


#: what is asked for -> the replicas that are shown, of t-0, t-1 and u-0
SHOWN: list[tuple[str, Any, set[tuple[str, int]]]] = [
    ("all", None, {("t", 0), ("t", 1), ("u", 0)}),
    ("no topics", [], set()),
    ("a topic without partitions", [of("t")], set()),
    ("one partition", [of("t", 1)], {("t", 1)}),
    ("one that is not there, and one that is", [of("t", 7, 0), of("x", 0)], {("t", 0)}),
    ("none that is there", [of("x", 0)], set()),
    ("two topics, one without partitions", [of("t"), of("u", 0)], {("u", 0)}),
    ("a topic twice", [of("t", 0), of("t", 1)], {("t", 0), ("t", 1)}),
]


@pytest.mark.parametrize("version", range(3))
def test_describe_log_dirs_shows_all_dirs_and_of_replicas_those_asked_for(in_memory: Any, version: int) -> None:
    """Null alone means all of them. Source: Kafka 3.9 `DescribeLogDirsRequest.isAllTopicPartitions`."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic("u", [(1,)])
        for what, asked, expected in SHOWN:
            dirs = await described(cluster, asked, version)
            assert set(dirs) == {str(path) for path in broker.identity.log_dirs}, what
            assert {found.error_code for found in dirs.values()} == {ErrorCode.NONE}, what
            topics = [topic for found in dirs.values() for topic in found.topics]
            assert {(topic.name, p.partition_index) for topic in topics for p in topic.partitions} == expected, what
            assert all(topic.partitions for topic in topics), "no topic without partitions"

    in_memory(scenario)


def test_describe_log_dirs_shows_a_future_replica_and_a_dir_that_failed(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, dirs=2, replica_alter_log_dirs_io_max_bytes_per_second=500)
        await cluster.create_topic("t", [(1,)])
        for _ in range(5):
            await produce(cluster, "t", b"x" * 900)
        replicas = broker.context.replicas
        here = str(replicas.table.dirs.get(T).log_dir)
        (there,) = {str(path) for path in broker.identity.log_dirs} - {here}
        replicas.configs.set_throttle_rates(alter_log_dirs=1)
        replicas.table.alter_log_dirs_quota.record(1_000_000, broker.clock.now_ms())
        body = {"dirs": [{"path": there, "topics": [{"name": "t", "partitions": [0]}]}]}
        moved = await cluster.call(1, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, body)
        assert moved.results[0].partitions[0].error_code == ErrorCode.NONE
        (future,) = (await described(cluster))[there].topics[0].partitions
        assert future.is_future_key
        assert future.partition_size == on_disk(Path(there), "t-0.*-future/*.log")
        assert future.offset_lag == 5 - replicas.table.partitions[T].future_log.leo
        replicas.fail_log_dir(there)
        dirs = await described(cluster)
        assert (dirs[there].error_code, dirs[there].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
        (current,) = dirs[here].topics[0].partitions
        assert not current.is_future_key

    in_memory(scenario)


@pytest.mark.parametrize("after_s", [4.0, 6.0])
def test_the_high_watermark_is_written_every_five_seconds_from_the_first_leader_on(
    in_memory: Any, after_s: float
) -> None:
    """A broker that is killed then has it again; one that is killed before has none, but its records."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.world.sleep(60)
        file = Path(broker.identity.log_dirs[0]) / "replication-offset-checkpoint"
        assert not file.exists()
        await cluster.create_topic("t", [(1,)])
        for _ in range(3):
            await produce(cluster, "t", b"v")
        await cluster.world.sleep(after_s)
        is_written = after_s > 5
        assert (file.read_text() if file.exists() else None) == ("0\n1\nt 0 3\n" if is_written else None)
        session = await cluster.in_broker(1, broker.kill())
        await session.close()
        assert not (file.parent / ".kafka_cleanshutdown").exists()
        again = await cluster.start(1)
        log = again.context.replicas.table.dirs.get(T)
        assert log.leo == 3
        assert again.context.replicas.table.dirs.checkpointed_high_watermark(log) == (3 if is_written else 0)

    in_memory(scenario)


def test_a_clean_stop_leaves_the_marker_and_every_checkpoint(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, controlled_shutdown_enable=False)
        await cluster.create_topic("t", [(1,)])
        await produce(cluster, "t", b"v")
        await produce(cluster, "t", b"v")
        deleted = {"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}
        await cluster.call(1, ApiKey.DELETE_RECORDS, 2, {"topics": [deleted], "timeout": 1000})
        await cluster.in_broker(1, broker.stop())
        folder = Path(broker.identity.log_dirs[0])
        assert (folder / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
        assert (folder / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
        assert (folder / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
        assert '"version":0' in (folder / ".kafka_cleanshutdown").read_text().replace(" ", "")
        assert "cluster.id=" in (folder / "meta.properties").read_text()
        again = await cluster.start(1)
        assert not (folder / ".kafka_cleanshutdown").exists(), "it is gone once it was read"
        await cluster.in_broker(1, again.stop())

    in_memory(scenario)


def test_a_log_that_is_there_is_not_served_until_the_controller_says_so(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, controlled_shutdown_enable=False)
        await cluster.create_topic("t", [(1,)])
        await produce(cluster, "t", b"v")
        await cluster.in_broker(1, broker.stop())
        again = await cluster.start(1)
        assert again.context.replicas.table.dirs.get(T).leo == 1

        async def error() -> int:
            partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 100}
            body = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 100, "isolation_level": 0}
            topics = [{"topic": "t", "partitions": [partition]}]
            answer = await cluster.call(1, ApiKey.FETCH, 11, {**body, "topics": topics})
            return int(answer.responses[0].partitions[0].error_code)

        assert await error() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=1)
        await cluster.update_metadata(1, [UpdateMetadataEntry(topic_partition=T, state=state, replicas=(BrokerId(1),))])
        assert await error() == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the metadata knows it, it is not led here yet"
        await cluster.create_topic("t", [(1,)], leader_epoch=1, is_new=False)
        assert await error() == ErrorCode.NONE

    in_memory(scenario)

"""The files of a simulated broker are Kafka's: its `kafka-dump-log` reads them, and its broker carries on with them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .cluster import LIMIT_S, Cluster, Node, run_tool, until
from .records import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Small segments and dense indexes: many files, many entries.
SMALL = ("--config", "segment.bytes=8000", "--config", "index.interval.bytes=200")
#: For brokers and controller alike: whichever is asked first for a group's coordinator creates the topic.
ONE_BROKER = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}
#: What DumpLogSegments prints about a file that is not as it should be.
COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|out of order|Non-consecutive|Exception|Couldn't|not found|corrupt|invalid|Missing",
    re.IGNORECASE,
)


@pytest.fixture
def cluster(new_cluster: Callable[[], Cluster]) -> Cluster:
    made = new_cluster()
    made.controller(100, **ONE_BROKER)
    made.start(100)
    until("this controller is in office", lambda: made.active_controller() == 100)
    return made


def write(cluster: Cluster, topic: str, stage: str, *, count: int = 300) -> list[str]:
    """Records of every codec, in a few batches each, by an idempotent producer; their values."""
    values = []
    for codec in CODECS:
        settings = {"acks": "all", "enable.idempotence": True, "compression.type": codec, "batch.num.messages": 20}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
        for number in range(count):
            values.append(f"{stage} {codec} {number} {random.randbytes(number % 90).hex()}")
            producer.produce(topic, key=str(number), value=values[-1], headers={"stage": stage})
        assert producer.flush(LIMIT_S) == 0
    return values


def commit(cluster: Cluster, topic: str, offset: int, *, bootstrap: str | None = None) -> int | None:
    """Commits an offset for a group; what was committed before.

    Whoever names the coordinator may know it before the broker itself does; this client gives up where Kafka's own asks
    again."""
    servers = bootstrap or cluster.bootstrap
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "files", "enable.auto.commit": False})

    def found() -> list[TopicPartition] | None:
        try:
            return list(consumer.committed([TopicPartition(topic, 0)], timeout=LIMIT_S))
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                raise
            return None

    try:
        (before,) = until("the coordinator knows that it is one", found)
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        return before.offset if before.offset >= 0 else None
    finally:
        consumer.close()


def dump(files: list[Path], *words: str) -> str:
    ended = run_tool("dump-log", "--files", ",".join(map(str, files)), *words)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    return ended.stdout


def test_dump_log_reads_every_file_of_a_simulated_broker(cluster: Cluster) -> None:
    broker = cluster.simulated_broker(1, **ONE_BROKER)
    broker.start()
    cluster.create("dumped", "--partitions", "2", "--replication-factor", "1", *SMALL)
    values = write(cluster, "dumped", "written")
    commit(cluster, "dumped", 17, bootstrap=f"127.0.0.1:{cluster.nodes[100].port}")
    cluster.kill(1)
    check_files(cluster, values, clean=False)
    broker.start()
    until("it serves again", lambda: cluster.partitions("dumped")[0].leader == 1)
    values += write(cluster, "dumped", "written again", count=50)
    assert broker.stop() == 0
    check_files(cluster, values, clean=True)


def folders_of(paths: list[Path]) -> dict[Path, list[Path]]:
    """The paths by their folder."""
    return {folder: [path for path in paths if path.parent == folder] for folder in {path.parent for path in paths}}


def check_files(cluster: Cluster, values: list[str], *, clean: bool) -> None:
    data = cluster.data(1)
    logs = sorted(data.glob("dumped-*/*.log"))
    assert len(logs) > 10
    printed = dump(logs, "--deep-iteration", "--print-data-log")
    assert not COMPLAINTS.findall(printed)
    assert Counter(re.findall(r" payload: (.*)", printed)) == Counter(values)
    indexes = sorted([*data.glob("*/*.index"), *data.glob("*/*.timeindex")])
    assert len(indexes) >= 2 * len(logs)
    if not clean:
        # A killed broker, Kafka's too, leaves the files of the last segment at their full length, zeros at the end.
        lengths = {path.stat().st_size for path in map(max, folders_of(indexes).values())}
        assert lengths == {10_485_756}
        indexes = [path for path in indexes if path.stem != max(folders_of(indexes)[path.parent]).stem]
    assert all(path.stat().st_size < 10_000 for path in indexes)
    entries = dump(indexes)
    assert not COMPLAINTS.findall(entries)
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.MULTILINE)) > 20
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", entries, re.MULTILINE)) > 20
    checked = dump(indexes, "--index-sanity-check")
    assert len(re.findall(r"( passed sanity check| is empty)\.$", checked, re.MULTILINE)) == len(indexes), checked
    groups = dump(sorted(data.glob("__consumer_offsets-*/*.log")), "--offsets-decoder")
    assert re.search(r'"group":"files".*"topic":"dumped".*"offset":17', groups) or "offset=17" in groups, groups
    snapshots = sorted(data.glob("dumped-*/*.snapshot"))
    assert {path.stem for path in snapshots} >= {path.stem for path in logs if int(path.stem)}
    told = dump(snapshots)
    assert not COMPLAINTS.findall(told)
    assert len(re.findall(r"^producerId: \d+ producerEpoch: 0 ", told, re.MULTILINE)) >= len(snapshots)
    assert (data / ".kafka_cleanshutdown").exists() is clean


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_real_and_simulated_brokers_take_turns_on_one_log_dir(cluster: Cluster, ends: str) -> None:
    """A broker id whose program is Kafka's, ours, Kafka's and ours: each serves what all before it stored."""
    broker_id, topic = 2, "turns"
    values: list[str] = []
    committed: int | None = None
    for turn, make in enumerate([cluster.real_broker, cluster.simulated_broker] * 2):
        node: Node = make(broker_id, **ONE_BROKER)
        node.start()
        if turn == 0:
            cluster.create(topic, "--replica-assignment", str(broker_id), *SMALL)
        until("it leads", lambda: broker_id in cluster.live() and cluster.partitions(topic)[0].leader == broker_id)
        assert read_all(cluster.bootstrap, topic, 1) == values
        values += write(cluster, topic, f"turn {turn}", count=60)
        assert read_all(cluster.bootstrap, topic, 1) == values
        assert commit(cluster, topic, 100 + turn) == committed
        committed = 100 + turn
        if ends == "stopped":
            node.stop()
            until("it is gone", lambda: broker_id not in cluster.live())
        else:
            cluster.kill(broker_id)
    folder = cluster.data(broker_id) / f"{topic}-0"
    assert not COMPLAINTS.findall(dump(sorted(folder.glob("*.log")), "--deep-iteration"))


#: For brokers of both kinds: compaction as soon as there is anything to compact.
EAGER = {
    **ONE_BROKER,
    "log_cleaner_backoff_ms": 100,
    "log_cleaner_min_cleanable_ratio": 0.01,
}
COMPACTED = (*SMALL, "--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01")


def offsets_in(folder: Path) -> int:
    """How many records the files of a log hold, as `kafka-dump-log` tells."""
    printed = dump(sorted(folder.glob("*.log")), "--deep-iteration")
    assert not COMPLAINTS.findall(printed)
    return len(re.findall(r"^\| offset: \d+", printed, re.MULTILINE))


def test_real_and_simulated_brokers_compact_one_log_in_turns(cluster: Cluster) -> None:
    """Each compacts what the one before wrote and compacted; the newest value of each key is always there."""
    topic, newest = "compacted", {}
    for turn, make in enumerate([cluster.simulated_broker, cluster.real_broker, cluster.simulated_broker]):
        node = make(3, **EAGER)
        node.start()
        if turn == 0:
            cluster.create(topic, "--replica-assignment", "3", *COMPACTED)
        until("it leads", lambda: 3 in cluster.live() and cluster.partitions(topic)[0].leader == 3)
        assert set(read_all(cluster.bootstrap, topic, 1)) >= set(newest.values())
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(600):
            newest[number % 40] = f"turn {turn} number {number} " + "x" * 60
            producer.produce(topic, key=str(number % 40), value=newest[number % 40])
            if number % 20 == 19:
                assert producer.flush(LIMIT_S) == 0
        commit(cluster, topic, 100 * turn)
        small = ("--entity-type", "topics", "--entity-name", "__consumer_offsets", "--add-config", "segment.bytes=2000")
        cluster.tool("configs", "--alter", *small)
        for offset in range(40):
            commit(cluster, topic, 100 * turn + offset)
        folder = cluster.data(3) / f"{topic}-0"
        until("it is compacted", lambda: len(read_all(cluster.bootstrap, topic, 1)) < 200)
        assert set(read_all(cluster.bootstrap, topic, 1)) >= set(newest.values())
        checkpoint = cluster.data(3) / "cleaner-offset-checkpoint"
        groups = cluster.data(3) / "__consumer_offsets-0"
        until("the offsets are compacted", lambda path=checkpoint: "__consumer_offsets 0 " in path.read_text())
        node.stop()
        until("it is gone", lambda: 3 not in cluster.live())
        assert 40 <= offsets_in(folder) < 200
        assert offsets_in(groups) < 60 * (turn + 1)
        assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap")]
        dump(sorted(folder.glob("*.index")), "--index-sanity-check")

"""What a broker's page says of its partitions: of those it leads as Kafka counts them, of others nothing but that they
are there. Source: Kafka 3.9 `Partition`, `OngoingReassignmentState`, `ReplicaManager`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.isr import IsrChangeKind
from broker_sim.metrics.families import (
    FETCHER_LAG,
    FETCHERS,
    LOG,
    LOG_MANAGER,
    MOVERS,
    PARTITION,
    REPLICA_MANAGER,
    TOPICS,
)
from broker_sim.metrics.of_replicas import families
from broker_sim.topic_meters import TopicMeters
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

TP = TopicPartition("t", 0)
GAUGES = ("replicascount", "insyncreplicascount", "underreplicated", "underminisr", "atminisr")
#: gauge of a partition -> what counts the partitions that have it
COUNTED = {
    "underreplicated": "underreplicatedpartitions",
    "underminisr": "underminisrpartitioncount",
    "atminisr": "atminisrpartitioncount",
}
#: what, replicas, those added, those removed, ISR, min.insync.replicas -> the gauges, in their order
LED: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]] = [
    ("all are in sync", (1, 2, 3), (), (), (1, 2, 3), 1, (3, 3, 0, 0, 0)),
    ("one is not", (1, 2, 3), (), (), (1, 2), 1, (3, 2, 1, 0, 0)),
    ("just as many as needed", (1, 2, 3), (), (), (1, 2), 2, (3, 2, 1, 0, 1)),
    ("fewer than needed", (1, 2, 3), (), (), (1,), 2, (3, 1, 1, 1, 0)),
    ("more are needed than there are", (1, 2), (), (), (1, 2), 3, (2, 2, 0, 0, 1)),
    ("it gains replicas", (1, 2, 3, 4, 5), (4, 5), (), (1, 2, 3), 1, (3, 3, 0, 0, 0)),
    ("one that it gains is in sync", (1, 2, 3, 4, 5), (4, 5), (), (1, 2, 3, 4), 1, (3, 4, 0, 0, 0)),
    ("it gains replicas, and lacks one", (1, 2, 3, 4, 5), (4, 5), (), (1, 2), 1, (3, 2, 1, 0, 0)),
    ("a new one stands in for an old one", (1, 2, 3, 4), (4,), (), (1, 2, 4), 1, (3, 3, 0, 0, 0)),
    ("its only one gets a second", (1, 2), (2,), (), (1,), 1, (1, 1, 0, 0, 1)),
    ("a replica that it gains counts for what is needed", (1, 2), (2,), (), (1,), 2, (1, 1, 0, 1, 0)),
    ("it changes replicas", (4, 5, 1, 2, 3), (4, 5), (2, 3), (1, 2, 3), 1, (3, 3, 0, 0, 0)),
    ("it changes replicas, and lacks one", (4, 5, 1, 2, 3), (4, 5), (2, 3), (1, 3), 2, (3, 2, 1, 0, 1)),
    ("it loses a replica", (1, 2, 3), (), (3,), (1, 2, 3), 1, (3, 3, 0, 0, 0)),
    ("which is out of sync", (1, 2, 3), (), (3,), (1, 2), 1, (3, 2, 1, 0, 0)),
]


def figures(broker: Any) -> dict[str, float]:
    """Of the one partition, and of all, without their labels."""
    found = {sample.name: sample.value for family in families(broker.context.replicas) for sample in family.samples}
    return {name: value for name, value in found.items() if name.startswith((PARTITION, REPLICA_MANAGER))}


async def told(cluster: Any, leader: int, row: Any) -> None:
    _, replicas, adding, removing, isr, _, _ = row
    assignment = ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)
    state = LeaderAndIsr(leader=BrokerId(leader), isr=isr, leader_epoch=leader)
    entry = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=assignment, is_new=True)
    answer = await cluster.leader_and_isr(1, [entry])
    assert [each.error_code for each in answer.partition_errors] == [ErrorCode.NONE]


@pytest.mark.parametrize("row", LED, ids=[row[0] for row in LED])
def test_a_partition_is_counted_by_its_leader_without_the_replicas_it_gains(in_memory: Any, row: Any) -> None:
    _, _, adding, removing, _, min_insync_replicas, expected = row

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, min_insync_replicas=min_insync_replicas)
        await cluster.start(2)
        await cluster.update_metadata(1)
        await told(cluster, 1, row)
        found = figures(broker)
        assert tuple(found[f"{PARTITION}_{name}"] for name in GAUGES) == expected
        for name, counted in COUNTED.items():
            assert found[f"{REPLICA_MANAGER}_{counted}"] == expected[GAUGES.index(name)], counted
        assert found[f"{REPLICA_MANAGER}_reassigningpartitions"] == bool(adding or removing)
        assert (found[f"{REPLICA_MANAGER}_leadercount"], found[f"{REPLICA_MANAGER}_partitioncount"]) == (1, 1)
        await told(cluster, 2, row)
        found = figures(broker)
        assert found.pop(f"{REPLICA_MANAGER}_partitioncount") == 1
        assert set(found.values()) == {0}, "another leads it"

    in_memory(scenario)


def test_a_topic_that_comes_while_a_page_is_made_keeps_what_was_counted_of_it(in_memory: Any) -> None:
    """Between the families of a page the broker goes on; one that is gone by then is dropped, as before."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        meters = broker.context.replicas.table.meters
        for topic in ("t", "gone"):
            meters.appended(topic, messages=1, size_bytes=10)
        page = families(broker.context.replicas)
        next(page)
        await cluster.create_topic("u", [(1,)])
        meters.appended("u", messages=2, size_bytes=20)
        told = {
            (sample.labels.get("topic"), sample.value)
            for family in page
            for sample in family.samples
            if sample.name == f"{TOPICS}_messagesin_total"
        }
        assert told == {("t", 1), ("u", 2), (None, 4)}
        assert set(meters.topics) == {"t", "u"}

    in_memory(scenario)


def played(
    topic_partition: TopicPartition, *, leo: int | None = None, copied: int | None = None, producers: int = 0
) -> Any:
    """A follower, whose log ends there and whose copy in another directory does."""
    log = None if leo is None else SimpleNamespace(leo=leo, producers=range(producers))
    future_log = None if copied is None else SimpleNamespace(leo=copied)
    return SimpleNamespace(
        topic_partition=topic_partition, led=None, log=log, future_log=future_log, is_offline=leo is None
    )


def of_played(partitions: list[Any], fetchers: Any = None, dirs: Any = (), written: Any = None) -> dict[Any, float]:
    """(name, label values) -> the figure."""
    table = SimpleNamespace(
        partitions={each.topic_partition: each for each in partitions}, meters=TopicMeters(), dirs=dirs
    )
    updates = SimpleNamespace(written=written or Counter(), refused=5)
    replicas: Any = SimpleNamespace(table=table, fetchers=SimpleNamespace(fetchers=fetchers or {}), isr_updates=updates)
    return {(s.name, *s.labels.values()): s.value for family in families(replicas) for s in family.samples}


def test_fetchers_and_copies_lag_as_the_worst_of_theirs() -> None:
    a, b, c = TP, TopicPartition("t", 1), TopicPartition("u", 0)
    fetchers = {
        (3, 0): SimpleNamespace(lags=[(a, 4), (b, 9)], failed_partitions=2),
        (2, 1): SimpleNamespace(lags=[(c, 6)], failed_partitions=1),
    }
    partitions = [played(a, leo=10, copied=3), played(b, leo=10, copied=8), played(c, leo=10), played(c)]
    found = of_played(partitions, fetchers)
    assert (found[f"{FETCHERS}_maxlag", "Replica"], found[f"{FETCHERS}_failedpartitionscount", "Replica"]) == (9, 3)
    assert found[f"{MOVERS}_maxlag", "ReplicaAlterLogDirs"] == 7
    assert {key[1:]: value for key, value in found.items() if key[0] == f"{FETCHER_LAG}_consumerlag"} == {
        ("ReplicaFetcherThread-0-3", "t", "0"): 4,
        ("ReplicaFetcherThread-0-3", "t", "1"): 9,
        ("ReplicaFetcherThread-1-2", "u", "0"): 6,
    }
    nothing = of_played([played(c)])
    assert (nothing[f"{FETCHERS}_maxlag", "Replica"], nothing[f"{MOVERS}_maxlag", "ReplicaAlterLogDirs"]) == (0, 0)


def test_each_log_and_each_directory_is_there_with_its_figures() -> None:
    logs = {
        TP: SimpleNamespace(log_start_offset=1, leo=2, size_bytes=3, segments=range(4)),
        TopicPartition("u", 7): SimpleNamespace(log_start_offset=5, leo=6, size_bytes=7, segments=range(8)),
    }
    dirs = [
        SimpleNamespace(path=Path("/one"), is_online=True, logs=logs),
        SimpleNamespace(path=Path("/two"), is_online=False, logs={}),
    ]
    found = of_played([], dirs=dirs)
    names = ("logstartoffset", "logendoffset", "size", "numlogsegments")
    assert [found[f"{LOG}_{name}", "t", "0"] for name in names] == [1, 2, 3, 4]
    assert [found[f"{LOG}_{name}", "u", "7"] for name in names] == [5, 6, 7, 8]
    assert [found[f"{LOG_MANAGER}_logdirectoryoffline", f'"{path}"'] for path in ("/one", "/two")] == [0, 1]
    assert found[f"{LOG_MANAGER}_offlinelogdirectorycount",] == 1


def test_what_the_replicas_of_a_broker_are_and_did() -> None:
    u = TopicPartition("u", 0)
    partitions = [played(TP, leo=1, producers=3), played(u), played(TopicPartition("u", 1), leo=1, producers=4)]
    written = {IsrChangeKind.SHRINK: 11, IsrChangeKind.EXPAND: 12}
    found = of_played(partitions, written=written)
    figures_of = {
        "leadercount": 0, "partitioncount": 3, "offlinereplicacount": 1, "produceridcount": 7,
        "isrshrinks_total": 11, "isrexpands_total": 12, "failedisrupdates_total": 5,
    }  # fmt: skip
    assert {name: found[f"{REPLICA_MANAGER}_{name}",] for name in figures_of} == figures_of

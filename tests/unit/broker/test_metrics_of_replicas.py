"""What a broker's page says of its partitions: of those it leads as Kafka counts them, of others nothing but that they
are there. Source: Kafka 3.9 `Partition`, `OngoingReassignmentState`, `ReplicaManager`.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.metrics.families import PARTITION, REPLICA_MANAGER, TOPICS
from broker_sim.metrics.of_replicas import families
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

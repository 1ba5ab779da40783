"""Finding a coordinator: the topic that is made for it, keys that have none, transactions."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rules.hashing import group_partition
from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import TRANSACTIONS_REFUSED, ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, GetChildren, GetData
from controller.wire.znodes import ConfigEntityZNode, TopicAssignment, TopicZNode


async def find(cluster: Any, key: str = "g", key_type: int = 0) -> tuple[int, int, str, int]:
    found = await cluster.call(1, ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": key_type})
    if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        assert found.error_message == "The coordinator is not available."
    return found.error_code, found.node_id, found.host, found.port


async def topics(cluster: Any) -> list[str]:
    broker = cluster.brokers[1]
    return list((await cluster.in_broker(1, broker.zk.perform_one(GetChildren("/brokers/topics")))).children)


NOBODY = (-1, "", -1)


def test_the_topic_of_offsets_is_made_compacted_once_there_are_brokers_enough(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        settings = {"offsets_topic_num_partitions": 4, "offsets_topic_replication_factor": 2}
        broker = await cluster.start(1, **settings)
        await cluster.update_metadata(1)
        assert await find(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, *NOBODY)
        assert await topics(cluster) == [], "two replicas need two brokers"
        await cluster.start(2, **settings)
        await cluster.update_metadata(1)
        assert await find(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, *NOBODY)
        path = ConfigEntityZNode.path(f"topics/{GROUP_METADATA_TOPIC}")
        topic, config = await cluster.in_broker(
            1, broker.zk.perform([GetData(TopicZNode.path(GROUP_METADATA_TOPIC)), GetData(path)])
        )
        partitions = TopicZNode.decode(topic.data).partitions
        assert sorted(partitions) == [0, 1, 2, 3]
        assert {tuple(sorted(each.replicas)) for each in partitions.values()} == {(1, 2)}
        assert ConfigEntityZNode.decode(config.data) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }

    in_memory(scenario)


@pytest.mark.parametrize(
    ("key_type", "error"), [(1, TRANSACTIONS_REFUSED), (2, ErrorCode.INVALID_REQUEST), (-1, ErrorCode.INVALID_REQUEST)]
)
def test_transactions_and_unknown_keys_have_no_coordinator(in_memory: Any, key_type: int, error: ErrorCode) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        assert await find(cluster, "id", key_type) == (error, *NOBODY)
        assert await topics(cluster) == []

    in_memory(scenario)


def test_a_transactional_id_gets_no_producer_id(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        ask = {"transactional_id": "x", "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        answer = await cluster.call(1, ApiKey.INIT_PRODUCER_ID, 3, ask)
        assert (answer.error_code, answer.producer_id) == (TRANSACTIONS_REFUSED, -1)

    in_memory(scenario)


def placed_at(partition: int, leader: int) -> UpdateMetadataEntry:
    """One partition of `__consumer_offsets` as an UpdateMetadata tells of it: its first replica is no leader."""
    ids = BrokerId(3 - leader), BrokerId(leader)
    return UpdateMetadataEntry(
        topic_partition=TopicPartition(GROUP_METADATA_TOPIC, partition),
        state=LeaderAndIsr(leader=ids[1], isr=ids, controller_epoch=1),
        replicas=ids,
    )


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_a_group_stays_where_it_is_however_many_partitions_the_broker_knows_of(in_memory: Any, partitions: int) -> None:
    """Be that at the first broker of all, 0. Source: Kafka's `groupMetadataTopicPartitionCount`, which is read once."""
    mine = group_partition("g", 4)
    assert mine != group_partition("g", partitions), "else nothing is asked here"

    async def scenario(cluster: Any) -> None:
        for broker_id in (0, 1, 2):
            await cluster.start(broker_id, offsets_topic_num_partitions=4)
        await cluster.update_metadata(1, [placed_at(n, 2) for n in range(partitions) if n != mine])
        assert (await find(cluster))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE, "its own partition is not known yet"
        for leader in (0, 1):
            await cluster.update_metadata(1, [placed_at(mine, leader)])
            assert (await find(cluster))[:2] == (0, leader)

    in_memory(scenario)


def test_what_is_in_zookeeper_at_the_start_counts_before_the_setting(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, offsets_topic_num_partitions=4)
        placed = ReplicaAssignment(replicas=(BrokerId(1),))
        content = TopicZNode.encode(TopicAssignment(partitions=dict.fromkeys(range(7), placed)))
        await cluster.in_broker(1, broker.zk.perform([Create(TopicZNode.path(GROUP_METADATA_TOPIC), content)]))
        assert broker.context.groups.partition_of("g") == group_partition("g", 4), "this one has started already"
        later = await cluster.start(2, offsets_topic_num_partitions=4)
        assert later.context.groups.partition_of("g") == group_partition("g", 7)

    in_memory(scenario)

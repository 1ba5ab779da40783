"""Topics that a broker creates by itself: on a client's Metadata request, and the one for group offsets.

Any broker writes ZooKeeper for that, controller or not; the controller sees the new znode.
Source: Kafka 3.9 `DefaultAutoTopicCreationManager`, `AdminZkClient.createTopic`; spec broker.md §16.3, §16.9.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from broker_sim.config import BrokerSettings
from broker_sim.config_store import topic_entity
from broker_sim.zk_client import ZkClient
from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.rules.topic_names import check_topic_name
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ReplicaAssignment
from controller.wire.zk_operations import Create, GetChildren, GetData, SetData, ZkCode, ZkRefused
from controller.wire.znodes import (
    BrokerIdsZNode,
    BrokerIdZNode,
    ConfigEntityZNode,
    TopicAssignment,
    TopicsZNode,
    TopicZNode,
    ZnodeError,
)


async def offsets_partitions(zk: ZkClient) -> int | None:
    """How many partitions `__consumer_offsets` has in ZooKeeper now; None where it is not there, or cannot be read.

    Source: `KafkaZkClient.getTopicPartitionCount`.
    """
    found = await zk.perform_one(GetData(TopicZNode.path(GROUP_METADATA_TOPIC)))
    try:
        return len(TopicZNode.parse(found.data).partitions) or None if found.ok else None
    except ZnodeError:
        return None


class TopicCreator:
    """Creates topics in ZooKeeper for this broker. One creation per topic at a time."""

    def __init__(self, zk: ZkClient, settings: BrokerSettings, chance: random.Random, *, log: Any) -> None:
        self._zk, self._settings, self._chance, self._log = zk, settings, chance, log
        self._in_flight: set[str] = set()

    async def create(self, topic: str) -> ErrorCode:
        """Creates `topic` as auto-creation does. Returns what a Metadata answer then says of it.

        LEADER_NOT_AVAILABLE when it was created or appeared meanwhile; the client asks again.
        """
        if topic in self._in_flight:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._in_flight.add(topic)
        try:
            check_topic_name(topic)
            await self._create(topic)
        except KafkaError as error:
            self._log.warning(ev.TOPIC_AUTO_CREATION_FAILED, topic=topic, reason=str(error))
            return error.code
        except ZkRefused as error:
            self._log.warning(ev.TOPIC_AUTO_CREATION_FAILED, topic=topic, reason=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        finally:
            self._in_flight.discard(topic)
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _create(self, topic: str) -> None:
        partitions, replication_factor, configs = self._shape(topic)
        existing = (await self._zk.perform_one(GetChildren(TopicsZNode.path))).children
        if topic in existing:
            return
        collisions = sorted(t for t in existing if t.replace(".", "_") == topic.replace(".", "_"))
        if collisions:
            message = f"Topic '{topic}' collides with existing topics: {', '.join(collisions)}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        brokers = await self._registered()
        placed = assign_replicas(
            brokers,
            partitions=partitions,
            replication_factor=replication_factor,
            start=draw_start(len(brokers), self._chance),
        )
        await self._write(topic, configs, {p: ReplicaAssignment(replicas=r) for p, r in placed.items()})
        self._log.info(
            ev.TOPIC_AUTO_CREATED, topic=topic, num_partitions=partitions, replication_factor=replication_factor
        )

    def _shape(self, topic: str) -> tuple[int, int, dict[str, str]]:
        """(partitions, replication factor, configs)."""
        settings = self._settings
        if topic == GROUP_METADATA_TOPIC:
            configs = {
                "cleanup.policy": "compact",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
                "compression.type": "producer",
            }
            return settings.offsets_topic_num_partitions, settings.offsets_topic_replication_factor, configs
        if topic == TRANSACTION_STATE_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "transactions are not part of this broker")
        return settings.num_partitions, settings.default_replication_factor, {}

    async def _registered(self) -> list[BrokerRack]:
        """By id. Topics are placed by racks: where only some brokers have one, none is created."""
        listed = await self._zk.perform_one(GetChildren(BrokerIdsZNode.path))
        ids = BrokerIdsZNode.ids(listed.children)
        results = await self._zk.perform([GetData(BrokerIdZNode.path(broker_id)) for broker_id in ids])
        brokers = []
        for broker_id, result in zip(ids, results, strict=True):
            if result.ok:
                try:
                    rack = BrokerIdZNode.decode(broker_id, result.data).rack
                except ZnodeError:
                    continue
                brokers.append(BrokerRack(broker_id=broker_id, rack=rack))
        return brokers

    async def _write(self, topic: str, configs: Mapping[str, str], partitions: Mapping[int, ReplicaAssignment]) -> None:
        """Configs first, then the topic, whose appearance the controller acts upon."""
        config_path, topic_path = ConfigEntityZNode.path(topic_entity(topic)), TopicZNode.path(topic)
        config = ConfigEntityZNode.encode(configs)
        written = await self._zk.perform_one(SetData(config_path, config))
        if written.code is ZkCode.NO_NODE:
            written = await self._zk.perform_one(Create(config_path, config))
        if written.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
            raise ZkRefused(config_path, written.code)
        created = await self._zk.perform_one(
            Create(topic_path, TopicZNode.encode(TopicAssignment(partitions=partitions)))
        )
        if created.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
            raise ZkRefused(topic_path, created.code)

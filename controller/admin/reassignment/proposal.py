"""What `--generate` proposes: each topic placed anew as if it were created, with the counts that it has. Pure but for
chance, which is passed in. Source: Kafka 3.9 `ReassignPartitionsCommand.calculateAssignment`; spec admin.md §3.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.wire.types import BrokerId, TopicPartition

Layout = dict[TopicPartition, tuple[BrokerId, ...]]


def propose(
    current: Mapping[TopicPartition, tuple[BrokerId, ...]], brokers: Sequence[BrokerRack], chance: Random
) -> Layout:
    """The proposed replicas of all partitions, topic after topic in the order of `current`.

    Raises: KafkaError, where the brokers are too few.
    """
    proposed: Layout = {}
    for topic in dict.fromkeys(p.topic for p in current):
        mine = [replicas for partition, replicas in current.items() if partition.topic == topic]
        placed = assign_replicas(
            brokers,
            partitions=len(mine),
            replication_factor=len(mine[0]),
            start=draw_start(len(brokers), chance),
        )
        proposed |= {TopicPartition(topic, number): replicas for number, replicas in placed.items()}
    return proposed

"""What `--generate` proposes: each topic placed anew as if it were created, with the counts that it has. Pure but for
chance, which is passed in. Source: Kafka 3.9 `ReassignPartitionsCommand.calculateAssignment`; spec admin.md §3.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.rules.striped import assign_in_stripes
from controller.wire.types import BrokerId, TopicPartition

Layout = dict[TopicPartition, tuple[BrokerId, ...]]


def propose(
    current: Mapping[TopicPartition, tuple[BrokerId, ...]],
    brokers: Sequence[BrokerRack],
    chance: Random,
    *,
    in_stripes: bool = False,
) -> Layout:
    """The proposed replicas of all partitions, topic after topic in the order of `current`; in 4.x as KRaft places.

    Raises: KafkaError, where the brokers are too few.
    """
    proposed: Layout = {}
    for topic in dict.fromkeys(p.topic for p in current):
        mine = [replicas for partition, replicas in current.items() if partition.topic == topic]
        counts = {"partitions": len(mine), "replication_factor": len(mine[0])}
        if in_stripes:
            placed = assign_in_stripes(brokers, **counts, chance=chance)
        else:
            placed = assign_replicas(brokers, **counts, start=draw_start(len(brokers), chance))
        proposed |= {TopicPartition(topic, number): replicas for number, replicas in placed.items()}
    return proposed

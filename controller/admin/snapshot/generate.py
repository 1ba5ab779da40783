"""A synthetic cluster file: brokers in racks, topics of skewed sizes and rates, placed as Kafka places them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.wire.cluster_file import BrokerShape, ClusterShape, LogDir, PartitionShape, TopicShape
from controller.wire.types import BrokerId

#: Of a broker's directory what is filled when everything is spread evenly.
_FILLED = 0.4


def generate(
    *,
    brokers: int,
    racks: int,
    topics: int,
    partitions: int,
    replication_factor: int,
    total_bytes: int,
    in_bytes_per_s: float,
    skew: float,
    seed: int,
) -> ClusterShape:
    """The same file for the same arguments. `skew` 0 makes all topics alike; the nth topic has 1 / n ** skew of them.

    `partitions`, `total_bytes` (of one replica each) and `in_bytes_per_s` are of all topics together; twice as much is
    read as is written. Raises: KafkaError, where the brokers are too few.
    """
    chance = Random(seed)
    placed = [
        BrokerRack(broker_id=BrokerId(n), rack=f"r{(n - 1) % racks + 1}" if racks else None)
        for n in range(1, brokers + 1)
    ]
    weights = [1 / (n + 1) ** skew for n in range(topics)]
    whole = sum(weights)
    counts = [max(1, round(partitions * w / whole)) for w in weights]
    shapes = {}
    for number, (weight, count) in enumerate(zip(weights, counts, strict=True), 1):
        start = draw_start(brokers, chance)
        layout = assign_replicas(placed, partitions=count, replication_factor=replication_factor, start=start)
        share = weight / whole / count
        shapes[f"topic-{number}"] = TopicShape(
            partitions=tuple(
                _partition(replicas, share * chance.uniform(0.5, 1.5), total_bytes, in_bytes_per_s)
                for _, replicas in sorted(layout.items())
            )
        )
    capacity = int(total_bytes * replication_factor / brokers / _FILLED) or 1
    return ClusterShape(
        source=f"generated, seed {seed}",
        brokers=tuple(
            BrokerShape(id=b.broker_id, rack=b.rack, log_dirs=(LogDir(path="/data", capacity_bytes=capacity),))
            for b in placed
        ),
        topics=shapes,
    )


def _partition(replicas: Sequence[int], share: float, total_bytes: int, in_bytes_per_s: float) -> PartitionShape:
    rate = in_bytes_per_s * share
    return PartitionShape(
        replicas=tuple(replicas),
        bytes=int(total_bytes * share),
        in_bytes_per_s=round(rate, 1),
        out_bytes_per_s=round(2 * rate, 1),
    )

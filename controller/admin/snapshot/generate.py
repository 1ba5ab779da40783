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
    weights = [float((n + 1) ** -skew) for n in range(topics)]
    whole = sum(weights)
    shapes = {}
    for number, (weight, count) in enumerate(zip(weights, _counts(weights, partitions), strict=True), 1):
        start = draw_start(brokers, chance)
        layout = assign_replicas(placed, partitions=count, replication_factor=replication_factor, start=start)
        parts = [chance.uniform(0.5, 1.5) for _ in layout]
        share = weight / whole / sum(parts)
        shapes[f"topic-{number}"] = TopicShape(
            partitions=tuple(
                _partition(replicas, share * part, total_bytes, in_bytes_per_s)
                for part, (_, replicas) in zip(parts, sorted(layout.items()), strict=True)
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


def _counts(weights: Sequence[float], partitions: int) -> list[int]:
    """How many partitions each topic has: one at least, the others by weight, as many in all as asked for."""
    spare = partitions - len(weights)
    shares = [spare * weight / sum(weights) for weight in weights]
    counts = [1 + int(share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda at: int(shares[at]) - shares[at])
    for at in by_rest[: partitions - sum(counts)]:
        counts[at] += 1
    return counts


def _partition(replicas: Sequence[int], share: float, total_bytes: int, in_bytes_per_s: float) -> PartitionShape:
    rate = in_bytes_per_s * share
    return PartitionShape(
        replicas=tuple(replicas),
        bytes=int(total_bytes * share),
        in_bytes_per_s=round(rate, 1),
        out_bytes_per_s=round(2 * rate, 1),
    )

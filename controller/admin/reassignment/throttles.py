"""Replication throttles of a reassignment: which replicas to list, which brokers to limit. Pure.

A `Move` says from where a partition's data flows and to where. The lists go to the topics' configs, the rates to the
brokers' dynamic configs. Source: Kafka 3.9 `ReassignPartitionsCommand.calculateProposedMoveMap`, KIP-73; spec §3.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

LEADER_THROTTLE: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLE: Final = "follower.replication.throttled.rate"
LOG_DIR_THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_THROTTLES: Final = (LEADER_THROTTLE, FOLLOWER_THROTTLE, LOG_DIR_THROTTLE)
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
TOPIC_THROTTLES: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

Layout = Mapping[TopicPartition, Sequence[BrokerId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Replicas that hold a partition's data, and replicas that have to copy it."""

    sources: frozenset[BrokerId]
    destinations: frozenset[BrokerId]


MoveMap = Mapping[TopicPartition, Move]


def move_map(
    running: Mapping[TopicPartition, ReplicaAssignment],
    proposed: Layout,
    current: Layout,
) -> dict[TopicPartition, Move]:
    """The moves once `proposed` is added to what is `running`; `current` has the replicas of the proposed partitions.

    A proposal replaces a running move but keeps its sources; running partitions that are not proposed stay. Not so in
    2.6 (see `move_map_26`).
    """
    moves = {
        partition: Move(
            sources=frozenset(r.replicas) - frozenset(r.adding_replicas), destinations=frozenset(r.adding_replicas)
        )
        for partition, r in running.items()
    }
    for partition, target in proposed.items():
        before = moves.get(partition)
        sources = before.sources if before is not None else frozenset(current[partition])
        moves[partition] = Move(sources=sources, destinations=frozenset(target) - sources)
    return dict(sorted(moves.items()))


def move_map_26(
    running: Mapping[TopicPartition, ReplicaAssignment],
    proposed: Layout,
    current: Layout,
) -> dict[TopicPartition, Move]:
    """As `move_map`, in Kafka 2.6: all replicas of a running move are sources, those that it is adding among them.

    So a running partition that is not proposed has no destination left, and loses its follower throttle.
    """
    nothing: frozenset[BrokerId] = frozenset()
    moves = {partition: Move(sources=frozenset(r.replicas), destinations=nothing) for partition, r in running.items()}
    for partition, target in proposed.items():
        sources = frozenset(current[partition])
        moves[partition] = Move(sources=sources, destinations=frozenset(target) - sources)
    return dict(sorted(moves.items()))


def lists_20(proposed: Layout, current: Layout) -> dict[str, dict[str, str]]:
    """Both lists per topic in Kafka 2.0: all old replicas of partitions that get a new one; all new replicas."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for partition, target in proposed.items():
        added = [r for r in target if r not in current[partition]]
        followers[partition.topic] += [f"{partition.partition}:{r}" for r in added]
        leaders[partition.topic] += [f"{partition.partition}:{r}" for r in current[partition] if added]
    return {
        topic: {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(followers[topic])}
        for topic in sorted(followers)
    }


def brokers_20(proposed: Layout, current: Layout) -> list[BrokerId]:
    """The brokers that Kafka 2.0 sets a rate on: those of any partition of the topics, and the targets."""
    return sorted({r for replicas in (*proposed.values(), *current.values()) for r in replicas})


def leader_throttles(moves: MoveMap) -> dict[str, str]:
    """`leader.replication.throttled.replicas` per topic: every source."""
    return _lists((partition, broker) for partition, move in moves.items() for broker in move.sources)


def follower_throttles(moves: MoveMap) -> dict[str, str]:
    """`follower.replication.throttled.replicas` per topic: every destination, `""` where nothing moves."""
    nothing = dict.fromkeys((partition.topic for partition in moves), "")
    return nothing | _lists((partition, broker) for partition, move in moves.items() for broker in move.destinations)


def topic_configs(moves: MoveMap) -> dict[str, dict[str, str]]:
    """Both lists per topic."""
    leaders, followers = leader_throttles(moves), follower_throttles(moves)
    topics = sorted({partition.topic for partition in moves})
    return {t: {LEADER_REPLICAS: leaders.get(t, ""), FOLLOWER_REPLICAS: followers[t]} for t in topics}


def throttled_brokers(moves: MoveMap) -> list[BrokerId]:
    """The brokers that a rate is set on: all sources and destinations."""
    return sorted({broker for move in moves.values() for broker in move.sources | move.destinations})


def log_dir_brokers(log_dirs: Iterable[PartitionReplica]) -> list[BrokerId]:
    """The brokers that a log-dir rate is set on."""
    return sorted({replica.replica for replica in log_dirs})


def _lists(replicas: Iterable[tuple[TopicPartition, BrokerId]]) -> dict[str, str]:
    """`partition:broker` elements per topic, sorted as strings (as Kafka does)."""
    elements: dict[str, list[str]] = defaultdict(list)
    for partition, broker in replicas:
        elements[partition.topic].append(f"{partition.partition}:{broker}")
    return {topic: ",".join(sorted(listed)) for topic, listed in sorted(elements.items())}

"""What others leave in ZooKeeper for the controller: wishes of operators below `/admin`, and notices of brokers.

Imported through `znodes`, which has the rest. Source: Kafka 3.9 `ZkData.scala`; spec controller.md §1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.wire.types import BrokerId, TopicPartition
from controller.wire.znode_json import MISSHAPEN, ZnodeError, broker_ids, dump, flaw, load, number


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """`{"version":1,"partitions":[{"topic":...,"partition":...}]}`: elections and ISR changes share it."""
    return dump({"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]})


def decode_partitions(data: bytes | None) -> frozenset[TopicPartition]:
    """The partitions listed; empty when it does not parse."""
    try:
        return parse_partitions(data)
    except ZnodeError:
        return frozenset()


def parse_partitions(data: bytes | None) -> frozenset[TopicPartition]:
    """The partitions listed. Raises ZnodeError when it does not parse."""
    try:
        return frozenset(_entry_partition(entry) for entry in load(data)["partitions"])
    except MISSHAPEN as error:
        raise ZnodeError(f"it lists no partitions: {flaw(data, error)}") from error


def _entry_partition(entry: Mapping[str, Any]) -> TopicPartition:
    topic = entry["topic"]
    if not isinstance(topic, str):
        raise TypeError(f"topic {topic!r} is no string")
    return TopicPartition(topic, number(entry["partition"]))


class ReassignPartitionsZNode:
    """An operator's wish to move replicas. Decoded strictly: what Kafka does not know makes the whole node invalid."""

    path: Final = "/admin/reassign_partitions"

    @staticmethod
    def encode(targets: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> bytes:
        """In the order of the mapping."""
        entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": r} for tp, r in targets.items()]
        return dump({"version": 1, "partitions": entries})

    @staticmethod
    def decode(data: bytes | None) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """The target replicas of each partition. Raises ZnodeError when it is not exactly such a document."""
        value = load(data)
        try:
            if value.keys() - {"version", "partitions"}:
                raise ValueError(f"unknown properties {sorted(value.keys() - {'version', 'partitions'})}")
            targets = {}
            for entry in value["partitions"]:
                if unknown := entry.keys() - {"topic", "partition", "replicas"}:
                    raise ValueError(f"unknown properties {sorted(unknown)}")
                targets[_entry_partition(entry)] = broker_ids(entry["replicas"])
            return targets
        except MISSHAPEN as error:
            raise ZnodeError(f"{ReassignPartitionsZNode.path} does not parse: {flaw(data, error)}") from error


class PreferredReplicaElectionZNode:
    """An operator's wish for preferred leaders. Content: `encode_partitions`, `decode_partitions`."""

    path: Final = "/admin/preferred_replica_election"


class DeleteTopicsZNode:
    """Parent of the topics to be deleted."""

    path: Final = "/admin/delete_topics"


class DeleteTopicsTopicZNode:
    """A topic to be deleted. No data."""

    @staticmethod
    def path(topic: str) -> str:
        """`/admin/delete_topics/T`."""
        return f"{DeleteTopicsZNode.path}/{topic}"


class IsrChangeNotificationZNode:
    """Parent of the notices of leaders that changed their ISR. Content: `encode_partitions`, `decode_partitions`."""

    path: Final = "/isr_change_notification"
    #: Prefix for a sequential create.
    sequence_path: Final = "/isr_change_notification/isr_change_"


class LogDirEventNotificationZNode:
    """Parent of the notices of brokers that lost a log directory."""

    path: Final = "/log_dir_event_notification"
    sequence_path: Final = "/log_dir_event_notification/log_dir_event_"

    @staticmethod
    def encode(broker_id: BrokerId) -> bytes:
        """Event 1 is the failure of a log directory; there is no other."""
        return dump({"version": 1, "broker": broker_id, "event": 1})

    @staticmethod
    def decode(data: bytes | None) -> BrokerId | None:
        """The broker that lost a directory; None when it does not parse."""
        try:
            return BrokerId(number(load(data)["broker"]))
        except MISSHAPEN:
            return None

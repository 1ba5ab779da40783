"""Every znode of the cluster: its path, and its content to and from bytes. One class per znode, Kafka's names.

Writing is byte-exact as Kafka 3.9 does at inter.broker.protocol 2.6 (key order included, no whitespace). Reading never
depends on key order and follows one rule: content that does not parse, or lacks what it must have, counts as absent
(None or empty). Exceptions are named where they are: a broker registration and `/feature` raise `ZnodeError`.

Source: Kafka 3.9 `ZkData.scala`; spec controller.md §1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from controller.wire.config_znodes import (
    DEFAULT_ENTITY,
    ConfigChangesZNode,
    ConfigEntityZNode,
    FeatureZNode,
    ProducerIdBlockZNode,
)
from controller.wire.notice_znodes import (
    DeleteTopicsTopicZNode,
    DeleteTopicsZNode,
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
    decode_partitions,
    encode_partitions,
    parse_partitions,
)
from controller.wire.topic_znode import TopicAssignment, TopicsZNode, TopicZNode, is_partition
from controller.wire.types import (
    NO_LEADER,
    Broker,
    BrokerId,
    Endpoint,
    LeaderAndIsr,
    TopicPartition,
)
from controller.wire.znode_json import MISSHAPEN, ZnodeError, broker_ids, dump, flaw, load, number

__all__ = [
    "DEFAULT_ENTITY",
    "ConfigChangesZNode",
    "ConfigEntityZNode",
    "DeleteTopicsTopicZNode",
    "DeleteTopicsZNode",
    "FeatureZNode",
    "IsrChangeNotificationZNode",
    "LogDirEventNotificationZNode",
    "PreferredReplicaElectionZNode",
    "ProducerIdBlockZNode",
    "ReassignPartitionsZNode",
    "TopicAssignment",
    "TopicZNode",
    "TopicsZNode",
    "ZnodeError",
    "decode_partitions",
    "encode_partitions",
    "parse_partitions",
]


class ControllerZNode:
    """Ephemeral: who is the active controller."""

    path: Final = "/controller"

    @staticmethod
    def encode(broker_id: BrokerId, timestamp_ms: int) -> bytes:
        """Version 2, as 3.9 writes it."""
        return dump({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})

    @staticmethod
    def decode(data: bytes | None) -> BrokerId | None:
        """The id of the active controller; None when there is none."""
        try:
            return BrokerId(number(load(data)["brokerid"]))
        except MISSHAPEN:
            return None


#: The next one is written too, in 32 bits.
_EPOCH_MAX: Final = 2**31 - 2


class ControllerEpochZNode:
    """The epoch of the last controller; its own znode version fences every write."""

    path: Final = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        """ASCII decimal."""
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes | None) -> int:
        """Raises ZnodeError when it is no number that an epoch can have."""
        text = data or b""
        if not text.isdigit() or len(text) > 10 or int(text) > _EPOCH_MAX:
            raise ZnodeError(f"/controller_epoch holds {data!r}, which is no number from 0 to {_EPOCH_MAX}")
        return int(text)


class ClusterIdZNode:
    """The id of the cluster: 16 random bytes, URL-safe base64 without padding."""

    path: Final = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        """Its version is a string, unlike all others."""
        return dump({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes | None) -> str:
        """Raises ZnodeError when there is no id in it."""
        value = load(data)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])
        raise ZnodeError(f"/cluster/id holds {data!r}, in which there is no id")


_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_PROTOCOL_NAMES: Final = {number: name for name, number in _PROTOCOLS.items()}
_ENDPOINT: Final = re.compile(r"^(?P<listener>[^:]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>-?\d+)$")


class BrokerIdsZNode:
    """Parent of the registrations."""

    path: Final = "/brokers/ids"

    @staticmethod
    def ids(children: Iterable[str]) -> list[BrokerId]:
        """The children that are ids of brokers, ascending; what else somebody put there is left out."""
        numbers = (int(c) for c in children if c.isascii() and c.isdigit() and len(c) < 11)
        return sorted(BrokerId(number) for number in numbers if number < 1 << 31)


class BrokerIdZNode:
    """Ephemeral: a registered broker. Its czxid is the broker epoch."""

    @staticmethod
    def path(broker_id: int) -> str:
        """`/brokers/ids/N`."""
        return f"{BrokerIdsZNode.path}/{broker_id}"

    @staticmethod
    def encode(broker: Broker, timestamp_ms: int, *, jmx_port: int = -1) -> bytes:
        """Version 4, the one for inter.broker.protocol 2.6."""
        plaintext = next((e for e in broker.endpoints if e.security_protocol == 0), None)
        value: dict[str, Any] = {
            "listener_security_protocol_map": {
                e.listener: _PROTOCOL_NAMES[e.security_protocol] for e in broker.endpoints
            },
            "endpoints": [_endpoint_text(e) for e in broker.endpoints],
        }
        if broker.rack is not None:
            value["rack"] = broker.rack
        value["jmx_port"] = jmx_port
        value["port"] = plaintext.port if plaintext else -1
        value["host"] = (plaintext.host or None) if plaintext else None
        value["version"] = 4
        value["timestamp"] = str(timestamp_ms)
        return dump(value)

    @staticmethod
    def decode(broker_id: BrokerId, data: bytes | None, broker_epoch: int = -1) -> Broker:
        """Versions 1 to 5. Raises ZnodeError when it does not parse."""
        value = load(data)
        try:
            version = number(value["version"])
            if version < 1:
                raise ValueError(f"version {version} is below 1")
            endpoints = _endpoints(value, version)
            rack = value.get("rack") if version >= 3 else None
            if rack is not None and not isinstance(rack, str):
                raise TypeError(f"rack {rack!r} is no string")
        except MISSHAPEN as error:
            raise ZnodeError(f"{BrokerIdZNode.path(broker_id)} does not parse: {flaw(data, error)}") from error
        return Broker(broker_id=broker_id, endpoints=endpoints, rack=rack, broker_epoch=broker_epoch)


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener.upper()}://{host}:{endpoint.port}"


def _endpoints(value: Mapping[str, Any], version: int) -> tuple[Endpoint, ...]:
    if version == 1:
        if not isinstance(value["host"], str):
            raise TypeError(f"host {value['host']!r} is no string")
        return (Endpoint(host=value["host"], port=number(value["port"])),)
    protocols = value.get("listener_security_protocol_map")
    found = []
    for text in value["endpoints"]:
        match = _ENDPOINT.match(text)
        if match is None:
            raise ValueError(f"endpoint {text!r} is not LISTENER://host:port")
        listener = match["listener"].upper()
        protocol = protocols[listener] if protocols is not None else listener
        host = match["ipv6"] if match["ipv6"] is not None else match["host"]
        port = int(match["port"])
        if not -(1 << 31) <= port < 1 << 31:  # what Java's parseInt refuses, and what no request can carry
            raise ValueError(f"port {port} is beyond 32 bits")
        found.append(Endpoint(host=host, port=port, listener=listener, security_protocol=_PROTOCOLS[protocol]))
    return tuple(found)


class TopicPartitionsZNode:
    """Parent of a topic's partitions."""

    @staticmethod
    def path(topic: str) -> str:
        """`/brokers/topics/T/partitions`."""
        return f"{TopicsZNode.path}/{topic}/partitions"

    @staticmethod
    def numbers(children: Iterable[str]) -> list[int]:
        """The children that are partitions, ascending; what else somebody put there is left out."""
        return sorted(map(int, filter(is_partition, children)))


class TopicPartitionZNode:
    """Parent of a partition's state."""

    @staticmethod
    def path(tp: TopicPartition) -> str:
        """`/brokers/topics/T/partitions/P`."""
        return f"{TopicsZNode.path}/{tp.topic}/partitions/{tp.partition}"


class TopicPartitionStateZNode:
    """Leader and in-sync replicas of a partition; its version is the partition epoch."""

    _PATH: Final = re.compile(r"^/brokers/topics/([^/]+)/partitions/(\d+)/state$")

    @staticmethod
    def path(tp: TopicPartition) -> str:
        """`/brokers/topics/T/partitions/P/state`."""
        return f"{TopicsZNode.path}/{tp.topic}/partitions/{tp.partition}/state"

    @staticmethod
    def paths(topic: str, partitions: Iterable[int]) -> list[str]:
        """As `path`, of many partitions of a topic."""
        parent = TopicPartitionsZNode.path(topic)
        return [f"{parent}/{p}/state" for p in partitions]

    @classmethod
    def partition(cls, path: str) -> TopicPartition | None:
        """The partition whose state is at this path, or None for another path."""
        match = cls._PATH.match(path)
        return TopicPartition(match[1], int(match[2])) if match else None

    @staticmethod
    def encode(state: LeaderAndIsr) -> bytes:
        """Version 1, without a recovery state (inter.broker.protocol below 3.2 has none)."""
        leader = NO_LEADER if state.leader is None else state.leader
        isr = ",".join(map(str, state.isr))
        return (
            f'{{"controller_epoch":{state.controller_epoch},"leader":{leader},"version":1,'
            f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
        ).encode()

    @staticmethod
    def decode(data: bytes | None, partition_epoch: int) -> LeaderAndIsr | None:
        """None when it does not parse."""
        if data is None or len(data) > _CACHED_BYTES:
            return _decode_state.__wrapped__(data, partition_epoch)
        return _decode_state(data, partition_epoch)


#: Larger ones than these are read each time: whoever writes a huge znode must not fill the memory.
_CACHED_BYTES: Final = 512


@lru_cache(maxsize=16_384)
def _decode_state(data: bytes | None, partition_epoch: int) -> LeaderAndIsr | None:
    """Many partitions have the same leader and ISR: they share the value, and the work of reading it."""
    value = load(data)
    try:
        leader = number(value["leader"])
        return LeaderAndIsr(
            leader=None if leader == NO_LEADER else BrokerId(leader),
            isr=broker_ids(value["isr"]),
            leader_epoch=number(value["leader_epoch"]),
            partition_epoch=partition_epoch,
            controller_epoch=number(value["controller_epoch"]),
        )
    except MISSHAPEN:
        return None


#: Created by every broker at its start, in this order, without data (spec controller.md §1.2).
PERSISTENT_PATHS: Final = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)

"""What Metadata tells of a partition: every version, on every listener, whoever leads, whatever the controller named.

Source: Kafka 3.9 `ZkMetadataCache.getPartitionMetadata`, `maybeFilterAliveReplicas`; spec broker.md §8.1.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from controller.rules.configs.listeners import NodeListener
from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition
from controller.world.client import BrokerConnection

INTERNAL, EXTERNAL = "INTERNAL", "EXTERNAL"
PORTS: Final = {9092: INTERNAL, 9094: EXTERNAL}
#: broker -> the listeners that it has; 9 is not alive
HAS: Final = {1: {INTERNAL, EXTERNAL}, 2: {INTERNAL}, 3: {INTERNAL, EXTERNAL}, 9: set[str]()}
LIVE: Final = tuple(
    Broker(
        broker_id=BrokerId(number),
        endpoints=tuple(
            Endpoint(host=f"broker-{number}", port=port, listener=name) for port, name in PORTS.items() if name in has
        ),
    )
    for number, has in HAS.items()
    if has
)
REPLICAS: Final[list[tuple[int, ...]]] = [(1, 2), (3, 1), (2, 9, 1), (9, 3)]
#: leader, replicas, ISR, those that the controller named offline: dead ones, and live ones whose disks have failed
PARTITIONS: Final = [
    (leader, replicas, isr, offline)
    for replicas in REPLICAS
    for leader in (None, *replicas)
    for isr in (replicas[::-1], replicas[:1], replicas[-1:])
    for size in range(len(replicas) + 1)
    for offline in itertools.combinations(replicas, size)
]


def entries() -> list[UpdateMetadataEntry]:
    """Each of the partitions, in an epoch of its own."""
    return [
        UpdateMetadataEntry(
            topic_partition=TopicPartition("t", number),
            state=LeaderAndIsr(
                leader=None if leader is None else BrokerId(leader),
                isr=tuple(map(BrokerId, isr)),
                leader_epoch=number + 5,
            ),
            replicas=tuple(map(BrokerId, replicas)),
            offline_replicas=tuple(map(BrokerId, offline)),
        )
        for number, (leader, replicas, isr, offline) in enumerate(PARTITIONS)
    ]


def expected(number: int, version: int, listener: str) -> dict[str, Any]:
    leader, replicas, isr, offline = PARTITIONS[number]
    error = ErrorCode.NONE
    if version == 0:
        reached = [r for r in replicas if listener in HAS[r]], [r for r in isr if listener in HAS[r]]
        if reached != (list(replicas), list(isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas, isr = map(tuple, reached)
    if leader is None or listener not in HAS[leader]:
        is_alive = leader is not None and bool(HAS[leader])
        error = ErrorCode.LISTENER_NOT_FOUND if is_alive and version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    told = {"error_code": error, "leader_id": leader, "replica_nodes": replicas, "isr_nodes": isr}
    if version >= 5:
        told["offline_replicas"] = offline
    if version >= 7:
        told["leader_epoch"] = number + 5
    return told


@pytest.mark.parametrize("port", PORTS, ids=PORTS.values())
def test_a_partition_is_told_as_the_controller_named_it(in_memory: Any, port: int) -> None:
    """But for the oldest version, which leaves out who cannot be reached by the listener that was asked."""

    async def scenario(cluster: Any) -> None:
        binds = tuple(NodeListener(name=name, host="broker-1", port=number) for number, name in PORTS.items())
        await cluster.start(1, binds=binds, inter_broker_listener=INTERNAL)
        await cluster.update_metadata(1, entries(), live_brokers=LIVE)
        connection = await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")
        for version in range(10):
            (topic,) = (await connection.call(ApiKey.METADATA, version, {"topics": [{"name": "t"}]})).topics
            assert topic.error_code == ErrorCode.NONE
            assert [p.partition_index for p in topic.partitions] == list(range(len(PARTITIONS)))
            for found in topic.partitions:
                wanted = expected(found.partition_index, version, PORTS[port])
                told = {name: getattr(found, name) for name in wanted}
                assert told == wanted, (version, PARTITIONS[found.partition_index])

    in_memory(scenario)

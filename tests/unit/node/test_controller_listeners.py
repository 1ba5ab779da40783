"""A controller with several listeners: the addresses that brokers and clients are told are the advertised ones."""

from __future__ import annotations

from typing import Any

from controller.node import config
from controller.rules.configs.listeners import NodeListener
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import Endpoint
from controller.world.client import BrokerConnection
from controller.world.simulated.world import World, run_world
from tests.worlds.node import CONTROLLER_ID, HOST, Cluster

SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,HIDDEN:PLAINTEXT",
}
LISTENERS = (
    NodeListener(name="EXTERNAL", host=HOST, port=9094, advertised_host="localhost", advertised_port=19094),
    NodeListener(name="INTERNAL", host=HOST, port=9092, advertised_host="controller-901"),
    NodeListener(name="HIDDEN", host=HOST, port=9099, is_advertised=False),
)
TOLD = {9092: ("controller-901", 9092), 9094: ("localhost", 19094)}


async def in_office(world: World) -> Cluster:
    cluster = Cluster(world, SETTINGS)
    cluster.listeners = LISTENERS
    await cluster.start()
    await world.until(lambda: cluster.controller.state.serving, within_s=10, what="the controller is in office")
    return cluster


def test_what_is_advertised_is_told() -> None:
    async def main(world: World) -> None:
        cluster = await in_office(world)
        assert cluster.controller.state.endpoint is not None
        assert cluster.controller.state.endpoint.endpoints == (
            Endpoint(host="localhost", port=19094, listener="EXTERNAL"),
            Endpoint(host="controller-901", port=9092, listener="INTERNAL"),
        ), "what UpdateMetadata names among the live brokers"
        for port, address in TOLD.items():
            assert [(b.node_id, b.host, b.port) for b in (await ask(cluster, port)).brokers] == [
                (CONTROLLER_ID, *address)
            ]
        assert (await ask(cluster, 9099)).brokers == (), "nobody is told of the listener that is not advertised"
        await cluster.machine.run(cluster.controller.stop())

    run_world(1, main)


def test_a_start_returns_where_brokers_reach_it() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, SETTINGS)
        cluster.listeners = LISTENERS
        controller = cluster.make()
        assert await cluster.machine.run(controller.start()) == Endpoint(
            host="controller-901", port=9092, listener="INTERNAL"
        )
        await cluster.machine.run(controller.stop())

    run_world(1, main)


def test_a_leader_without_the_listener_of_the_question_is_not_named() -> None:
    """Clients from Metadata 6 on hear why; the others are told to ask again."""

    async def main(world: World) -> None:
        cluster = await in_office(world)
        await cluster.register(1, listener="INTERNAL")
        row = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        [made] = (await ask(cluster, 9092, ApiKey.CREATE_TOPICS, 5, {"topics": [row], "timeout": 5_000})).topics
        assert made.error_code == ErrorCode.NONE
        for port, leader, brokers in ((9092, 1, [1, CONTROLLER_ID]), (9094, -1, [CONTROLLER_ID])):
            for version in range(10):
                answer = await ask(cluster, port, ApiKey.METADATA, version, {"topics": [{"name": "t"}]})
                reason = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
                [found] = answer.topics[0].partitions
                assert (found.error_code, found.leader_id) == (ErrorCode.NONE if leader == 1 else reason, leader)
                assert [broker.node_id for broker in answer.brokers] == brokers, version
        await cluster.machine.run(cluster.controller.stop())

    run_world(1, main)


async def ask(cluster: Cluster, port: int, api: ApiKey = ApiKey.METADATA, version: int = 9, body: Any = None) -> Any:
    connection = await BrokerConnection.open(cluster.client.network, HOST, port, client_id="test")
    answer = await connection.call(api, version, body or {"topics": []})
    connection.close()
    return answer


def test_the_property_listeners_is_named_as_ignored_beside_the_argument() -> None:
    given = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://h:9092"}
    assert config.ignored(given) == []
    assert config.ignored(given, replaced=("listeners",)) == ["listeners"]

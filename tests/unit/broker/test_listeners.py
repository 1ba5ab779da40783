"""Listeners of a broker: what properties and the argument mean, what is refused, and which address whom is told."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.config import BrokerSettings
from broker_sim.listeners import BrokerListener, ListenerError, ListenerPlan, plan_listeners
from broker_sim.log.records import build_values
from controller.wire.client import BrokerConnection, Disconnected
from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition
from controller.wire.zk import GetData
from controller.wire.znodes import BrokerIdZNode

TWO = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT;inter.broker.listener.name=INTERNAL"


def plan(argument: str | None, properties: str = "", *, brokers: int = 1) -> ListenerPlan:
    given = dict(part.split("=", 1) for part in properties.split(";") if part)
    return plan_listeners(BrokerSettings.parse(given), argument=argument, brokers=brokers, host_name="me")


ADDRESSES = [
    ("127.0.0.1:9092", 3, [9092, 9093, 9094]),
    ("127.0.0.1:0", 2, [0, 0]),
    ("a:1,b:7", 2, [1, 7]),
    ("PLAINTEXT://[::1]:5", 1, [5]),
]


@pytest.mark.parametrize(("text", "brokers", "ports"), ADDRESSES)
def test_one_listener_per_broker(text: str, brokers: int, ports: list[int]) -> None:
    found = plan(text, brokers=brokers)
    assert [[each.port for each in listeners] for listeners in found.brokers] == [[port] for port in ports]
    assert found.inter_broker_listener == "PLAINTEXT"


def test_several_listeners_of_several_brokers_count_up_each() -> None:
    found = plan("internal://:9092,EXTERNAL://0.0.0.0:9192", TWO, brokers=2)
    assert [[(each.name, each.port) for each in listeners] for listeners in found.brokers] == [
        [("INTERNAL", 9092), ("EXTERNAL", 9192)],
        [("INTERNAL", 9093), ("EXTERNAL", 9193)],
    ]
    assert found.inter_broker_listener == "INTERNAL"


#: (what, argument, properties, (name, host, port bound, host told, port told; None: the bound one) of each listener)
TOLD: list[tuple[str, str | None, str, list[tuple[str, str, int, str, int | None]]]] = [
    ("the address itself", "h:1", "", [("PLAINTEXT", "h", 1, "h", None)]),
    ("the machine's name where all are bound", "0.0.0.0:1", "", [("PLAINTEXT", "0.0.0.0", 1, "me", None)]),
    ("what is advertised", "0.0.0.0:1", "advertised.listeners=PLAINTEXT://x:7", [("PLAINTEXT", "0.0.0.0", 1, "x", 7)]),
    ("the machine's name, advertised", "h:1", "advertised.listeners=PLAINTEXT://:7", [("PLAINTEXT", "h", 1, "me", 7)]),
    ("the property", None, "listeners=PLAINTEXT://:9092", [("PLAINTEXT", "", 9092, "me", None)]),
    ("the argument before the property", "h:1", "listeners=SSL://:9092", [("PLAINTEXT", "h", 1, "h", None)]),
    (
        "a name for clients in the network and one for those outside",
        None,
        f"{TWO};listeners=INTERNAL://:9092,EXTERNAL://:9094;"
        "advertised.listeners=INTERNAL://broker-1:9092,EXTERNAL://localhost:19094",
        [("INTERNAL", "", 9092, "broker-1", 9092), ("EXTERNAL", "", 9094, "localhost", 19094)],
    ),
    ("an address without a name is that between brokers", "h:1", TWO, [("INTERNAL", "h", 1, "h", None)]),
    (
        "one port of IPv4 and of IPv6",
        None,
        f"{TWO};listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092",
        [("INTERNAL", "127.0.0.1", 9092, "127.0.0.1", None), ("EXTERNAL", "::1", 9092, "::1", None)],
    ),
]


@pytest.mark.parametrize(("_", "argument", "properties", "expected"), TOLD, ids=[row[0] for row in TOLD])
def test_what_is_bound_and_told(_: str, argument: str | None, properties: str, expected: list[Any]) -> None:
    (listeners,) = plan(argument, properties).brokers
    assert [(e.name, e.host, e.port, e.advertised_host, e.advertised_port) for e in listeners] == expected
    assert all(each.is_advertised for each in listeners)


def test_a_listener_that_is_not_advertised_is_bound_all_the_same() -> None:
    (listeners,) = plan("INTERNAL://:1,EXTERNAL://:2", f"{TWO};advertised.listeners=INTERNAL://h:1").brokers
    assert [(each.name, each.is_advertised) for each in listeners] == [("INTERNAL", True), ("EXTERNAL", False)]


#: (argument, properties, brokers, what the refusal says)
REFUSED: list[tuple[str | None, str, int, str]] = [
    (None, "", 1, "--listener is missing"),
    ("a", "", 1, "--listener 'a'"),
    ("a:x", "", 1, "allowed: host:port or NAME://host:port"),
    ("a:70000", "", 1, "is no address"),
    ("a:1,b:2", "", 3, "give 1 or 3"),
    ("a:65535", "", 2, "go above 65535"),
    (None, "listeners=:9092", 1, "each address needs a name"),
    (None, "listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", 1, "Each listener must have a different name"),
    (None, f"{TWO};listeners=INTERNAL://a:1,EXTERNAL://b:1", 1, "Each listener must have a different port"),
    (None, "listeners=SSL://:9093", 1, "there is no SSL and no SASL here; allowed: PLAINTEXT"),
    ("h:1", "security.inter.broker.protocol=SASL_SSL", 1, "listener SASL_SSL has security protocol SASL_SSL"),
    (
        "h:1",
        "inter.broker.listener.name=IN;listener.security.protocol.map=IN:SASL_PLAINTEXT",
        1,
        "listener.security.protocol.map=IN:PLAINTEXT",
    ),
    ("CLIENTS://h:1", "", 1, "No security protocol defined for listener CLIENTS"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT", 1, "expected NAME:PROTOCOL"),
    ("h:1", "listener.security.protocol.map=PLAINTEXT:TLS", 1, "protocols: PLAINTEXT, SSL"),
    ("h:1", "listener.security.protocol.map=A:SSL,A:SSL", 1, "A occurs twice"),
    ("h:1", f"{TWO};security.inter.broker.protocol=PLAINTEXT", 1, "Only one of inter.broker.listener.name and"),
    ("EXTERNAL://h:1", TWO, 1, "inter.broker.listener.name must be a listener name defined in advertised.listeners"),
    ("h:1", "advertised.listeners=PLAINTEXT://0.0.0.0:1", 1, "nonroutable meta-address 0.0.0.0"),
    ("h:1", "advertised.listeners=EXTERNAL://h:1", 1, "The valid options based on the current configuration are PLAIN"),
    ("h:1", "advertised.listeners=PLAINTEXT://h:1", 2, "one broker per process only"),
    ("h:1", "control.plane.listener.name=CONTROL", 1, "control.plane.listener.name must be a listener name defined in"),
    ("h:1", "control.plane.listener.name=PLAINTEXT", 1, "should have a different value from the inter broker listener"),
]


@pytest.mark.parametrize(("argument", "properties", "brokers", "message"), REFUSED)
def test_refused(argument: str | None, properties: str, brokers: int, message: str) -> None:
    with pytest.raises(ListenerError, match=message.replace(".", r"\.")) as refusal:
        plan(argument, properties, brokers=brokers)
    assert "\n" not in str(refusal.value)


# -- a broker with two listeners --------------------------------------------------------------------------------------

INTERNAL, EXTERNAL = "INTERNAL", "EXTERNAL"
LISTENERS = (
    BrokerListener(name=INTERNAL, host="broker-1", port=9092),
    BrokerListener(name=EXTERNAL, host="broker-1", port=9094, advertised_host="outside", advertised_port=19094),
)
TP, LONELY = TopicPartition("orders", 0), TopicPartition("orders", 1)


def entry(topic_partition: TopicPartition, leader: int) -> UpdateMetadataEntry:
    state = LeaderAndIsr(leader=BrokerId(leader), isr=(BrokerId(leader),), leader_epoch=3)
    return UpdateMetadataEntry(topic_partition=topic_partition, state=state, replicas=(BrokerId(leader),))


#: Broker 2 has the internal listener only.
BROKERS = (
    Broker(
        broker_id=BrokerId(1), endpoints=tuple(each.endpoint("broker-1", each.port) for each in LISTENERS), rack="a"
    ),
    Broker(broker_id=BrokerId(2), endpoints=(Endpoint(host="broker-2", port=9092, listener=INTERNAL),)),
)
#: port asked -> brokers told, (error, leader) of a partition that 1 leads and of one that 2 leads, the coordinator told
TOLD_ON: dict[int, tuple[list[tuple[int, str, int]], list[tuple[int, int]], tuple[int, str]]] = {
    9092: ([(1, "broker-1", 9092), (2, "broker-2", 9092)], [(0, 1), (0, 2)], (2, "broker-2")),
    9094: (
        [(1, "outside", 19094)],
        [(0, 1), (ErrorCode.LISTENER_NOT_FOUND, -1)],
        (-1, ""),
    ),
}


def test_each_listener_tells_its_own_addresses(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL)
        assert (broker.endpoint.port, dict(broker.bound_ports)) == (9092, {INTERNAL: 9092, EXTERNAL: 9094})
        coordinated = [entry(TopicPartition(GROUP_METADATA_TOPIC, n), 2) for n in range(50)]
        entries = [entry(TP, 1), entry(LONELY, 2), *coordinated]
        await cluster.update_metadata(1, entries, live_brokers=BROKERS)
        for port, (brokers, leaders, coordinator) in TOLD_ON.items():
            connection = await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")
            answer = await connection.call(ApiKey.METADATA, 9, {"topics": [{"name": "orders"}]})
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == brokers, port
            assert [(p.error_code, p.leader_id) for p in answer.topics[0].partitions] == leaders, port
            described = await connection.call(ApiKey.DESCRIBE_CLUSTER, 0, {})
            assert [(b.broker_id, b.host, b.port) for b in described.brokers] == brokers, port
            found = await connection.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
            assert (found.node_id, found.host) == coordinator, port
            old = await connection.call(ApiKey.METADATA, 5, {"topics": [{"name": "orders"}]})
            expected = [ErrorCode.NONE, ErrorCode.NONE if leaders[1][1] == 2 else ErrorCode.LEADER_NOT_AVAILABLE]
            assert [p.error_code for p in old.topics[0].partitions] == expected, port

    in_memory(scenario)


def test_all_advertised_listeners_are_registered(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        hidden = BrokerListener(name="HIDDEN", host="broker-1", port=9099, is_advertised=False)
        broker = await cluster.start(1, binds=(*LISTENERS, hidden), inter_broker_listener=INTERNAL)
        read = await cluster.in_broker(1, broker._zk.perform_one(GetData(BrokerIdZNode.path(1))))
        assert BrokerIdZNode.decode(BrokerId(1), read.data).endpoints == (
            Endpoint(host="broker-1", port=9092, listener=INTERNAL),
            Endpoint(host="outside", port=19094, listener=EXTERNAL),
        )
        await BrokerConnection.open(cluster.client.network, "broker-1", 9099, client_id="test")

    in_memory(scenario)


def test_a_broker_follows_on_the_listener_between_brokers(in_memory: Any) -> None:
    """The clients' addresses lead nowhere here, so what replicates came by the internal ones."""

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(
                number,
                binds=(
                    BrokerListener(
                        name=EXTERNAL, host=f"broker-{number}", port=9094, advertised_host=f"nowhere-{number}"
                    ),
                    BrokerListener(name=INTERNAL, host=f"broker-{number}", port=9092),
                ),
                inter_broker_listener=INTERNAL,
            )
        await cluster.create_topic("orders", [(1, 2)])
        leader = cluster.brokers[1].context.replicas
        batch = build_values([(None, b"v")], timestamp=1)
        produced = await cluster.in_broker(1, leader.produce({TP: batch}, acks=-1, timeout_ms=30_000))
        assert produced[TP].error is ErrorCode.NONE

    in_memory(scenario)


def test_brokers_get_in_although_clients_have_taken_all_connections(in_memory: Any) -> None:
    """In the place of the client that was silent longest."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL, max_connections=2)

        async def connect(port: int) -> Any:
            return await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")

        clients = [await connect(9094), await connect(9094)]
        for client in (clients[1], clients[0], clients[0]):
            await client.call(ApiKey.API_VERSIONS, 0, {})
        broker = await connect(9092)
        await broker.call(ApiKey.API_VERSIONS, 0, {})
        await clients[0].call(ApiKey.API_VERSIONS, 0, {})
        with pytest.raises(Disconnected):
            await clients[1].call(ApiKey.API_VERSIONS, 0, {})
        late = await connect(9094)
        with pytest.raises(Disconnected):
            await late.call(ApiKey.API_VERSIONS, 0, {})

    in_memory(scenario)

"""Listeners of a broker that runs: which address whom is told, and which it uses itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_sim.broker import StartRefused
from broker_sim.config import BrokerSettings, SettingsError
from controller.rules.configs.broker import check_broker_change
from controller.rules.configs.listeners import NodeListener
from controller.rules.configs.topic import BrokerLevels
from controller.wire.control import UpdateMetadataEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import GROUP_METADATA_TOPIC, Broker, BrokerId, Endpoint, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData
from controller.wire.znodes import BrokerIdZNode
from controller.world.client import BrokerConnection, Disconnected

# -- a broker with two listeners --------------------------------------------------------------------------------------

INTERNAL, EXTERNAL = "INTERNAL", "EXTERNAL"
LISTENERS = (
    NodeListener(name=INTERNAL, host="broker-1", port=9092),
    NodeListener(name=EXTERNAL, host="broker-1", port=9094, advertised_host="outside", advertised_port=19094),
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
#: port asked -> brokers told, (error, leader) of a partition that 1 leads and of one that 2 leads
TOLD_ON: dict[int, tuple[list[tuple[int, str, int]], list[tuple[int, int]]]] = {
    9092: ([(1, "broker-1", 9092), (2, "broker-2", 9092)], [(0, 1), (0, 2)]),
    9094: ([(1, "outside", 19094)], [(0, 1), (ErrorCode.LISTENER_NOT_FOUND, -1)]),
}
#: port asked, coordinator -> what is told of it: error, id, host, port
COORDINATORS: dict[tuple[int, int], tuple[int, int, str, int]] = {
    (9092, 1): (0, 1, "broker-1", 9092),
    (9094, 1): (0, 1, "outside", 19094),
    (9092, 2): (0, 2, "broker-2", 9092),
    (9094, 2): (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1),
    (9092, 3): (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1),
    (9094, 3): (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1),
}


def test_each_listener_tells_its_own_addresses(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL)
        assert (broker.endpoint.port, dict(broker.bound_ports)) == (9092, {INTERNAL: 9092, EXTERNAL: 9094})
        await cluster.update_metadata(1, [entry(TP, 1), entry(LONELY, 2)], live_brokers=BROKERS)
        for port, (brokers, leaders) in TOLD_ON.items():
            connection = await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")
            answer = await connection.call(ApiKey.METADATA, 9, {"topics": [{"name": "orders"}]})
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == brokers, port
            assert [(p.error_code, p.leader_id) for p in answer.topics[0].partitions] == leaders, port
            described = await connection.call(ApiKey.DESCRIBE_CLUSTER, 0, {})
            assert [(b.broker_id, b.host, b.port) for b in described.brokers] == brokers, port
            old = await connection.call(ApiKey.METADATA, 5, {"topics": [{"name": "orders"}]})
            expected = [ErrorCode.NONE, ErrorCode.NONE if leaders[1][1] == 2 else ErrorCode.LEADER_NOT_AVAILABLE]
            assert [p.error_code for p in old.topics[0].partitions] == expected, port

    in_memory(scenario)


#: Broker 1 binds two listeners more, and advertises neither; another has one of them.
UNSEEN = tuple(NodeListener(name=name, host="broker-1", port=port, is_advertised=False)
               for name, port in (("SIDE", 9098), ("HIDDEN", 9099)))  # fmt: skip
#: brokers that live, port asked -> who is listed, who is named as controller
NAMED: list[tuple[tuple[int, ...], int, list[int], int]] = [
    ((1, 2, 3), 9092, [1, 2], 1),
    ((1, 2, 3), 9094, [1], 1),
    ((1, 2, 3), 9098, [3], 3),
    ((1, 2, 3), 9099, [], -1),
    ((2, 3), 9092, [2], 2),
    ((2, 3), 9094, [], -1),
]


def test_a_broker_names_as_controller_whom_it_lists(in_memory: Any) -> None:
    """Itself where it can, while the controller is no broker; clients look its address up in the same answer."""
    brokers = (*BROKERS, Broker(broker_id=BrokerId(3), endpoints=(Endpoint(host="b3", port=9098, listener="SIDE"),)))

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, binds=(*LISTENERS, *UNSEEN), inter_broker_listener=INTERNAL)
        for living, port, listed, named in NAMED:
            live = tuple(broker for broker in brokers if broker.broker_id in living)
            await cluster.update_metadata(1, live_brokers=live)
            connection = await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")
            for version in range(1, 10):
                answer = await connection.call(ApiKey.METADATA, version, {"topics": []})
                assert ([b.node_id for b in answer.brokers], answer.controller_id) == (listed, named), (living, port)
            for version in (0, 1):
                answer = await connection.call(ApiKey.DESCRIBE_CLUSTER, version, {})
                assert ([b.broker_id for b in answer.brokers], answer.controller_id) == (listed, named), (living, port)

    in_memory(scenario)


@pytest.mark.parametrize("coordinator", [1, 2, 3])
def test_each_listener_tells_its_own_address_of_a_coordinator(in_memory: Any, coordinator: int) -> None:
    """None, where it has none there or is dead, as broker 3. Source: Kafka 3.9 `KafkaApis.getCoordinator`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL, offsets_topic_num_partitions=1)
        entries = [entry(TopicPartition(GROUP_METADATA_TOPIC, 0), coordinator)]
        await cluster.update_metadata(1, entries, live_brokers=BROKERS)
        for port in TOLD_ON:
            connection = await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")
            for version in range(4):
                found = await connection.call(ApiKey.FIND_COORDINATOR, version, {"key": "g"})
                told = found.error_code, found.node_id, found.host, found.port
                assert told == COORDINATORS[port, coordinator], (port, version)

    in_memory(scenario)


def test_all_advertised_listeners_are_registered(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        hidden = NodeListener(name="HIDDEN", host="broker-1", port=9099, is_advertised=False)
        broker = await cluster.start(1, binds=(*LISTENERS, hidden), inter_broker_listener=INTERNAL)
        read = await cluster.in_broker(1, broker.zk.perform_one(GetData(BrokerIdZNode.path(1))))
        assert BrokerIdZNode.decode(BrokerId(1), read.data).endpoints == (
            Endpoint(host="broker-1", port=9092, listener=INTERNAL),
            Endpoint(host="outside", port=19094, listener=EXTERNAL),
        )
        await BrokerConnection.open(cluster.client.network, "broker-1", 9099, client_id="test")

    in_memory(scenario)


IN, OUT = "broker-1:9092", "outside:19094"
#: addresses of brokers 2 and 3, who of them dies meanwhile -> which of them broker 1 has, and whose; None: it starts
TAKEN: list[tuple[dict[int, list[str]], int, tuple[str, int] | None]] = [
    ({2: [IN, "a:1"], 3: ["b:2"]}, 0, (IN, 2)),
    ({2: ["a:1", IN], 3: ["b:2"]}, 0, (IN, 2)),
    ({2: [OUT, "a:1"], 3: ["b:2"]}, 0, (OUT, 2)),
    ({2: ["a:1", OUT], 3: ["b:2"]}, 0, (OUT, 2)),
    ({2: ["a:1", "b:2"], 3: ["c:3", IN]}, 0, (IN, 3)),
    ({2: ["a:1"], 3: [OUT, "b:2"]}, 0, (OUT, 3)),
    ({2: ["broker-1:9093", "outside:9092"], 3: ["broker-1:19094", "broker-2:9092"]}, 0, None),
    ({2: ["outside:9094"], 3: []}, 0, None),
    ({2: [IN, OUT], 3: ["c:3", OUT]}, 2, (OUT, 3)),
    ({2: ["c:3", OUT], 3: [IN, OUT]}, 3, (OUT, 2)),
    ({2: [IN, OUT], 3: ["c:3"]}, 2, None),
]


def test_no_broker_starts_with_an_address_that_another_has_of_whichever_listener(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        zk = (await cluster.start(7)).zk
        for others, dying, taken in TAKEN:
            paths = [BrokerIdZNode.path(other) for other in others]
            for path, (other, addresses) in zip(paths, others.items(), strict=True):
                pairs = [address.split(":") for address in addresses]
                found = tuple(Endpoint(host=host, port=int(port), listener=f"L{port}") for host, port in pairs)
                data = BrokerIdZNode.encode(Broker(broker_id=BrokerId(other), endpoints=found), 0)
                await cluster.in_broker(7, zk.perform([Create(path, data, ephemeral=True)]))
            broker, refused = cluster.make(1, binds=LISTENERS, inter_broker_listener=INTERNAL), ""
            starting = asyncio.ensure_future(cluster.in_broker(1, broker.start()))
            await cluster.world.sleep(5)
            await cluster.in_broker(7, zk.perform([Delete(BrokerIdZNode.path(dying))]))
            try:
                await starting
            except StartRefused as error:
                refused = str(error)
            assert (refused == "") == (taken is None), others
            assert taken is None or f"{taken[0]} is registered by broker {taken[1]}; " in refused
            await cluster.in_broker(1, broker.stop(controlled=False))
            await cluster.in_broker(7, zk.perform([Delete(path) for path in paths]))

    in_memory(scenario)


@pytest.mark.parametrize(("address", "is_refused"), [("c:3", False), (OUT, True)], ids=["another", "the same"])
def test_who_died_and_registers_anew_meanwhile_has_the_address_that_it_says_now(
    in_memory: Any, address: str, is_refused: bool
) -> None:
    async def scenario(cluster: Any) -> None:
        async def register(keeper: int, address: str) -> None:
            host, port = address.split(":")
            found = Broker(broker_id=BrokerId(2), endpoints=(Endpoint(host=host, port=int(port), listener="L"),))
            create = Create(BrokerIdZNode.path(2), BrokerIdZNode.encode(found, 0), ephemeral=True)
            zk = cluster.brokers[keeper].zk
            await cluster.in_broker(keeper, zk.perform([Delete(BrokerIdZNode.path(2)), create]))

        for keeper in (7, 8):
            await cluster.start(keeper)
        await register(7, OUT)
        broker = cluster.make(1, binds=LISTENERS, inter_broker_listener=INTERNAL)
        starting = asyncio.ensure_future(cluster.in_broker(1, broker.start()))
        await cluster.world.sleep(5.1)
        await register(8, address)
        refusal: Any = (await asyncio.gather(starting, return_exceptions=True))[0]
        assert isinstance(refusal, StartRefused) is is_refused
        assert not is_refused or f"{OUT} is registered by broker 2; " in str(refusal)
        await cluster.in_broker(1, broker.stop(controlled=False))

    in_memory(scenario)


def test_a_broker_follows_on_the_listener_between_brokers(in_memory: Any) -> None:
    """The clients' addresses lead nowhere here, so what replicates came by the internal ones."""

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(
                number,
                binds=(
                    NodeListener(
                        name=EXTERNAL, host=f"broker-{number}", port=9094, advertised_host=f"nowhere-{number}"
                    ),
                    NodeListener(name=INTERNAL, host=f"broker-{number}", port=9092),
                ),
                inter_broker_listener=INTERNAL,
            )
        await cluster.create_topic("orders", [(1, 2)])
        leader = cluster.brokers[1].context.replicas
        batch = build_values([(None, b"v")], timestamp=1)
        produced = await cluster.in_broker(1, leader.producing.produce({TP: batch}, acks=-1, timeout_ms=30_000))
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
        late = asyncio.ensure_future((await connect(9094)).call(ApiKey.API_VERSIONS, 0, {}))
        await cluster.world.sleep(5)
        assert not late.done(), "it waits until a place is free"
        broker.close()
        await late

    in_memory(scenario)


def test_a_listener_may_have_limits_of_its_own_at_the_start_and_later(in_memory: Any) -> None:
    own = "listener.name.external.max.connections"

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL, properties={own: "1"})

        async def connect(port: int) -> Any:
            return await BrokerConnection.open(cluster.client.network, "broker-1", port, client_id="test")

        client, waiting = await connect(9094), await connect(9094)
        await client.call(ApiKey.API_VERSIONS, 0, {})
        asked = asyncio.ensure_future(waiting.call(ApiKey.API_VERSIONS, 0, {}))
        inside = [await connect(9092) for _ in range(3)]
        for each in inside:
            await each.call(ApiKey.API_VERSIONS, 0, {})
        await cluster.world.sleep(5)
        assert not asked.done()
        configs = [{"name": own, "config_operation": 0, "value": "2"}]
        body = {"resources": [{"resource_type": 4, "resource_name": "1", "configs": configs}]}
        altered = await inside[0].call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        assert altered.responses[0].error_code == ErrorCode.NONE
        await asked
        question = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": [own]}]}
        described = await inside[0].call(ApiKey.DESCRIBE_CONFIGS, 1, question)
        assert [(c.name, c.value, c.is_sensitive) for c in described.results[0].configs] == [(own, "2", False)]

    in_memory(scenario)


#: value -> what Kafka 3.9.1 says to it as a dynamic config (its broker takes any at a start, and serves nobody with 0)
LIMITS = {
    "0": "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration "
    "Invalid dynamic configuration",
    "-1": "Invalid value -1 for configuration max.connections: Value must be at least 0",
    "many": "Invalid value many for configuration max.connections: Not a number of type INT",
}


@pytest.mark.parametrize("value", LIMITS)
def test_a_limit_of_a_listener_that_cannot_be_is_refused(value: str) -> None:
    name = "listener.name.external.max.connections"
    with pytest.raises(SettingsError, match=f"Invalid value {value} for configuration {name}: allowed are 1 to"):
        BrokerSettings.parse({name: value})
    with pytest.raises(KafkaError) as refused:
        check_broker_change({name: value}, BrokerLevels(dynamic={}, dynamic_default={}, static={}), of_one=True)
    assert (refused.value.code, str(refused.value)) == (ErrorCode.INVALID_REQUEST, LIMITS[value])


def test_a_limit_of_a_listener_is_described_with_what_it_stands_above(in_memory: Any) -> None:
    own, all_of_them = "listener.name.external.max.connections", "max.connections"

    async def scenario(cluster: Any) -> None:
        properties = {own: "2", all_of_them: "5"}
        await cluster.start(1, binds=LISTENERS, inter_broker_listener=INTERNAL, properties=properties)
        configs = [{"name": own, "config_operation": 0, "value": "3"}]
        body = {"resources": [{"resource_type": 4, "resource_name": "1", "configs": configs}]}
        await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        await cluster.world.sleep(1)
        question = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": [own]}]}
        answer = await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, 1, {**question, "include_synonyms": True})
        (found,) = answer.results[0].configs
        assert (found.value, found.config_source, found.is_sensitive) == ("3", 2, False)
        assert [(each.name, each.value, each.source) for each in found.synonyms] == [
            (own, "3", 2),
            (own, "2", 4),
            (all_of_them, "5", 4),
            (all_of_them, "2147483647", 5),
        ]

    in_memory(scenario)

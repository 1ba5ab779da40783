"""LeaderAndIsr, StopReplica and UpdateMetadata: what is checked, in which order, and what it leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker_sim.broker import Broker, StartRefused
from controller.rules.configs.listeners import NodeListener
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry, UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker as Node
from controller.wire.types import BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import GetData

TP = TopicPartition("t", 0)
STATE = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=3, controller_epoch=5)
LEAD = LeaderAndIsrEntry(
    topic_partition=TP, state=STATE, assignment=ReplicaAssignment(replicas=(BrokerId(1),)), is_new=True
)
STOP = StopReplicaEntry(topic_partition=TP, leader_epoch=3, delete_partition=False)

# broker epoch relative to ours (None: -1), controller epoch (5 was seen), expected
EPOCHS = [
    ("both are right", 0, 5, ErrorCode.NONE),
    ("no broker epoch is never stale", None, 5, ErrorCode.NONE),
    ("a broker epoch above ours is a registration we have not seen", 7, 5, ErrorCode.NONE),
    ("an older broker epoch", -1, 5, ErrorCode.STALE_BROKER_EPOCH),
    ("an older broker epoch, of a newer controller", -1, 6, ErrorCode.STALE_BROKER_EPOCH),
    ("an older controller epoch", 0, 4, ErrorCode.STALE_CONTROLLER_EPOCH),
    ("a newer controller epoch", 0, 6, ErrorCode.NONE),
    ("the broker epoch is looked at first", -1, 4, ErrorCode.STALE_BROKER_EPOCH),
]


@pytest.mark.parametrize(("_", "shift", "controller_epoch", "error"), EPOCHS, ids=[row[0] for row in EPOCHS])
@pytest.mark.known_failure("E1", "S5")
def test_epochs(in_memory: Any, _: str, shift: int | None, controller_epoch: int, error: ErrorCode) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        cluster.controller_epoch = 5
        await cluster.update_metadata(1)
        ours = broker.context.registration.broker_epoch
        epochs = {"broker_epoch": -1 if shift is None else ours + shift, "controller_epoch": controller_epoch}
        led = await cluster.leader_and_isr(1, [LEAD], **epochs)
        stopped = await cluster.stop_replica(1, [STOP], **epochs)
        updated = await cluster.update_metadata(1, **epochs)
        assert [led.error_code, stopped.error_code, updated.error_code] == [error] * 3
        assert [p.error_code for p in led.partition_errors] == [error]
        assert len(stopped.partition_errors) == (1 if error is ErrorCode.NONE else 0)
        seen = controller_epoch if error is ErrorCode.NONE else 5
        assert broker.context.controller_epoch == seen, "that of a refused request does not count"
        assert broker.context.replicas.is_leader(TP) == (error is ErrorCode.NONE)

    in_memory(scenario)


def test_a_request_before_the_broker_serves_waits_in_order(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        server = broker.server
        server.ready.clear()
        connection = await cluster.connect(1)
        asked = [asyncio.ensure_future(connection.call(ApiKey.METADATA, 1, {"topics": None})) for _ in range(2)]
        await cluster.world.sleep(5)
        assert not any(task.done() for task in asked)
        server.serve_requests()
        await asyncio.gather(*asked)

    in_memory(scenario)


def test_update_metadata_merges_topics_and_replaces_brokers(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        entry = UpdateMetadataEntry(topic_partition=TP, state=STATE, replicas=(BrokerId(1),))
        other = UpdateMetadataEntry(topic_partition=TopicPartition("u", 0), state=STATE, replicas=(BrokerId(1),))
        await cluster.update_metadata(1, [entry])
        await cluster.update_metadata(1, [other])
        answer = await cluster.call(1, ApiKey.METADATA, 9, {"topics": None})
        assert [topic.name for topic in answer.topics] == ["t", "u"]
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert answer.controller_id == 1, "clients never see a controller that is no broker"
        gone = UpdateMetadataEntry(topic_partition=TP, state=STATE, replicas=(BrokerId(1),), being_deleted=True)
        await cluster.update_metadata(1, [gone])
        answer = await cluster.call(1, ApiKey.METADATA, 9, {"topics": None})
        assert [topic.name for topic in answer.topics] == ["u"]

    in_memory(scenario)


def test_before_the_first_update_metadata_there_is_no_broker_and_no_controller(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        answer = await cluster.call(1, ApiKey.METADATA, 9, {"topics": []})
        assert (answer.brokers, answer.controller_id, answer.topics) == ((), -1, ())

    in_memory(scenario)


def test_a_controller_that_is_not_among_the_live_is_nowhere_and_so_is_the_one_before(in_memory: Any) -> None:
    """Who asked that one would be told that it is not the controller, or nothing."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        metadata, endpoint = broker.context.metadata, Endpoint(host="controller", port=9092)
        first = Node(broker_id=BrokerId(901), endpoints=(endpoint,))
        for number, listed, expected in (
            (901, True, endpoint),
            (902, False, None),
            (901, True, endpoint),
            (-1, True, None),
        ):
            live = [*cluster.registered(), *([first] if listed else [])]
            await cluster.update_metadata(1, (), live, controller_id=BrokerId(number))
            assert (metadata.controller_endpoint, metadata.controller_id) == (expected, None if number < 0 else number)
            assert metadata.broker_at("controller", 9092) == (first if listed else None), "for faults of its links"

    in_memory(scenario)


def test_who_asks_a_broker_that_has_just_started_for_topics_waits_for_the_controller_to_tell_of_them(
    in_memory: Any,
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=4)
        async with asyncio.TaskGroup() as tasks:
            client = await cluster.connect(1)
            asking = tasks.create_task(client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}))
            await cluster.world.sleep(0.5)
            entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=(BrokerId(1),))
            await cluster.update_metadata(1, [entry])
        assert [(topic.name, topic.error_code) for topic in asking.result().topics] == [("t", ErrorCode.NONE)]

    in_memory(scenario)


@pytest.mark.parametrize("news_comes_s, brokers", [(0.9, [1]), (None, [])], ids=["in time", "never"])
def test_who_asks_a_broker_that_has_just_started_for_the_cluster_waits_a_moment_too(
    news_comes_s: float | None, brokers: list[int], in_memory: Any
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        async with asyncio.TaskGroup() as tasks:
            client = await cluster.connect(1)
            asking = tasks.create_task(client.call(ApiKey.DESCRIBE_CLUSTER, 1, {}))
            if news_comes_s is not None:
                await cluster.world.sleep(news_comes_s)
                await cluster.update_metadata(1, ())
        assert [broker.broker_id for broker in asking.result().brokers] == brokers

    in_memory(scenario)


def test_a_partition_whose_leader_is_dead_is_said_to_have_none(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        dead = LeaderAndIsr(leader=BrokerId(9), isr=(BrokerId(9),), leader_epoch=4)
        await cluster.update_metadata(1, [UpdateMetadataEntry(topic_partition=TP, state=dead, replicas=(BrokerId(9),))])
        answer = await cluster.call(1, ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (partition.leader_id, partition.leader_epoch) == (-1, 4)
        assert list(partition.replica_nodes) == [9]

    in_memory(scenario)


@pytest.mark.known_failure("Z2")
def test_a_broker_whose_session_expired_registers_again_with_a_new_epoch(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        before = broker.context.registration.broker_epoch
        world = cluster.world
        world.zookeeper.expire_session(broker.zk.session_id)
        await world.until(
            lambda: broker.context.registration.broker_epoch > before, within_s=60, what="a new broker epoch"
        )
        answer = await cluster.leader_and_isr(1, [LEAD], broker_epoch=before)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        found = await cluster.in_broker(1, broker.zk.perform_one(GetData("/brokers/ids/1")))
        assert found.stat.czxid == broker.context.registration.broker_epoch

    in_memory(scenario)


@pytest.mark.known_failure("Z1")
def test_a_second_broker_with_the_same_id_is_refused(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        machine = cluster.world.machine("other")
        first = cluster.make(1)
        identity = first.identity
        twin = Broker(
            replace(identity, listeners=(NodeListener(host="other", port=9092),), log_dirs=(cluster.folder / "other",)),
            first.settings,
            clock=machine.clock,
            network=machine.network,
            zookeeper=machine.connector(),
            chance=machine.chance,
            log=first.log,
        )

        async def program() -> None:
            with pytest.raises(StartRefused, match="broker id 1 is taken"):
                await twin.start()

        await machine.start(program())

    in_memory(scenario)


def test_a_topic_is_forgotten_with_the_last_of_its_partitions(in_memory: Any) -> None:
    """Until then its settings are those that were read."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,), (1,)])
        await cluster.create_topic("u", [(1,)])
        left = []
        for number in range(2):
            gone = UpdateMetadataEntry(
                topic_partition=TopicPartition("t", number), state=STATE, replicas=(BrokerId(1),), being_deleted=True
            )
            await cluster.update_metadata(1, [gone])
            left.append(sorted(broker.context.configs.known_topics))
        assert left == [["t", "u"], ["u"]]

    in_memory(scenario)


def test_a_leader_hears_with_the_metadata_which_brokers_live(in_memory: Any) -> None:
    """Of records that are deleted it waits for nobody who does not."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.start(2)
        await cluster.create_topic("t", [(1, 2)])
        partition = broker.context.replicas.table.partitions[TP]
        both = cluster.registered()
        for live in (both, both[:1], both):
            await cluster.update_metadata(1, live_brokers=live)
            assert partition.led.alive == {each.broker_id for each in live}

    in_memory(scenario)

"""Topics that a broker creates by itself: what ZooKeeper is told, in which order, and what the client is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC, Broker, BrokerId, Endpoint
from controller.wire.zk_operations import Create, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import BrokerIdsZNode, BrokerIdZNode, ConfigEntityZNode, TopicsZNode, TopicZNode


@pytest.mark.parametrize("topic", ["t", GROUP_METADATA_TOPIC])
def test_a_topic_has_its_configs_from_its_first_moment_on(in_memory: Any, topic: str) -> None:
    """The controller acts when it sees the topic, and who hosts it then reads its configs once. A registration that
    does not parse is no broker, and keeps none out."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_replication_factor=1, offsets_topic_num_partitions=2)
        written: list[str] = []
        tree = cluster.world.zookeeper.tree
        tree.write(Create("/brokers/ids/0", b"no registration"), session=1, now_ms=0)

        def note(op: Any) -> ZkCode | None:
            if isinstance(op, (Create, SetData)) and op.path in (
                ConfigEntityZNode.topic(topic),
                TopicZNode.path(topic),
            ):
                written.append(op.path)
            return None

        tree.refusal = note
        if topic == GROUP_METADATA_TOPIC:
            await cluster.call(1, ApiKey.FIND_COORDINATOR, 2, {"key": "g"})
        else:
            await cluster.call(1, ApiKey.METADATA, 5, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
        await cluster.world.sleep(1)
        created = written.index(TopicZNode.path(topic))
        assert ConfigEntityZNode.topic(topic) in written[:created] and written.count(TopicZNode.path(topic)) == 1

    in_memory(scenario)


RACKS = [
    ("none has one", None, None, ErrorCode.LEADER_NOT_AVAILABLE),
    ("each has one", "a", "b", ErrorCode.LEADER_NOT_AVAILABLE),
    ("some have one", None, "a", ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.mark.feature("000-20")
@pytest.mark.parametrize(("_", "mine", "other", "answer"), RACKS, ids=[row[0] for row in RACKS])
def test_a_topic_is_created_where_all_brokers_have_a_rack_or_none(
    in_memory: Any, _: str, mine: str | None, other: str | None, answer: ErrorCode
) -> None:
    """Tried with Kafka 3.9.1: it answers UNKNOWN_SERVER_ERROR where only some have one, and creates nothing."""

    async def scenario(cluster: Any) -> None:
        factors = {"default_replication_factor": 2, "offsets_topic_replication_factor": 2}
        await cluster.start(1, rack=mine, num_partitions=2, **factors)
        registered = Broker(broker_id=BrokerId(2), endpoints=(Endpoint(host="b", port=1),), rack=other)
        tree = cluster.world.zookeeper.tree
        tree.write(Create(BrokerIdZNode.path(2), BrokerIdZNode.encode(registered, 0)), session=1, now_ms=0)
        assert await told(await cluster.connect(1)) == answer
        topic = tree.get(TopicZNode.path("t"))
        placed = TopicZNode.decode(topic.payload).partitions if topic else {}
        is_made = answer is ErrorCode.LEADER_NOT_AVAILABLE
        assert sorted(each.replicas for each in placed.values()) == [(1, 2), (2, 1)] * is_made
        groups = TopicZNode.path(GROUP_METADATA_TOPIC)
        found = await cluster.call(1, ApiKey.FIND_COORDINATOR, 2, {"key": "g"})
        assert (found.error_code, groups in tree.paths()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, is_made)

    in_memory(scenario)


ASKED = {"topics": [{"name": "t"}], "allow_auto_topic_creation": True}
CREATED, UNKNOWN = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def told(connection: Any) -> ErrorCode:
    return ErrorCode((await connection.call(ApiKey.METADATA, 5, ASKED)).topics[0].error_code)


@pytest.mark.parametrize("brokers", [(1, 2), (1, 2, 3), (1, 1), (1, 1, 2, 2)], ids=str)
def test_a_topic_that_many_ask_for_at_once_is_created_once_and_nobody_is_told_of_a_failure(
    in_memory: Any, brokers: tuple[int, ...]
) -> None:
    """Whose broker was late is told as whose created it. A broker creates a topic once at a time; who asks it
    meanwhile asks again. Source: Kafka 3.9 `DefaultAutoTopicCreationManager.createTopicsInZk`, its in-flight topics.
    """

    async def scenario(cluster: Any) -> None:
        for number in sorted(set(brokers)):
            await cluster.start(number)
        tried = []

        def note(op: Any) -> ZkCode | None:
            tried.extend([op.path] if isinstance(op, Create) and op.path == TopicZNode.path("t") else [])
            return None

        tree = cluster.world.zookeeper.tree
        tree.refusal = note
        connections = [await cluster.connect(number) for number in brokers]
        answers = await asyncio.gather(*map(told, connections))
        assert len(tried) == len(set(brokers)), "all found that it is not there, else nothing is asked here"
        once = len(brokers) - len(set(brokers))
        assert sorted(answers) == sorted([CREATED] * len(set(brokers)) + [UNKNOWN] * once)
        assert len(TopicZNode.decode(tree.get(TopicZNode.path("t")).payload).partitions) == 1
        assert [await told(each) for each in connections] == [CREATED] * len(brokers), "it is in ZooKeeper now"

    in_memory(scenario)


CONFIG, TOPIC = ConfigEntityZNode.topic("t"), TopicZNode.path("t")
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
#: which operation, how ZooKeeper answers it -> what the client is told
REFUSED = [
    (Create, TOPIC, ZkCode.NODE_EXISTS, CREATED),
    (Create, TOPIC, ZkCode.NO_AUTH, FAILED),
    (Create, CONFIG, ZkCode.NODE_EXISTS, CREATED),
    (Create, CONFIG, ZkCode.NO_AUTH, FAILED),
    (SetData, CONFIG, ZkCode.NO_AUTH, FAILED),
    (GetChildren, TopicsZNode.path, ZkCode.NO_NODE, CREATED),
    (GetChildren, BrokerIdsZNode.path, ZkCode.NO_NODE, ErrorCode.INVALID_REPLICATION_FACTOR),
    (GetData, "/brokers/ids/1", ZkCode.NO_NODE, ErrorCode.INVALID_REPLICATION_FACTOR),
]


@pytest.mark.parametrize(("kind", "path", "code", "error"), REFUSED)
def test_what_zookeeper_refuses_is_told_and_only_what_failed(
    in_memory: Any, kind: Any, path: str, code: ZkCode, error: ErrorCode
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        tree = cluster.world.zookeeper.tree
        connection = await cluster.connect(1)
        tree.refusal = lambda op: code if isinstance(op, kind) and op.path == path else None
        assert await told(connection) == error
        is_made = error is CREATED and path != TOPIC
        assert (tree.get(TOPIC) is not None) is is_made
        tree.refusal = lambda op: None
        assert (await told(connection), tree.get(TOPIC) is not None) == (CREATED, True), "it is asked for again"

    in_memory(scenario)


@pytest.mark.parametrize("name", ["a.b_c", "a_b_c", "a.b.c", "a.b-c"])
def test_a_topic_whose_metrics_would_be_those_of_another_is_not_created(in_memory: Any, name: str) -> None:
    """Source: Kafka 3.9 `AdminZkClient.validateTopicCreate`, `Topic.hasCollision`."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await cluster.create_topic("a.b_c", [(1,)])
        await cluster.in_broker(1, cluster.brokers[1].zk.perform([Create(TopicZNode.path("a.b_c"), b"")]))
        connection = await cluster.connect(1)
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        error = (await connection.call(ApiKey.METADATA, 5, asked)).topics[0].error_code
        expected = {"a.b_c": ErrorCode.NONE, "a.b-c": CREATED}.get(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        is_there = cluster.world.zookeeper.tree.get(TopicZNode.path(name)) is not None
        assert (error, is_there) == (expected, expected is not ErrorCode.INVALID_TOPIC_EXCEPTION)

    in_memory(scenario)

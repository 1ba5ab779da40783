"""Admin clients as they are today, unmodified: they see three brokers, whichever they ask, and no controller.

kafka-python 3, confluent-kafka and aiokafka each list the cluster, make, grow and delete topics, alter configs, move a
partition and elect leaders; kafka-python asks for the rest of what its admin client offers, too.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from confluent_kafka.admin import ResourceType as ConfluentResource

pytestmark = [pytest.mark.zk, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
LIMIT_S = 60.0
BROKERS = {1, 2, 3}


@pytest.fixture
def python_admin(bootstrap: str) -> Any:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def test_kafka_python_sees_brokers_alone(python_admin: Any) -> None:
    cluster = python_admin.describe_cluster()
    assert {broker["broker_id"] for broker in cluster["brokers"]} == BROKERS
    assert cluster["controller_id"] in BROKERS
    assert {each["broker"] for each in python_admin.describe_log_dirs()} == BROKERS


def test_kafka_python_administers_through_any_broker(python_admin: Any, bootstrap: str) -> None:
    from kafka import TopicPartition
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType
    from kafka.admin import NewTopic as PythonTopic
    from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

    admin = python_admin
    admin.create_topics([PythonTopic("p", num_partitions=2, replication_factor=3)], wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([PythonTopic("p", num_partitions=2, replication_factor=3)])
    with pytest.raises(InvalidReplicationFactorError, match="larger than available brokers: 3"):
        admin.create_topics([PythonTopic("q", num_partitions=1, replication_factor=4)])
    admin.create_partitions({"p": 3})
    until(lambda: [len(topic["partitions"]) for topic in admin.describe_topics(["p"])] == [3])
    resource = Resource(ConfigResourceType.TOPIC, "p", {"retention.ms": "123456"})
    assert admin.alter_configs([resource]) == {"topic": {"p": "OK"}}
    until(lambda: "retention.ms" in admin.describe_configs([resource])["topic"]["p"])
    admin.alter_partition_reassignments({TopicPartition("p", 0): [1, 2]})
    until(lambda: not admin.list_partition_reassignments())
    (topic,) = admin.describe_topics(["p"])
    assert next(p["replica_nodes"] for p in topic["partitions"] if p["partition_index"] == 0) == [1, 2]
    assert admin.elect_leaders(0, [TopicPartition("p", 0)], raise_errors=False).error_code == 0
    produced(bootstrap, "p", 10)
    assert admin.delete_records({TopicPartition("p", 1): 0})[TopicPartition("p", 1)]["error_code"] == 0
    assert admin.list_partition_offsets({TopicPartition("p", 1): -1})
    assert [group["group_id"] for group in admin.list_groups()] == []
    admin.delete_topics(["p"])
    until(lambda: "p" not in admin.list_topics())


def produced(bootstrap: str, topic: str, count: int) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [producer.send(topic, value=b"%d" % number) for number in range(count)]
    assert all(future.get(timeout=LIMIT_S).offset >= 0 for future in sent)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(r.value for records in consumer.poll(timeout_ms=500).values() for r in records)
        return len(values) == count

    until(all_read)
    consumer.close()


def until(is_so: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def test_confluents_admin_client_sees_brokers_alone_and_administers(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_topics(timeout=LIMIT_S)
    assert set(listed.brokers) == BROKERS and listed.controller_id in BROKERS
    described = admin.describe_cluster().result(LIMIT_S)
    assert {node.id for node in described.nodes} == BROKERS and described.controller.id in BROKERS
    admin.create_topics([NewTopic("c", 2, 3)])["c"].result(LIMIT_S)
    with pytest.raises(KafkaException, match="Replication factor: 4 larger than available brokers: 3"):
        admin.create_topics([NewTopic("d", 1, 4)])["d"].result(LIMIT_S)
    admin.create_partitions([NewPartitions("c", 3)])["c"].result(LIMIT_S)
    until(lambda: len(admin.describe_topics(TopicCollection(["c"]))["c"].result(LIMIT_S).partitions) == 3)
    entry = ConfigEntry("retention.ms", "99999", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfluentResource.TOPIC, "c", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [ConfluentPartition("c", 0)]).result(LIMIT_S)
    assert [error.name() for error in outcome.values()] == ["ELECTION_NOT_NEEDED"]
    admin.delete_topics(["c"])["c"].result(LIMIT_S)


def test_aiokafkas_admin_client_sees_brokers_alone_and_administers(bootstrap: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewPartitions as AioPartitions
    from aiokafka.admin import NewTopic as AioTopic

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            cluster = await admin.describe_cluster()
            assert {broker["node_id"] for broker in cluster["brokers"]} == BROKERS
            assert cluster["controller_id"] in BROKERS
            created = await admin.create_topics([AioTopic("a", 2, 3)])
            assert [error[1] for error in created.topic_errors] == [0]
            grown = await admin.create_partitions({"a": AioPartitions(3)})
            assert [error[1] for error in grown.topic_errors] == [0]
            deleted = await admin.delete_topics(["a"])
            assert [error[1] for error in deleted.topic_error_codes] == [0]
        finally:
            await admin.close()

    asyncio.run(scenario())

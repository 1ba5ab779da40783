"""What each client library produces, in each codec, every client library reads; and what admin clients ask for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .clients import CLIENTS, LIMIT_S, Sent

pytestmark = [pytest.mark.zk, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
FIRST_MS = 1_700_000_000_000


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    new = NewTopic(topic, partitions, 3, config={name.replace("_", "."): value for name, value in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([new]).values():
        future.result(LIMIT_S)


def records(client: str, codec: str, count: int = 40) -> list[Sent]:
    return [
        (f"k{n % 7}".encode(), f"{client} {codec} {n} {'x' * n}".encode(), FIRST_MS + n * 1000) for n in range(count)
    ]


@pytest.mark.parametrize("reader", CLIENTS, ids=lambda client: client.name)
def test_what_all_produce_each_reads(bootstrap: str, reader: Any, written: Callable[[], list[Sent]]) -> None:
    wanted = written()
    found = reader.read(bootstrap, "mixed", PARTITIONS)
    assert sorted((key, value, at) for _, _, key, value, at in found) == sorted(wanted)
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset, *_ in found if partition == number]
        assert offsets == list(range(len(offsets)))
    by_partition = {(partition, key) for partition, _, key, value, _ in found if value.startswith(b"kafka-python")}
    assert len(by_partition) == len({key for _, key in by_partition}), "a key went to two partitions"


@pytest.fixture(scope="module")
def written(bootstrap: str) -> Callable[[], list[Sent]]:
    """Each client writes in each codec, once, with and without idempotence."""
    done: list[Sent] = []

    def write() -> list[Sent]:
        if not done:
            create(bootstrap, "mixed", retention_ms="-1")
            for client in CLIENTS:
                for number, codec in enumerate(CODECS):
                    rows = records(client.name, codec)
                    client.produce(bootstrap, "mixed", rows, codec, idempotent=number % 2 == 0)
                    done.extend(rows)
        return done

    return write


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_offsets_by_time(bootstrap: str, client: Any) -> None:
    topic = f"timed-{client.name}"
    create(bootstrap, topic, 1, retention_ms="-1")
    client.produce(bootstrap, topic, records(client.name, "lz4", 20), "lz4", idempotent=True)
    at = [client.offsets_at(bootstrap, topic, 1, FIRST_MS + ms)[0] for ms in (-1, 0, 1, 7_000, 19_000)]
    assert at == [0, 0, 1, 7, 19]
    assert client.offsets_at(bootstrap, topic, 1, FIRST_MS + 20_000)[0] in (-1, 20)  # none: each has its own word


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not(bootstrap: str, client: Any) -> None:
    topic = f"small-{client.name}"
    create(bootstrap, topic, 1, max_message_bytes="1000")
    with pytest.raises((AssertionError, Exception), match=r"(?i)too.?large|MSG_SIZE|10"):
        client.produce(bootstrap, topic, [(b"k", b"x" * 5000, FIRST_MS)], "none", idempotent=False)
    client.produce(bootstrap, topic, [(b"k", b"x" * 500, FIRST_MS)], "none", idempotent=False)
    assert len(client.read(bootstrap, topic, 1)) == 1


def test_transactions_are_refused_at_once_by_name(bootstrap: str) -> None:
    producer, started = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"}), time.monotonic()
    with pytest.raises(KafkaException, match=r"(?i)transactional.?id.*authorization"):
        producer.init_transactions(LIMIT_S)
    assert time.monotonic() - started < LIMIT_S / 2, "it was asked again and again"


def test_what_an_admin_client_asks_for(bootstrap: str) -> None:
    """Topics, partitions, configs of topics and brokers, offsets, groups, records to delete, the cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, "managed", 1)
    for future in admin.create_partitions([NewPartitions("managed", 3)]).values():
        future.result(LIMIT_S)
    resource = ConfigResource(ResourceType.TOPIC, "managed")
    resource.add_incremental_config(ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(LIMIT_S)
    (described,) = (f.result(LIMIT_S) for f in admin.describe_configs([resource]).values())
    assert described["retention.ms"].value == "12345"
    broker = ConfigResource(ResourceType.BROKER, "1")
    (settings,) = (f.result(LIMIT_S) for f in admin.describe_configs([broker]).values())
    assert settings["num.partitions"].is_read_only
    assert settings["ssl.keystore.password"].is_sensitive
    assert len(settings) > 300
    cluster = admin.describe_cluster().result(LIMIT_S)
    assert len(cluster.nodes) >= 3
    assert cluster.cluster_id
    _groups_and_offsets(bootstrap, admin)
    for future in admin.delete_topics(["managed"]).values():
        future.result(LIMIT_S)


def _groups_and_offsets(bootstrap: str, admin: AdminClient) -> None:
    CLIENTS[0].produce(bootstrap, "managed", records("c", "none"), "none", idempotent=True)
    place = TopicPartition("managed", 0)
    (end,) = (f.result(LIMIT_S).offset for f in admin.list_offsets({place: OffsetSpec.latest()}).values())
    assert end > 0
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "managers"})
    group.commit(offsets=[TopicPartition("managed", 0, 2)], asynchronous=False)
    group.close()
    listed = admin.list_consumer_groups().result(LIMIT_S)
    assert "managers" in {found.group_id for found in listed.valid}
    (state,) = (f.result(LIMIT_S) for f in admin.describe_consumer_groups(["managers"]).values())
    assert state.state.name == "EMPTY"
    moved = ConsumerGroupTopicPartitions("managers", [TopicPartition("managed", 0, 1)])
    for future in admin.alter_consumer_group_offsets([moved]).values():
        future.result(LIMIT_S)
    asked = [ConsumerGroupTopicPartitions("managers")]
    (offsets,) = (f.result(LIMIT_S) for f in admin.list_consumer_group_offsets(asked).values())
    assert [(p.topic, p.partition, p.offset) for p in offsets.topic_partitions] == [("managed", 0, 1)]
    for future in admin.delete_consumer_groups(["managers"]).values():
        future.result(LIMIT_S)
    (deleted,) = (f.result(LIMIT_S) for f in admin.delete_records([TopicPartition("managed", 0, end)]).values())
    assert deleted.low_watermark == end

"""Znodes byte by byte as Kafka writes them, and what becomes of content that does not parse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.znodes import (
    BrokerIdZNode,
    ClusterIdZNode,
    ConfigChangesZNode,
    ConfigEntityZNode,
    ControllerEpochZNode,
    ControllerZNode,
    FeatureZNode,
    LogDirEventNotificationZNode,
    ProducerIdBlockZNode,
    ReassignPartitionsZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicZNode,
    ZnodeError,
    decode_partitions,
    encode_partitions,
)

TP = TopicPartition("t", 0)


def ids(*values: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(v) for v in values)


BROKER = Broker(broker_id=BrokerId(1), endpoints=(Endpoint(host="h", port=9092),))
RACKED = Broker(
    broker_id=BrokerId(1), endpoints=(Endpoint(host="::1", port=1, listener="TLS", security_protocol=1),), rack="r1"
)
MOVING = TopicAssignment(
    partitions={0: ReplicaAssignment(replicas=ids(4, 1, 2), adding_replicas=ids(4), removing_replicas=ids(1))},
    topic_id="x_oECR_rT6uGoWuuHulV7A",
)
STATE = LeaderAndIsr(leader=BrokerId(0), isr=ids(0), controller_epoch=1)
LEADERLESS = LeaderAndIsr(leader=None, isr=ids(3, 1), controller_epoch=2, leader_epoch=7)

WRITTEN = [
    (
        "controller",
        ControllerZNode.encode(BrokerId(1), 1700000000000),
        '{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    ("controller epoch", ControllerEpochZNode.encode(7), "7"),
    ("cluster id", ClusterIdZNode.encode("Qcl0SmYDQ6eGmWnS1ZyYcw"), '{"version":"1","id":"Qcl0SmYDQ6eGmWnS1ZyYcw"}'),
    (
        "broker",
        BrokerIdZNode.encode(BROKER, 1603608218902),
        '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,'
        '"port":9092,"host":"h","version":4,"timestamp":"1603608218902"}',
    ),
    (
        "broker with a rack and no plain listener",
        BrokerIdZNode.encode(RACKED, 0),
        '{"listener_security_protocol_map":{"TLS":"SSL"},"endpoints":["TLS://[::1]:1"],"rack":"r1","jmx_port":-1,'
        '"port":-1,"host":null,"version":4,"timestamp":"0"}',
    ),
    (
        "broker without a host",
        BrokerIdZNode.encode(replace(BROKER, endpoints=(Endpoint(host="", port=9092),)), 0),
        '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://:9092"],"jmx_port":-1,'
        '"port":9092,"host":null,"version":4,"timestamp":"0"}',
    ),
    (
        "topic that moves, with an id",
        TopicZNode.encode(MOVING),
        '{"partitions":{"0":[4,1,2]},"topic_id":"x_oECR_rT6uGoWuuHulV7A","adding_replicas":{"0":[4]},'
        '"removing_replicas":{"0":[1]},"version":3}',
    ),
    (
        "topic without an id",
        TopicZNode.encode(TopicAssignment(partitions={p: ReplicaAssignment(replicas=ids(1)) for p in (10, 2)})),
        '{"partitions":{"2":[1],"10":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        "state",
        TopicPartitionStateZNode.encode(STATE),
        '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}',
    ),
    (
        "state without a leader",
        TopicPartitionStateZNode.encode(LEADERLESS),
        '{"controller_epoch":2,"leader":-1,"version":1,"leader_epoch":7,"isr":[3,1]}',
    ),
    ("partitions", encode_partitions([TP]), '{"version":1,"partitions":[{"topic":"t","partition":0}]}'),
    (
        "reassignment",
        ReassignPartitionsZNode.encode({TP: ids(1, 2)}),
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    ),
    ("log dir event", LogDirEventNotificationZNode.encode(BrokerId(1)), '{"version":1,"broker":1,"event":1}'),
    ("config", ConfigEntityZNode.encode({"retention.ms": "1"}), '{"version":1,"config":{"retention.ms":"1"}}'),
    ("config change", ConfigChangesZNode.encode("topics/t"), '{"version":2,"entity_path":"topics/t"}'),
    ("features", FeatureZNode.DISABLED, '{"features":{},"version":1,"status":0}'),
    (
        "producer ids",
        ProducerIdBlockZNode.encode(BrokerId(1), 0, 999),
        '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
]


@pytest.mark.parametrize(("data", "expected"), [c[1:] for c in WRITTEN], ids=[c[0] for c in WRITTEN])
def test_written_as_kafka_does(data: bytes, expected: str) -> None:
    assert data.decode() == expected


READ_BACK: list[Any] = [
    (TopicZNode.decode(TopicZNode.encode(MOVING)), MOVING),
    (TopicPartitionStateZNode.decode(TopicPartitionStateZNode.encode(LEADERLESS), 0), LEADERLESS),
    (BrokerIdZNode.decode(BrokerId(1), BrokerIdZNode.encode(RACKED, 0)), RACKED),
    (decode_partitions(encode_partitions([TP])), {TP}),
    (ReassignPartitionsZNode.decode(ReassignPartitionsZNode.encode({TP: ids(2, 1)})), {TP: ids(2, 1)}),
    (TopicPartitionStateZNode.partition(TopicPartitionStateZNode.path(TP)), TP),
    (ConfigChangesZNode.decode(b'{"version":1,"entity_type":"topics","entity_name":"t"}'), "topics/t"),
    (
        TopicZNode.decode(b'{"version":1,"partitions":{"0":[2,1]}}').partitions,
        {0: ReplicaAssignment(replicas=ids(2, 1))},
    ),
    (ProducerIdBlockZNode.decode(None), None),
]


@pytest.mark.parametrize(("got", "expected"), READ_BACK)
def test_read(got: Any, expected: Any) -> None:
    assert got == expected


V1 = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"0"}'
V2 = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"0","endpoints":["PLAINTEXT://h:9092"]}'
V5 = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
    b'"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"0"}'
)


@pytest.mark.parametrize("data", [V1, V2, V5])
def test_registrations_of_other_versions(data: bytes) -> None:
    assert BrokerIdZNode.decode(BrokerId(1), data) == BROKER


BAD = [None, b"", b"{", b"[]", b"1", b"null", b"\xff", b"{}", b'{"version":1}', b'"x"', b"[" * 100_000]


@pytest.mark.parametrize("data", BAD)
def test_what_does_not_parse_counts_as_absent(data: bytes | None) -> None:
    assert ControllerZNode.decode(data) is None
    assert TopicZNode.decode(data) == TopicAssignment()
    assert TopicPartitionStateZNode.decode(data, 0) is None
    assert decode_partitions(data) == frozenset()
    assert LogDirEventNotificationZNode.decode(data) is None
    assert ConfigEntityZNode.decode(data) == {}
    assert ConfigChangesZNode.decode(data) is None


@pytest.mark.parametrize("data", BAD)
def test_what_must_parse_is_refused(data: bytes | None) -> None:
    with pytest.raises(ZnodeError, match="/brokers/ids/1"):
        BrokerIdZNode.decode(BrokerId(1), data)
    with pytest.raises(ZnodeError, match="/feature"):
        FeatureZNode.is_disabled(data)
    with pytest.raises(ZnodeError, match="reassign_partitions"):
        ReassignPartitionsZNode.decode(data)


FLAWS = [
    (b"", "it is empty"),
    (b"{no", "it is no JSON object: b'{no'"),
    (b"[1]", "it is no JSON object: b'[1]'"),
    (b"{}", "it has no 'version'; it holds b'{}'"),
    (b'{"version":4444444444}', "4444444444 is beyond 32 bits; it holds b'{\"version\":4444444444}'"),
    (b'{"version":"4"}', "'4' is no integer; it holds b'{\"version\":\"4\"}'"),
    (
        b'{"version":1,"host":"' + b"x" * 300,
        "it is no JSON object: " + repr(b'{"version":1,"host":"' + b"x" * 179) + "...",
    ),
]


@pytest.mark.parametrize(("data", "said"), FLAWS)
def test_what_is_wrong_is_said_in_words(data: bytes, said: str) -> None:
    with pytest.raises(ZnodeError) as refused:
        BrokerIdZNode.decode(BrokerId(1), data)
    assert str(refused.value) == f"/brokers/ids/1 does not parse: {said}"


STRICT = [
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}',
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}',
    '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    '{"version":1,"partitions":[{"topic":1,"partition":0,"replicas":[1]}]}',
    '{"version":1,"partitions":[],"more":1}',
]


@pytest.mark.parametrize("text", STRICT)
def test_reassignments_are_read_strictly(text: str) -> None:
    with pytest.raises(ZnodeError):
        ReassignPartitionsZNode.decode(text.encode())


#: what a topic znode says of a partition -> whether that can be
SAID: list[tuple[bool, dict[str, Any]]] = [
    (True, {"partitions": [1, 2]}),
    (True, {"partitions": [3, 1, 2], "adding_replicas": [3], "removing_replicas": [1]}),
    (True, {"partitions": [3, 1], "adding_replicas": [3]}),
    (True, {"partitions": [3, 1], "removing_replicas": [1]}),
    (False, {"partitions": [1, 2], "adding_replicas": [3], "removing_replicas": [1]}),
    (False, {"partitions": [1, 2], "adding_replicas": [1, 2]}),
    (False, {"partitions": [1, 2], "removing_replicas": [1, 2]}),
    (False, {"partitions": "1,2", "adding_replicas": [3], "removing_replicas": None}),
    (False, {"partitions": [1, 2], "adding_replicas": "3"}),
    (False, {"partitions": [], "removing_replicas": [9]}),
]
LISTS = ("partitions", "adding_replicas", "removing_replicas")


@settings(max_examples=200)
@given(st.dictionaries(st.integers(0, 20), st.sampled_from(SAID), max_size=5), st.sampled_from([{}, {"topic_id": "x"}]))
def test_a_rewrite_of_a_topic_keeps_all_that_is_said_of_each_partition(said: Any, more: Any) -> None:
    """Of those whose assignment can be, and, as text, of those whose cannot; what changes is what was meant to."""
    document = {"version": 3, **more, **{name: {} for name in LISTS}}
    for partition, (_, lists) in said.items():
        for name, replicas in lists.items():
            document[name][str(partition)] = replicas
    found = TopicZNode.parse(json.dumps(document).encode())
    assert set(found.partitions) == {partition for partition, (can_be, _) in said.items() if can_be}
    assert set(found.refused) == {str(partition) for partition, (can_be, _) in said.items() if not can_be}
    assert json.loads(TopicZNode.encode(found)) == document
    settled = replace(found, partitions={p: ReplicaAssignment(replicas=ids(7)) for p in found.partitions})
    for partition in found.partitions:
        document["partitions"][str(partition)] = [7]
        document["adding_replicas"].pop(str(partition), None)
        document["removing_replicas"].pop(str(partition), None)
    assert json.loads(TopicZNode.encode(settled)) == document
    assert TopicZNode.parse(TopicZNode.encode(settled)).refused == found.refused


def test_numbers_beyond_32_bits_are_written_again_as_they_stand() -> None:
    """They are no integers to who reads them, but a rewrite must not make of them what no JSON parser takes."""
    text = (
        '{"partitions":{"0":[1],"1":[99999999999]},"adding_replicas":{},"removing_replicas":{},"version":3,'
        '"created_ms":1700000000000,"by":{"ids":[-2147483649,18446744073709551616]}}'
    )
    found = TopicZNode.parse(text.encode())
    assert found.partitions.keys() == {0}
    assert found.refused.keys() == {"1"}
    assert TopicZNode.encode(found).decode() == text


def test_a_config_whose_value_is_a_number_is_that_number() -> None:
    data = b'{"version":1,"config":{"retention.ms":604800000,"retention.bytes":-10000000000}}'
    assert ConfigEntityZNode.parse(data) == {"retention.ms": "604800000", "retention.bytes": "-10000000000"}


UNSPEAKABLE = [
    ("a port beyond 32 bits", '{"version":4,"endpoints":["PLAINTEXT://h:2147483648"]}', "port 2147483648"),
    ("a negative one", '{"version":4,"endpoints":["PLAINTEXT://h:-2147483649"]}', "port -2147483649"),
    ("a host that is no text", '{"version":1,"host":null,"port":9092}', "host None"),
]


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in UNSPEAKABLE], ids=[row[0] for row in UNSPEAKABLE])
def test_a_registration_that_no_request_can_carry_is_refused(text: str, said: str) -> None:
    """Else no UpdateMetadata could be put into bytes while it is there, for any broker."""
    with pytest.raises(ZnodeError, match=f"/brokers/ids/1 does not parse: {said}"):
        BrokerIdZNode.decode(BrokerId(1), text.encode())


def test_half_a_character_is_a_question_mark_as_what_java_writes_of_it() -> None:
    """A document may hold an escape of half a character; nothing of it could be put into a request or a znode."""
    rack = b'{"version":4,"endpoints":["PLAINTEXT://h:1"],"rack":"a\\ud83d-\\ud83d\\ude00"}'
    assert BrokerIdZNode.decode(BrokerId(1), rack).rack == "a?-\U0001f600"
    assert ConfigEntityZNode.parse(b'{"config":{"\\uDFFFx":"\\uD800"}}') == {"?x": "?"}
    assert decode_partitions(b'{"partitions":[{"topic":"\\udc00","partition":0}]}') == {TopicPartition("?", 0)}
    text = '{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3,"by":["?",{"a":"?"}]}'
    found = TopicZNode.parse(text.replace("?", "\\udbff").encode())
    assert TopicZNode.encode(found).decode() == text

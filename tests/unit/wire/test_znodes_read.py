"""What each znode may hold, and what is made of it: the edges of every reader, beside what it must not take."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.topic_znode import is_partition
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.znodes import (
    BrokerIdsZNode,
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
    TopicPartitionStateZNode,
    TopicPartitionsZNode,
    TopicZNode,
    ZnodeError,
    parse_partitions,
)

REFUSED = ZnodeError
IDS_END = 2**63 - 1 - 1000
READ: list[tuple[Callable[[bytes], Any], list[tuple[str, Any]]]] = [
    (
        ControllerEpochZNode.decode,
        [
            *(("0", 0), ("7", 7), ("2147483646", 2**31 - 2)),
            *((text, REFUSED) for text in ("", "-1", "2147483647", "99999999999", "1.0", "x", " 7")),
        ],
    ),
    (
        ControllerZNode.decode,
        [('{"brokerid":0}', 0), ('{"version":9,"brokerid":2147483647,"more":1}', 2**31 - 1)]
        + [(text, None) for text in ('{"brokerid":"1"}', '{"brokerid":true}', '{"brokerid":2147483648}')],
    ),
    (
        ClusterIdZNode.decode,
        [('{"version":"1","id":"abc"}', "abc"), ('{"id":""}', "")]
        + [(text, REFUSED) for text in ("", "abc", "[]", '"id"', "{}", '{"id":1}', '{"id":null}')],
    ),
    (
        FeatureZNode.is_disabled,
        [
            ('{"features":{},"version":1,"status":0}', True),
            ('{"features":{},"version":1,"status":1}', False),
            ('{"features":{},"version":2,"status":0}', False),
            ('{"features":{"f":{"min_version_level":1}},"version":1,"status":0}', False),
            ('{"features":{},"version":0,"status":0}', REFUSED),
            ('{"features":{},"version":3,"status":0}', REFUSED),
            ('{"features":{},"version":1,"status":2}', REFUSED),
            ('{"features":{},"version":1,"status":-1}', REFUSED),
            ('{"features":[],"version":1,"status":0}', REFUSED),
            ('{"features":{},"version":1}', REFUSED),
            ('{"features":{},"status":0}', REFUSED),
            ('{"version":1,"status":0}', REFUSED),
        ],
    ),
    (
        ProducerIdBlockZNode.decode,
        [
            ('{"version":1,"broker":1,"block_start":"0","block_end":"999"}', 999),
            (f'{{"block_end":"{IDS_END}"}}', IDS_END),
            (f'{{"block_end":"{IDS_END + 1}"}}', REFUSED),
            ('{"block_end":999}', REFUSED),
            ('{"block_end":"-1"}', REFUSED),
            ('{"block_end":""}', REFUSED),
            ('{"block_end":"\u0669"}', REFUSED),
            ('{"block_start":"0"}', REFUSED),
            ("", REFUSED),
        ],
    ),
    (
        ConfigChangesZNode.decode,
        [
            ('{"version":2,"entity_path":"users/u/clients/c"}', "users/u/clients/c"),
            ('{"version":1,"entity_type":"topics","entity_name":"t"}', "topics/t"),
            ('{"version":1,"entity_type":"clients","entity_name":"c"}', "clients/c"),
            ('{"version":1,"entity_type":"users","entity_name":"u"}', None),
            ('{"version":1,"entity_type":"brokers","entity_name":"1"}', None),
            ('{"version":1,"entity_path":"topics/t"}', None),
            ('{"version":2,"entity_type":"topics","entity_name":"t"}', None),
            ('{"version":2,"entity_path":7}', None),
            ('{"version":3,"entity_path":"topics/t"}', None),
            ('{"entity_path":"topics/t"}', None),
        ],
    ),
    (
        ConfigEntityZNode.parse,
        [('{"config":{}}', {}), ('{"version":7,"config":{"a":"b","c":1}}', {"a": "b", "c": "1"})]
        + [(text, REFUSED) for text in ("", "{}", '{"config":[]}', '{"config":null}', '["config"]')],
    ),
    (
        LogDirEventNotificationZNode.decode,
        [('{"broker":3,"event":1}', 3), ('{"broker":"3","event":1}', None), ('{"event":1}', None)],
    ),
    (
        parse_partitions,
        [
            ('{"partitions":[]}', frozenset()),
            ('{"partitions":[{"topic":"t","partition":7,"more":1}]}', frozenset({TopicPartition("t", 7)})),
            ('{"partitions":[{"topic":"t","partition":7},{"topic":"u"}]}', REFUSED),
            ('{"partitions":[{"topic":1,"partition":7}]}', REFUSED),
            ('{"partitions":[{"topic":"t","partition":"7"}]}', REFUSED),
            ('{"partitions":null}', REFUSED),
        ],
    ),
    (
        ReassignPartitionsZNode.decode,
        [
            ('{"partitions":[]}', {}),
            ('{"partitions":[{"topic":"t","partition":1,"replicas":[]}]}', {TopicPartition("t", 1): ()}),
            ('{"version":1,"partitions":null}', REFUSED),
            ('{"version":1,"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}', REFUSED),
            ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":{}}]}', REFUSED),
        ],
    ),
]


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        pytest.param(read, text, expected, id=f"{read.__qualname__}: {text}")
        for read, rows in READ
        for text, expected in rows
    ],
)
def test_what_is_made_of_it(read: Callable[[bytes], Any], text: str, expected: Any) -> None:
    if expected is REFUSED:
        with pytest.raises(ZnodeError):
            read(text.encode())
    else:
        found = read(text.encode())
        assert (found, type(found)) == (expected, type(expected))


def plain(host: str, port: int, listener: str = "PLAINTEXT", protocol: int = 0) -> Endpoint:
    return Endpoint(host=host, port=port, listener=listener, security_protocol=protocol)


def registration(**fields: Any) -> bytes:
    return json.dumps({"version": 4, "endpoints": ["PLAINTEXT://h:1"]} | fields).encode()


PROTOCOLS = {"IN": "SASL_SSL", "OUT": "SASL_PLAINTEXT"}
REGISTRATIONS: list[tuple[str, bytes, tuple[tuple[Endpoint, ...], str | None]]] = [
    ("version 1", b'{"version":1,"host":"h","port":1,"rack":"r"}', ((plain("h", 1),), None)),
    ("version 2 has no rack", registration(version=2, rack="r"), ((plain("h", 1),), None)),
    ("version 3 has one", registration(version=3, rack="r"), ((plain("h", 1),), "r")),
    ("a rack that is null", registration(rack=None), ((plain("h", 1),), None)),
    ("no endpoints", registration(endpoints=[]), ((), None)),
    (
        "a listener is its protocol where nothing else is said",
        registration(endpoints=["ssl://h:1", "SASL_SSL://g:2"]),
        ((plain("h", 1, "SSL", 1), plain("g", 2, "SASL_SSL", 3)), None),
    ),
    (
        "a listener has the protocol that is said of it",
        registration(endpoints=["in://h:1", "OUT://g:2"], listener_security_protocol_map=PROTOCOLS),
        ((plain("h", 1, "IN", 3), plain("g", 2, "OUT", 2)), None),
    ),
    ("no host", registration(endpoints=["PLAINTEXT://:1"]), ((plain("", 1),), None)),
    ("an address with colons", registration(endpoints=["PLAINTEXT://[fe80::1]:1"]), ((plain("fe80::1", 1),), None)),
    (
        "the least and the largest port",
        registration(endpoints=["PLAINTEXT://h:-2147483648", "PLAINTEXT://h:2147483647"]),
        ((plain("h", -(2**31)), plain("h", 2**31 - 1)), None),
    ),
]


@pytest.mark.parametrize(("data", "said"), [row[1:] for row in REGISTRATIONS], ids=[row[0] for row in REGISTRATIONS])
def test_what_a_registration_says(data: bytes, said: tuple[tuple[Endpoint, ...], str | None]) -> None:
    endpoints, rack = said
    assert BrokerIdZNode.decode(BrokerId(1), data, 8) == Broker(
        broker_id=BrokerId(1), endpoints=endpoints, rack=rack, broker_epoch=8
    )


@pytest.mark.parametrize(
    "data",
    [
        registration(version=0),
        registration(version="4"),
        registration(rack=7),
        registration(endpoints=["PLAINTEXT://h"]),
        registration(endpoints=["PLAINTEXT://h:x"]),
        registration(endpoints=["h:1"]),
        registration(endpoints=["://h:1"]),
        registration(endpoints=["PLAINTEXT://fe80::1:1"]),
        registration(endpoints=["IN://h:1"]),
        registration(endpoints=["IN://h:1"], listener_security_protocol_map={}),
        registration(endpoints=["IN://h:1"], listener_security_protocol_map={"IN": "NONE"}),
        registration(endpoints=[7]),
        registration(endpoints=None),
        b'{"version":1,"host":"h"}',
        b'{"version":1,"host":"h","port":"1"}',
    ],
)
def test_a_registration_that_does_not_parse_is_refused(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="/brokers/ids/1"):
        BrokerIdZNode.decode(BrokerId(1), data)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(
            Endpoint,
            host=st.sampled_from(["h", "10.0.0.1", "::1"]),
            port=st.integers(0, 65_535),
            listener=st.sampled_from(["IN", "OUT"]),
            security_protocol=st.integers(0, 3),
        ),
        max_size=2,
        unique_by=lambda endpoint: endpoint.listener,
    ).map(tuple),
    st.none() | st.text(max_size=3),
)
def test_a_registration_is_read_back(endpoints: tuple[Endpoint, ...], rack: str | None) -> None:
    """`host` and `port` are those of the first plain listener, for who reads nothing else."""
    broker = Broker(broker_id=BrokerId(1), endpoints=endpoints, rack=rack)
    data = BrokerIdZNode.encode(broker, 5, jmx_port=9)
    assert BrokerIdZNode.decode(BrokerId(1), data) == broker
    first = next(((e.host, e.port) for e in endpoints if e.security_protocol == 0), (None, -1))
    written = json.loads(data)
    assert (written["host"], written["port"], written["jmx_port"], written["timestamp"]) == (*first, 9, "5")


def test_children_that_are_no_brokers_partitions_or_notices_are_left_out() -> None:
    strangers = ["", "x", "-1", "1.0", "+1", "\u0661", "\u00b2", "99999999999", " 1", "1 "]
    assert BrokerIdsZNode.ids([*strangers, "10", "2", "0", "2147483647", "2147483648"]) == [0, 2, 10, 2**31 - 1]
    some = [*strangers, "10", "2", "0", "2147483647", "01", "2147483648", "9999999999"]
    assert TopicPartitionsZNode.numbers(some) == [0, 2, 10, 2**31 - 1]
    assert [each for each in some if is_partition(each)] == ["10", "2", "0", "2147483647"]
    notices = [f"config_change_{number}" for number in ("0000000010", "0000000002", "9999999999", "", "x", "-1")]
    assert ConfigChangesZNode.notices(["other", "config_change", *notices, notices[0] + "x"]) == [
        (2, notices[1]),
        (10, notices[0]),
        (9_999_999_999, notices[2]),
    ]


def test_the_path_of_a_state_names_its_partition_and_no_other_path_does() -> None:
    for partition in (TopicPartition("t", 0), TopicPartition("a.b-c_d", 12)):
        path = TopicPartitionStateZNode.path(partition)
        assert TopicPartitionStateZNode.partition(path) == partition
        assert TopicPartitionStateZNode.paths(partition.topic, [partition.partition]) == [path]
        for other in (path + "/x", "/chroot" + path, path.removesuffix("/state"), path.replace("partitions", "x")):
            assert TopicPartitionStateZNode.partition(other) is None


@settings(max_examples=30)
@given(st.none() | st.integers(0, 9), st.lists(st.integers(0, 999), max_size=300), st.integers(0, 9))
def test_a_state_of_any_size_is_read(leader: int | None, isr: list[int], epoch: int) -> None:
    """Few that are alike are kept to be read once, large ones are not: they say the same."""
    state = LeaderAndIsr(
        leader=None if leader is None else BrokerId(leader),
        isr=tuple(map(BrokerId, isr)),
        leader_epoch=epoch + 1,
        partition_epoch=epoch,
        controller_epoch=epoch + 2,
    )
    for _ in range(2):
        assert TopicPartitionStateZNode.decode(TopicPartitionStateZNode.encode(state), epoch) == state


@pytest.mark.parametrize("missing", ["leader", "isr", "leader_epoch", "controller_epoch"])
def test_a_state_that_lacks_something_is_none(missing: str) -> None:
    whole = {"leader": 1, "isr": [1], "leader_epoch": 2, "controller_epoch": 3}
    assert TopicPartitionStateZNode.decode(json.dumps(whole).encode(), 0) is not None
    for wrong in ({k: v for k, v in whole.items() if k != missing}, whole | {missing: "1"}, whole | {missing: None}):
        assert TopicPartitionStateZNode.decode(json.dumps(wrong).encode(), 0) is None
        assert TopicPartitionStateZNode.decode(json.dumps(wrong | {"more": "x" * 999}).encode(), 0) is None


def test_where_nothing_was_written_nothing_is_said() -> None:
    assert ConfigEntityZNode.parse(None) == {} == ConfigEntityZNode.decode(None)
    assert ProducerIdBlockZNode.decode(None) is None
    assert ConfigChangesZNode.decode(None) is ControllerZNode.decode(None) is None


NO_PARTITIONS = ["x", "-1", "01", "2147483648", "1.0", ""]
#: Replicas that are none, as values of JSON.
NO_REPLICAS = ["1,2", "", {}, {"1": 2}, None, 1, True, [], [1, 1], [True], [1.0], ["1"], [None], [[1]]]


@pytest.mark.parametrize("value", NO_REPLICAS, ids=repr)
@pytest.mark.parametrize("others", [{}, {"adding_replicas": {"0": [2]}}], ids=["none moves", "one moves"])
def test_replicas_that_are_none_are_refused_beside_others(value: Any, others: dict[str, Any]) -> None:
    found = TopicZNode.parse(json.dumps({"partitions": {"0": [1, 2], "3": value}, **others}).encode())
    assert found.partitions.keys() == {0} and found.refused.keys() == {"3"}


def test_what_is_no_partition_is_refused_and_kept_and_its_number_is_taken_where_it_is_one() -> None:
    """Until somebody who rewrites the znode has another word for it; who leaves a partition out has it gone."""
    lists = {"0": [1], "1": [2], "7": "1,2", "3": [1, 1], **{name: [1] for name in NO_PARTITIONS}}
    document = {"partitions": lists, "adding_replicas": {}, "removing_replicas": {}, "topic_id": 7, "version": 3}
    found = TopicZNode.parse(json.dumps(document).encode())
    assert found.partitions.keys() == {0, 1}
    assert found.refused.keys() == {"7", "3", *NO_PARTITIONS}
    assert found.listed == {0: (1,), 1: (2,), 3: (), 7: ()}
    assert list(found.listed) == [0, 1, 3, 7]
    assert found.topic_id is None
    assert json.loads(TopicZNode.encode(found)) == document
    rewritten = replace(found, partitions={n: ReplicaAssignment(replicas=(BrokerId(5),)) for n in (7, 0)})
    del lists["1"]
    written = json.loads(TopicZNode.encode(rewritten))
    assert written == document | {"partitions": lists | {"0": [5], "7": [5]}}
    assert list(written["partitions"])[:2] == ["0", "7"]


@pytest.mark.parametrize("text", ["", "[]", "7", '{"partitions":7}', '{"partitions":{},"adding_replicas":[1]}'])
def test_a_topic_that_lists_nothing_as_it_should_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(ZnodeError):
        TopicZNode.parse(text.encode())

"""Answers to the letter: what Kafka 3.9 says where clients and tools look, and requests that ask for the absurd."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from controller.node.requests.table import APIS
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, ZkCode

Play = Callable[..., list[Any]]
NOT_CONTROLLER_TEXT = "This is not the correct controller for this cluster."
DESCRIBE_QUORUM, ALTER_PARTITION = 55, 56


def test_what_a_controller_of_this_protocol_never_offers() -> None:
    """A tool that finds DescribeQuorum takes the cluster for one with KRaft; AlterPartition came with 2.7."""
    assert {DESCRIBE_QUORUM, ALTER_PARTITION}.isdisjoint(int(key) for key in APIS)


TOPIC = {"name": "new", "num_partitions": 1, "replication_factor": 1}
#: request, version, body -> (code, text) in the answer of a controller without office
INACTIVE: list[tuple[ApiKey, int, dict[str, Any], Callable[[Any], Any], tuple[int, str | None]]] = [
    (
        ApiKey.CREATE_TOPICS,
        5,
        {"topics": [TOPIC], "timeout": 1},
        lambda a: (a["topics"][0]["error_code"], a["topics"][0]["error_message"]),
        (41, None),
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        1,
        {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout": 1, "validate_only": False},
        lambda a: (a["results"][0]["error_code"], a["results"][0]["error_message"]),
        (41, None),
    ),
    (
        ApiKey.DELETE_TOPICS,
        4,
        {"topic_names": ["t"], "timeout": 1},
        lambda a: (a["responses"][0]["error_code"], None),
        (41, None),
    ),
    (
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1},
        lambda a: (
            a["replica_election_results"][0]["partition_result"][0]["error_code"],
            a["replica_election_results"][0]["partition_result"][0]["error_message"],
        ),
        (41, None),
    ),
    (
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": None, "timeout": 1},
        lambda a: (a["error_code"], None),
        (41, None),
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout": 1},
        lambda a: (a["error_code"], a["error_message"]),
        (41, NOT_CONTROLLER_TEXT),
    ),
    (
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": None, "timeout": 1},
        lambda a: (a["error_code"], a["error_message"]),
        (41, NOT_CONTROLLER_TEXT),
    ),
    (
        ApiKey.CONTROLLED_SHUTDOWN,
        3,
        {"broker_id": 1, "broker_epoch": -1},
        lambda a: (a["error_code"], None),
        (11, None),
    ),
]


def test_a_controller_without_office_answers_as_kafka_does(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        standby = cluster.make(200, "standby")
        await cluster.world.machine("standby").run(standby.start())
        await cluster.world.sleep(1)
        for key, version, body, said, expected in INACTIVE:
            answer = await cluster.ask(key, version, body, host="standby")
            assert said(answer) == expected, key.name
            assert answer.get("error_code", 0) in (0, expected[0])
        await cluster.world.machine("standby").run(standby.stop())

    play(scenario, brokers=1)


def test_topics_that_nobody_may_create(play: Play) -> None:
    """The log of KRaft controllers; and a name twice, which is answered twice."""

    async def scenario(cluster: Any) -> None:
        named = [{**TOPIC, "name": name} for name in ("__cluster_metadata", "twice", "fine", "twice")]
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": named, "timeout": 5_000})
        assert [(t["name"], t["error_code"], t["error_message"]) for t in answer["topics"]] == [
            ("__cluster_metadata", 42, "Creation of internal topic __cluster_metadata is prohibited."),
            ("twice", 42, "Found multiple entries for this topic."),
            ("fine", 0, None),
            ("twice", 42, "Found multiple entries for this topic."),
        ]

    play(scenario, brokers=1)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__share_group_state", ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_of_the_internal_topics_the_brokers_make_two_and_the_third_is_made_like_any(
    play: Play, topic: str, code: ErrorCode
) -> None:
    async def scenario(cluster: Any) -> None:
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        [found] = (await cluster.ask(ApiKey.METADATA, 5, body))["topics"]
        assert (found["error_code"], found["is_internal"]) == (code, True)

    play(scenario, brokers=1)


def test_deletion_of_what_brokers_do_not_know(play: Play) -> None:
    """It never had a leader, or its deletion has started: as for Kafka, which asks its metadata."""

    async def scenario(cluster: Any) -> None:
        manual = {"num_partitions": -1, "replication_factor": -1}
        rows = [{"name": n, **manual, "assignments": [{"partition_index": 0, "broker_ids": [b]}]}
                for n, b in (("led", 1), ("unled", 9))]  # fmt: skip
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 500})
        body = {"topic_names": ["none", "unled", "led", "../ids"], "timeout": 5_000}
        answer = await cluster.ask(ApiKey.DELETE_TOPICS, 4, body)
        assert {r["name"]: r["error_code"] for r in answer["responses"]} == {
            "none": 3,
            "unled": 3,
            "led": 0,
            "../ids": 3,
        }
        assert await cluster.read("/brokers/topics/unled") is not None

    play(scenario, brokers=1)


def test_an_election_of_no_known_type_is_told_at_the_top(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        body = {"election_type": 5, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1}
        answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, body)
        result = answer["replica_election_results"][0]["partition_result"][0]
        assert (answer["error_code"], result["error_code"], result["error_message"]) == (-1, -1, None)

    play(scenario, brokers=1)


#: the topics that are asked for -> the partitions in the answer, where t-0, t-1 and u-0 are moving and t-2 is not
LISTED: list[tuple[str, list[tuple[str, list[int]]] | None, list[tuple[str, int]]]] = [
    ("null means all", None, [("t", 0), ("t", 1), ("u", 0)]),
    ("an empty list means none", [], []),
    ("no partition means none", [("t", []), ("u", [])], []),
    ("one of two", [("t", [1])], [("t", 1)]),
    ("one that is named twice", [("t", [1, 1]), ("t", [1])], [("t", 1)]),
    ("of several topics", [("u", [0]), ("t", [0])], [("t", 0), ("u", 0)]),
    ("what does not move is left out", [("t", [0, 2])], [("t", 0)]),
    ("what is not there is left out", [("t", [0, 9, -1]), ("none", [0]), ("", [0])], [("t", 0)]),
]


def test_which_moves_are_listed(play: Play) -> None:
    """They wait for broker 2, which no leader takes into an ISR here."""

    def rows(name: str, count: int, part: str, ids: str, *replicas: int) -> dict[str, Any]:
        return {"name": name, part: [{"partition_index": p, ids: replicas} for p in range(count)]}

    async def scenario(cluster: Any) -> None:
        shape = {"num_partitions": -1, "replication_factor": -1}
        made = [rows(name, count, "assignments", "broker_ids", 1) | shape for name, count in (("t", 3), ("u", 1))]
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": made, "timeout": 5_000})
        moves = [rows(name, count, "partitions", "replicas", 1, 2) for name, count in (("t", 2), ("u", 1))]
        await cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": moves, "timeout": 1})
        for title, asked, expected in LISTED:
            topics = None if asked is None else [{"name": t, "partition_indexes": list(ps)} for t, ps in asked]
            answer = await cluster.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": topics, "timeout": 1})
            listed = [(topic["name"], p["partition_index"]) for topic in answer["topics"] for p in topic["partitions"]]
            assert (answer["error_code"], listed) == (0, expected), title

    play(scenario, brokers=2)


def test_describing_configs_by_no_name_means_all(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [{**TOPIC, "name": "t"}], "timeout": 5_000})
        rows = [
            {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
            for keys in (None, [], ["retention.ms"], ["no.such"])
        ]
        answer = await cluster.ask(
            ApiKey.DESCRIBE_CONFIGS, 3, {"resources": rows, "include_synonyms": False, "include_documentation": True}
        )
        every, none_named, one, other = answer["results"]
        assert every["configs"] == none_named["configs"] and len(every["configs"]) > 20
        assert [c["name"] for c in one["configs"]] == ["retention.ms"] and other["configs"] == []
        assert one["configs"][0]["synonyms"] == [] and one["configs"][0]["documentation"]
        assert {r["error_code"] for r in answer["results"]} == {0}

    play(scenario, brokers=1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1, 5_000])
def test_each_topic_of_a_request_is_answered_by_its_name_however_it_ends(play: Play, timeout_ms: int) -> None:
    """Who does not wait hears that time is over, of what is made all the same; what cannot be written is no timeout."""

    async def scenario(cluster: Any) -> None:
        cluster.world.zookeeper.tree.refusal = lambda op: (
            ZkCode.NO_AUTH if isinstance(op, Create) and op.path == "/brokers/topics/b" else None
        )
        names, times_out = ("a", "b", "c"), timeout_ms < 5_000
        topics = [{**TOPIC, "name": name} for name in names]
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout": timeout_ms})
        codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
        made = ErrorCode.REQUEST_TIMED_OUT if times_out else ErrorCode.NONE
        assert list(codes) == list(names) and codes["a"] == codes["c"] == made
        assert codes["b"] not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        shapes = {topic["name"]: (topic["num_partitions"], topic["replication_factor"]) for topic in answer["topics"]}
        assert shapes == dict.fromkeys(names, (1, 1)) | dict.fromkeys(names if times_out else "b", (-1, -1))
        assert all((topic["configs"] == []) is (topic["error_code"] != 0) for topic in answer["topics"])
        await cluster.world.sleep(5)
        assert cluster.controller.state.topics == {"a", "c"}

    play(scenario, brokers=1)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(8, "Unsupported resource type: BROKER_LOGGER"), *((kind, "This most likely occurs") for kind in (0, 1, 99, -1))],
)
def test_configs_of_what_has_none_are_not_described_and_the_others_are(play: Play, kind: int, text: str) -> None:
    """In the words of the brokers, which ask Kafka's classes what type a number is."""

    async def scenario(cluster: Any) -> None:
        resources = [
            {"resource_type": each, "resource_name": "100", "configuration_keys": None} for each in (kind, 4, kind)
        ]
        answer = await cluster.ask(ApiKey.DESCRIBE_CONFIGS, 3, {"resources": resources})
        assert [r["error_code"] for r in answer["results"]] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
        assert all(r["error_message"].startswith(text) for r in answer["results"] if r["error_code"])
        assert [r["resource_type"] for r in answer["results"]] == [kind, 4, kind]

    play(scenario, brokers=0)


def test_synonyms_and_texts_of_configs_are_told_to_who_asks_for_them(play: Play) -> None:
    """Of topics, of all brokers and of one; what else is told is the same in each version."""

    async def scenario(cluster: Any) -> None:
        topic = {**TOPIC, "name": "t", "configs": [{"name": "retention.ms", "value": "5"}]}
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 5_000})
        everywhere = {"resource_type": 4, "resource_name": "",
                      "configs": [{"name": "log.retention.ms", "config_operation": 0, "value": "9"}]}  # fmt: skip
        await cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [everywhere]})
        await cluster.world.sleep(1)
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((2, "t"), (4, ""), (4, "100"))
        ]

        async def rows(version: int, **asked_for: bool) -> list[dict[str, Any]]:
            answer = await cluster.ask(ApiKey.DESCRIBE_CONFIGS, version, {"resources": resources, **asked_for})
            said = [(r["error_code"], r["resource_type"], r["resource_name"]) for r in answer["results"]]
            assert said == [(0, r["resource_type"], r["resource_name"]) for r in resources]
            assert all(result["configs"] for result in answer["results"])
            return [row for result in answer["results"] for row in result["configs"]]

        full = await rows(3, include_synonyms=True, include_documentation=True)
        assert any(len(row["synonyms"]) > 1 for row in full) and any(row["documentation"] for row in full)
        flags = {0: (), 1: ("include_synonyms",), 2: ("include_synonyms",)}
        for version in range(4):
            names = flags.get(version, ("include_synonyms", "include_documentation"))
            for values in product((False, True), repeat=len(names)):
                asked_for = dict(zip(names, values, strict=True))
                found = await rows(version, **asked_for)
                for row, every in zip(found, full, strict=True):
                    synonyms = every["synonyms"] if asked_for.get("include_synonyms") else []
                    text = every["documentation"] if asked_for.get("include_documentation") else None
                    assert (row.get("synonyms", []), row.get("documentation")) == (synonyms, text)
                    same = ("name", "value", "read_only", "is_sensitive", *(("config_source",) if version else ()))
                    assert [row[field] for field in same] == [every[field] for field in same]

    play(scenario, brokers=1)


ALTERED: list[tuple[str, dict[str, Any], int, tuple[int, str | None]]] = [
    ("twice the same resource", {"resource_type": 2, "resource_name": "twice", "configs": []}, 2,
     (42, "Each resource must appear at most once.")),
    ("a config twice before an unknown type",
     {"resource_type": 99, "resource_name": "", "configs": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
     1, (42, "Error due to duplicate config keys")),
    ("an unknown type", {"resource_type": 99, "resource_name": "", "configs": []}, 1, (42, "Unknown resource type 99")),
    ("a default topic", {"resource_type": 2, "resource_name": "", "configs": []}, 1,
     (42, "Default topic resources are not allowed.")),
    ("a topic that is no path", {"resource_type": 2, "resource_name": "../x", "configs": []}, 1,
     (3, "The topic '../x' does not exist.")),
    ("another broker", {"resource_type": 4, "resource_name": "1", "configs": []}, 1,
     (42, "Unexpected broker id, expected 100, but received 1")),
]  # fmt: skip


@pytest.mark.parametrize("api_key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda key: key.name)
@pytest.mark.parametrize(
    ("resource", "times", "expected"), [row[1:] for row in ALTERED], ids=[row[0] for row in ALTERED]
)
def test_configs_that_are_not_altered(
    play: Play, api_key: ApiKey, resource: dict[str, Any], times: int, expected: tuple[int, str | None]
) -> None:
    """Both requests check alike, in one order, and answer each resource of the request."""

    async def scenario(cluster: Any) -> None:
        configs = [
            {**config, **({"config_operation": 0} if api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS else {})}
            for config in resource["configs"]
        ]
        rows = [{**resource, "configs": configs}] * times
        answer = await cluster.ask(api_key, 1, {"resources": rows, "validate_only": False})
        assert [r["error_code"] for r in answer["responses"]] == [expected[0]] * times
        assert all(r["error_message"].startswith(expected[1]) for r in answer["responses"])

    play(scenario, brokers=1)


def test_a_request_of_many_absurd_entries_is_answered(play: Play) -> None:
    """Reassignments and elections of partitions that cannot be; each has its answer, and the next request works."""

    async def scenario(cluster: Any) -> None:
        numbers = [-(2**31), -1, 0, 2**31 - 1]
        partitions = [
            {"partition_index": p, "replicas": r} for p, r in zip(numbers, ([], [-1], None, [1]), strict=True)
        ]
        move = {"topics": [{"name": name, "partitions": partitions} for name in ("", "../t", "x" * 300)], "timeout": -5}
        answer = await cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move)
        codes = {p["error_code"] for t in answer["responses"] for p in t["partitions"]}
        assert codes <= {ErrorCode.INVALID_REPLICA_ASSIGNMENT, 85, 3} and len(answer["responses"]) == 3
        elect = {"election_type": 1, "timeout": -1, "topic_partitions": [{"topic": "", "partitions": numbers}]}
        answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, elect)
        assert {p["error_code"] for p in answer["replica_election_results"][0]["partition_result"]} == {3}
        grow = {"topics": [{"name": "none", "count": -(2**31), "assignments": [{"broker_ids": [-1, -1]}]}],
                "timeout": 1, "validate_only": True}  # fmt: skip
        answer = await cluster.ask(ApiKey.CREATE_PARTITIONS, 1, grow)
        assert answer["results"][0]["error_code"] == 3
        made = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [TOPIC], "timeout": 5_000})
        assert made["topics"][0]["error_code"] == 0

    play(scenario, brokers=1)


def test_the_controllers_own_settings_are_described_like_a_brokers(play: Play) -> None:
    """All that Kafka knows, with types and defaults; what is secret or unknown is hidden."""

    async def scenario(cluster: Any) -> None:
        resource = {"resource_type": 4, "resource_name": "100", "configuration_keys": None}
        body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        (answer,) = (await cluster.ask(ApiKey.DESCRIBE_CONFIGS, 3, body))["results"]
        rows = {row["name"]: row for row in answer["configs"]}
        assert len(rows) > 200 and list(rows) == sorted(rows)
        assert (rows["broker.id"]["value"], rows["broker.id"]["read_only"]) == ("100", True)
        (endpoint,) = cluster.controller.state.endpoint.endpoints
        own = {
            "node.id": "100",
            "listeners": f"{endpoint.listener}://{endpoint.host}:{endpoint.port}",
            "inter.broker.protocol.version": "2.6",
            "max.connections": "4096",
        }
        assert {name: rows[name]["value"] for name in own} == own
        balance = rows["auto.leader.rebalance.enable"]
        assert [(s["value"], s["source"]) for s in balance["synonyms"]] == [("false", 4), ("true", 5)]
        assert rows["log.retention.ms"]["read_only"] is False and rows["log.retention.ms"]["documentation"]
        secrets = {name for name, row in rows.items() if row["is_sensitive"]}
        assert "ssl.key.password" in secrets and {rows[name]["value"] for name in secrets} == {None}
        body["resources"] = [{**resource, "resource_name": name} for name in ("1", "x")]
        texts = [r["error_message"] for r in (await cluster.ask(ApiKey.DESCRIBE_CONFIGS, 3, body))["results"]]
        assert texts == [
            "Unexpected broker id, expected 100 or empty string, but received 1",
            "Broker id must be an integer, but it is: x",
        ]

    play(scenario, brokers=0)

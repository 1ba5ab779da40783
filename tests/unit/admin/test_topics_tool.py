# ruff: noqa: E501  (Kafka's texts stay on one line)
"""kafka-topics against a scripted cluster: output to the letter, exit codes, what is asked of the cluster (§2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.admin.cluster.queries import PartitionInfo
from controller.admin.commands import topics
from controller.admin.topics import options
from controller.admin.topics.describe import DescribedPartition
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import ReplicaAssignment, TopicPartition

USAGE = [
    ("no action", [], "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
    ("two actions", ["--list", "--delete"], "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
    ("create without a topic", ["--create"], 'Missing required argument "[topic]"'),
    ("alter without partitions", ["--alter", "--topic", "a"], 'Missing required argument "[partitions]"'),
    ("describe --if-exists alone", ["--describe", "--if-exists"], "--topic or --topic-id is required to describe a topic"),
    (
        "alter with config",
        ["--alter", "--topic", "a", "--config", "x=1", "--partitions", "2"],
        'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" (the kafka-configs CLI '
        "supports altering topic configs with a --bootstrap-server option)",
    ),
    ("list with partitions", ["--list", "--partitions", "3"], 'Option "[partitions]" can\'t be used with option "[list]"'),
    ("delete-config", ["--alter", "--topic", "a", "--partitions", "2", "--delete-config", "x"], 'Option "[delete-config]" can\'t be used with option "[bootstrap-server]"'),
    ("plan and count", ["--create", "--topic", "a", "--partitions", "2", "--replica-assignment", "0"], 'Option "[replica-assignment]" can\'t be used with option "[partitions]"'),
    ("report and overrides", ["--describe", "--unavailable-partitions", "--topics-with-overrides"], 'Option "[unavailable-partitions]" can\'t be used with option "[topics-with-overrides]"'),
    ("create --if-exists", ["--create", "--topic", "a", "--if-exists"], 'Option "[if-exists]" can\'t be used with option "[create]"'),
    ("help", ["--help"], "This tool helps to create, delete, describe, or change a topic."),
]  # fmt: skip


@pytest.mark.feature("003-05")
@pytest.mark.parametrize(("argv", "message"), [row[1:] for row in USAGE], ids=[row[0] for row in USAGE])
def test_usage_exits(cluster: Any, tool: Any, argv: list[str], message: str) -> None:
    outcome = tool(topics, cluster, argv)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(message + "\nOption ")
    assert not cluster.seen


def test_no_arguments_no_server_and_unknown_options(cluster: Any, tool: Any) -> None:
    assert tool(topics, cluster, [], bootstrap=None).err.startswith(
        "Create, delete, describe, or change a topic.\nOption"
    )
    assert tool(topics, cluster, ["--list"], bootstrap=None).err == (
        "--bootstrap-server must be specified\n"
        "java.lang.IllegalArgumentException: --bootstrap-server must be specified\n"
    )
    outcome = tool(topics, cluster, ["--bogus"])
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines()[0] == "bogus is not a recognized option"
    assert tool(topics, cluster, ["--version"]).out == "3.9.1\n"


REFUSED = [
    ("partitions zero", ["--partitions", "0"], "The partitions must be greater than 0"),
    ("factor zero", ["--replication-factor", "0"], "The replication factor must be between 1 and 32767 inclusive"),
    ("factor huge", ["--replication-factor", "32768"], "The replication factor must be between 1 and 32767 inclusive"),
    ("partitions a word", ["--partitions", "abc"], "Cannot parse argument 'abc' of option partitions"),
    ("plan with a broker twice", ["--replica-assignment", "1:1"], "Partition replica lists may not contain duplicate entries: 1"),
    ("plan of unequal lists", ["--replica-assignment", "0:1,1"], "Partition 1 has different replication factor: [1]"),
    ("plan of lists that grow", ["--replica-assignment", "0,1:0"], "Partition 1 has different replication factor: [1, 0]"),
    ("plan with a gap", ["--replica-assignment", "0,,1"], 'For input string: ""'),
    ("config twice =", ["--config", "a=b=c"], 'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'),
    ("config without value", ["--config", "a="], 'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'),
    ("unknown config", ["--config", "foo=1"], "Unknown topic config name: foo"),
    ("bad config", ["--config", "retention.ms=abc"], "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("topic twice", ["--topic", "b"], "Found multiple arguments for option topic, but you asked for only one"),
]  # fmt: skip


@pytest.mark.feature("003-06")
@pytest.mark.parametrize(("argv", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_create_refuses_before_it_asks_the_cluster(cluster: Any, tool: Any, argv: list[str], message: str) -> None:
    outcome = tool(topics, cluster, ["--create", "--topic", "a", *argv])
    assert (outcome.code, outcome.out) == (1, f"Error while executing topic command : {message}\n")
    assert f": {message}\n (org.apache.kafka.tools.TopicCommand)" in outcome.err
    assert not cluster.topics


def test_create_sends_defaults_plans_and_configs(cluster: Any, tool: Any) -> None:
    assert tool(topics, cluster, ["--create", "--topic", "foo"]).out == "Created topic foo.\n"
    assert tool(topics, cluster, ["--create", "--topic", "a.b", "--replica-assignment", "0:1, 1:2", "--config", "retention.ms = 5"]).out == (
        "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
        "To avoid issues it is best to use either, but not both.\nCreated topic a.b.\n"
    )  # fmt: skip
    plain, planned = (request.topics[0] for request in cluster.requests(ApiKey.CREATE_TOPICS))
    assert (plain.num_partitions, plain.replication_factor, plain.assignments) == (-1, -1, ())
    assert [(a.partition_index, a.broker_ids) for a in planned.assignments] == [(0, (0, 1)), (1, (1, 2))]
    assert [(c.name, c.value) for c in planned.configs] == [("retention.ms", "5")]


@pytest.mark.feature("003-07")
def test_create_an_existing_topic(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    outcome = tool(topics, cluster, ["--create", "--topic", "foo"])
    assert (outcome.code, outcome.out) == (1, "Error while executing topic command : Topic 'foo' already exists.\n")
    assert "ERROR org.apache.kafka.common.errors.TopicExistsException: Topic 'foo' already exists.\n" in outcome.err
    outcome = tool(topics, cluster, ["--create", "--topic", "foo", "--if-not-exists"])
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    for code in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.POLICY_VIOLATION, ErrorCode.REQUEST_TIMED_OUT):
        no = {"error_code": code, "error_message": "No."}
        cluster.answers[ApiKey.CREATE_TOPICS] = lambda broker, body, no=no: {
            "topics": [{"name": topic.name, **no} for topic in body.topics]
        }
        refused = tool(topics, cluster, ["--create", "--topic", "bar", "--if-not-exists"])
        assert (refused.code, refused.out) == (1, "Error while executing topic command : No.\n"), "it is not there"


def test_list_filters_sorts_and_prints_an_empty_line_for_nothing(cluster: Any, tool: Any) -> None:
    assert tool(topics, cluster, ["--list"]).out == "\n"
    for name in ("b1", "a1", "__consumer_offsets"):
        cluster.topic(name, (0,))
    assert tool(topics, cluster, ["--list"]).out == "__consumer_offsets\na1\nb1\n"
    assert tool(topics, cluster, ["--list", "--exclude-internal"]).out == "a1\nb1\n"
    assert tool(topics, cluster, ["--list", "--topic", "'a., b1'"]).out == "a1\nb1\n"
    outcome = tool(topics, cluster, ["--list", "--topic", "["])
    assert (outcome.code, outcome.out) == (1, "Error while executing topic command : [ is an invalid regex.\n")


def test_describe_to_the_letter(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (1, 2, 0), (2, 1))
    cluster.configs[2, "foo"]["retention.ms"] = "5"
    cluster.running[TopicPartition("foo", 0)] = ReplicaAssignment(
        replicas=(1, 2, 0), adding_replicas=(2,), removing_replicas=(0,)
    )
    cluster.topics["foo"][0].isr = (0, 1)
    cluster.topics["foo"][1].leader = -1
    cluster.topics["foo"][1].isr = ()
    assert tool(topics, cluster, ["--describe"]).out == (
        "Topic: foo\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: retention.ms=5\n"
        "\tTopic: foo\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 0,1"
        "\tAdding Replicas: 2\tRemoving Replicas: 0\tElr: N/A\tLastKnownElr: N/A\n"
        "\tTopic: foo\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: \tElr: N/A\tLastKnownElr: N/A\n"
    )


REPORTS = [
    ("under-replicated", ["--under-replicated-partitions"], [1, 2]),
    ("unavailable", ["--unavailable-partitions"], [1, 3]),
    ("under min isr", ["--under-min-isr-partitions"], [1]),
    ("at min isr", ["--at-min-isr-partitions"], [2]),
    ("any of several", ["--at-min-isr-partitions", "--unavailable-partitions"], [1, 2, 3]),
]


@pytest.mark.parametrize(("argv", "numbers"), [row[1:] for row in REPORTS], ids=[row[0] for row in REPORTS])
def test_reports_show_only_their_partitions(cluster: Any, tool: Any, argv: list[str], numbers: list[int]) -> None:
    cluster.topic("foo", (0, 1), (1, 2), (2, 0), (9, 0))
    cluster.topics["foo"][1].leader, cluster.topics["foo"][1].isr = -1, ()
    cluster.topics["foo"][2].isr = (2,)
    outcome = tool(topics, cluster, ["--describe", *argv])
    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in outcome.out.splitlines()] == numbers


UNDER, BELOW, AT, UNAVAILABLE = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
#: what, leader, whether it is live, ISR, replicas, those being added, min.insync.replicas -> the reports that show it
SHOWN = [
    ("all is well", 1, True, (1, 2), (1, 2), (), 1, set()),
    ("one is missing", 1, True, (1,), (1, 2), (), 1, {UNDER, AT}),
    ("one that is being added is not missing", 1, True, (1, 2), (1, 2, 3), (3,), 1, set()),
    ("nor does it make up for another", 1, True, (1, 3), (1, 2, 3, 4), (3, 4), 1, set()),
    ("while one is being added another is missing", 1, True, (1,), (1, 2, 3), (3,), 1, {UNDER, AT}),
    ("as many as must be", 1, True, (1, 2), (1, 2), (), 2, {AT}),
    ("one less", 1, True, (1,), (1, 2), (), 2, {UNDER, BELOW}),
    ("no leader, though enough are in sync", None, False, (1, 2), (1, 2), (), 1, {BELOW, UNAVAILABLE}),
    ("no leader, as many in sync as must be", None, False, (1,), (1,), (), 1, {BELOW, AT, UNAVAILABLE}),
    ("its leader is dead", 1, False, (1, 2), (1, 2), (), 1, {UNAVAILABLE}),
]


@pytest.mark.parametrize("row", SHOWN, ids=[row[0] for row in SHOWN])
def test_which_reports_show_a_partition(row: Any) -> None:
    _, leader, is_live, isr, replicas, adding, min_isr, reports = row
    moving = ReplicaAssignment(replicas=replicas, adding_replicas=adding) if adding else None
    partition = DescribedPartition(
        topic="t",
        info=PartitionInfo(partition=0, leader=leader, replicas=replicas, isr=isr),
        reassignment=moving,
        min_insync_replicas=min_isr,
        leader_is_live=is_live,
    )
    assert {report for report in options.REPORTS if partition.is_in(report)} == reports


def test_describe_overrides_and_missing_topics(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    cluster.topic("bar", (0,))
    cluster.configs[2, "bar"]["retention.ms"] = "5"
    overrides = tool(topics, cluster, ["--describe", "--topics-with-overrides"])
    assert overrides.out == "Topic: bar\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: retention.ms=5\n"
    outcome = tool(topics, cluster, ["--describe", "--topic", "nix"])
    message = "Error while executing topic command : Topic 'Optional[nix]' does not exist as expected\n"
    assert (outcome.code, outcome.out) == (1, message)
    assert tool(topics, cluster, ["--describe", "--topic", "nix", "--if-exists"]).code == 0
    missing = "QUFBQUFBQUFBQUFBQUFBQQ"
    outcome = tool(topics, cluster, ["--describe", "--topic-id", missing])
    assert outcome.out == f"Error while executing topic command : TopicId '{missing}' does not exist as expected\n"
    too_long = tool(topics, cluster, ["--describe", "--topic-id", "A" * 25])
    assert "is too long to be decoded as a base64 UUID" in too_long.out
    assert "Illegal base64 character 2e" in tool(topics, cluster, ["--describe", "--topic-id", "a.b"]).out


def test_alter_and_delete_are_silent(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    cluster.topic("bar", (0,))
    outcome = tool(topics, cluster, ["--alter", "--topic", "foo", "--partitions", "3", "--replica-assignment", "0,1,2"])
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    request = cluster.requests(ApiKey.CREATE_PARTITIONS)[0].topics[0]
    assert (request.count, [a.broker_ids for a in request.assignments]) == (3, [(1,), (2,)])
    outcome = tool(topics, cluster, ["--delete", "--topic", "foo,bar"])
    assert (outcome.code, outcome.out, list(cluster.topics)) == (0, "", [])
    assert tool(topics, cluster, ["--delete", "--topic", "foo"]).code == 1
    assert tool(topics, cluster, ["--delete", "--topic", "foo", "--if-exists"]).code == 0


def test_alter_shows_the_clusters_refusal(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,), (1,))
    text = "Topic currently has 2 partitions, which is higher than the requested 1."
    cluster.answers[ApiKey.CREATE_PARTITIONS] = lambda broker, body: {
        "results": [{"name": "foo", "error_code": ErrorCode.INVALID_PARTITIONS, "error_message": text}]
    }
    outcome = tool(topics, cluster, ["--alter", "--topic", "foo", "--partitions", "1"])
    assert (outcome.code, outcome.out) == (1, f"Error while executing topic command : {text}\n")
    assert f"InvalidPartitionsException: {text}" in outcome.err


def test_json_is_one_value_and_nothing_else(cluster: Any, tool: Any) -> None:
    cluster.topic("a_b", (1, 0))
    described = json.loads(tool(topics, cluster, ["--describe", "--json"]).out)
    assert described["topics"][0]["partitions"] == [{"partition": 0, "leader": 1, "replicas": [1, 0], "isr": [1, 0]}]
    assert json.loads(tool(topics, cluster, ["--list", "--json"]).out) == {"topics": ["a_b"]}
    refused = tool(topics, cluster, ["--create", "--topic", "a_b", "--json"])
    assert json.loads(refused.out)["error"] == "Topic 'a_b' already exists."
    assert refused.code == 1
    assert json.loads(tool(topics, cluster, ["--json"]).out)["error"].startswith("Command must include exactly one")

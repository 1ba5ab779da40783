"""kafka-leader-election, -configs, -log-dirs, -get-offsets, -consumer-groups against a scripted cluster (§4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.cluster.failures import ToolFailure, exception_class
from controller.admin.commands import configs, log_dirs, topics
from controller.admin.commands import consumer_groups as groups
from controller.admin.commands import get_offsets as offsets
from controller.admin.commands import leader_election as elect
from controller.admin.configs.text import check_keys, parse_add_config
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition

ALL = ["--all-topic-partitions"]
PREFERRED = ["--election-type", "preferred"]


def test_elections_of_all_partitions(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0, 1), (1, 2), (2, 0))
    for number, leader in ((0, 1), (1, 2)):
        cluster.topics["foo"][number].leader = leader
    outcome = tool(elect, cluster, [*PREFERRED, *ALL])
    assert outcome.out == "Successfully completed leader election (PREFERRED) for partitions foo-0, foo-1\n"
    again = tool(elect, cluster, [*PREFERRED, *ALL])
    assert (again.code, again.out, again.err) == (0, "", "")


def test_elections_by_name_say_what_failed(cluster: Any, tool: Any, tmp_path: Path) -> None:
    cluster.topic("foo", (0, 1), (1, 2))
    cluster.topics["foo"][1].leader, cluster.topics["foo"][1].isr = 2, (2,)
    rows = [{"topic": "foo", "partition": p} for p in (0, 1, 7)]
    file = tmp_path / "e.json"
    file.write_text(json.dumps({"partitions": rows}))
    outcome = tool(elect, cluster, [*PREFERRED, "--path-to-json-file", str(file)])
    head = "Error completing leader election (PREFERRED) for partition: foo"
    package = "org.apache.kafka.common.errors"
    assert outcome.out.splitlines() == [
        "Valid replica already elected for partitions foo-0",
        f"{head}-1: {package}.PreferredLeaderNotAvailableException: The preferred leader was not available.",
        f"{head}-7: {package}.UnknownTopicOrPartitionException: The partition does not exist.",
    ]
    assert outcome.err.splitlines()[0] == "2 replica(s) could not be elected"
    assert outcome.code == 1


ELECTION_REFUSALS = [
    ([], "Missing required option(s): election-type"),
    (["--election-type", "foo", *ALL], "Cannot parse argument 'foo' of option election-type"),
    (
        PREFERRED,
        "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file",
    ),
    ([*PREFERRED, "--topic", "a"], "Missing required option(s): partition"),
    ([*PREFERRED, *ALL, "--partition", "1"], "Option partition is only allowed if topic is used"),
]


@pytest.mark.parametrize(("argv", "message"), ELECTION_REFUSALS)
def test_election_refusals(cluster: Any, tool: Any, argv: list[str], message: str) -> None:
    outcome = tool(elect, cluster, argv)
    if argv:
        assert (outcome.code, outcome.err.splitlines()[0]) == (1, message)
    assert outcome.code == 1


def test_configs_of_a_topic(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    added = "leader.replication.throttled.replicas=[0:1,1:2],retention.ms=1"
    outcome = tool(configs, cluster, ["--alter", "--topic", "foo", "--add-config", added])
    assert outcome.out == "Completed updating config for topic foo.\n"
    assert tool(configs, cluster, ["--describe", "--entity-type", "topics", "--entity-name", "foo"]).out == (
        "Dynamic configs for topic foo are:\n"
        "  leader.replication.throttled.replicas=0:1,1:2 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:leader.replication.throttled.replicas=0:1,1:2}\n"
        "  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1}\n"
    )
    outcome = tool(configs, cluster, ["--alter", "--topic", "foo", "--delete-config", "retention.ms,nix"])
    assert outcome.code == 1
    assert "Invalid config(s): nix" in outcome.err
    assert cluster.configs[2, "foo"]["retention.ms"] == "1"
    assert tool(configs, cluster, ["--alter", "--topic", "foo", "--delete-config", "retention.ms"]).code == 0
    assert "retention.ms" not in cluster.configs[2, "foo"]


def test_configs_of_brokers_go_to_that_broker(cluster: Any, tool: Any) -> None:
    for broker in (2, 0, 1):
        before = len(cluster.seen)
        tool(configs, cluster, ["--alter", "--broker", str(broker), "--add-config", "a=1"], bootstrap="b1:9092")
        asked_of = {ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
        assert [b for b, key, _ in cluster.seen[before:] if key in asked_of] == [broker, broker]
    outcome = tool(configs, cluster, ["--alter", "--broker-defaults", "--add-config", "a=2"])
    assert outcome.out == "Completed updating default config for brokers in the cluster.\n"
    lines = tool(configs, cluster, ["--describe", "--entity-type", "brokers"]).out.splitlines()
    assert lines[-2:] == [
        "Default configs for brokers in the cluster are:",
        "  a=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:a=2}",
    ]


#: Where a config can be set, by its source, and the words that name that entity.
LEVELS = {1: ["--topic", "t"], 2: ["--broker", "1"], 3: ["--broker-defaults"]}


@pytest.mark.parametrize("source", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("level", LEVELS)
def test_a_config_is_removed_where_it_is_set_and_nowhere_else(cluster: Any, tool: Any, level: int, source: int) -> None:
    cluster.topic("t", (0,))

    def shown(_: int, body: Any) -> dict[str, Any]:
        (asked,) = body.resources
        entry = {"name": "a", "value": "1", "config_source": source, "synonyms": []}
        named = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        return {"results": [{**named, "configs": [entry]}]}

    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = shown
    outcome = tool(configs, cluster, ["--alter", *LEVELS[level], "--delete-config", "a"])
    assert bool(cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)) == (outcome.code == 0) == (source == level)
    assert ("Invalid config(s): a" in outcome.err) == (source != level)


CONFIG_REFUSALS = [
    (["--alter"], "At least one entity type must be specified"),
    (
        ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
        "an entity name must be specified with --alter of topics",
    ),
    (["--describe", "--broker", "x"], "The entity name for brokers must be a valid integer broker id, but it is: x"),
    (
        ["--alter", "--topic", "t"],
        "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
    ),
    (
        ["--alter", "--topic", "t", "--add-config", "a=b=c"],
        'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val".',
    ),
    (["--alter", "--describe"], "Command must include exactly one action: --describe, --alter"),
    (["--describe", "--entity-type", "users"], "Entity type users is not served here; topics and brokers are"),
]


@pytest.mark.parametrize(("argv", "message"), CONFIG_REFUSALS)
def test_config_refusals(cluster: Any, tool: Any, argv: list[str], message: str) -> None:
    outcome = tool(configs, cluster, argv)
    assert (outcome.code, outcome.err.splitlines()[0]) == (1, message)


def test_the_clusters_refusal_of_a_config_is_wrapped(cluster: Any, tool: Any) -> None:
    outcome = tool(configs, cluster, ["--describe", "--topic", "nix"])
    assert outcome.out == "Dynamic configs for topic nix are:\n"
    assert outcome.err.splitlines() == [
        "Error while executing config command with args '--bootstrap-server b0:9092 --describe --topic nix'",
        "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: ",
    ]


def test_add_config_grammar() -> None:
    assert parse_add_config("a=[1,2],b=,c = x") == {"a": "1,2", "b": "", "c": "x"}
    assert parse_add_config("a=x[1,2]y,b=[1][2],c=[[3]]") == {"a": "x1,2y", "b": "12", "c": "3"}
    with pytest.raises(ToolFailure, match="Invalid character found for config key: a!"):
        check_keys(parse_add_config("a!=1"))


def test_log_dirs_json(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    cluster.topic("bar", (0,))
    for brokers in ("0", "0,0", ",0,"):  # named once or more
        outcome = tool(log_dirs, cluster, ["--describe", "--broker-list", brokers, "--topic-list", "foo"])
        assert outcome.out == (
            "Querying brokers for log directories information\n"
            "Received log directory information from brokers 0\n"
            '{"brokers":[{"broker":0,"logDirs":[{"partitions":[{"partition":"foo-0","size":0,"offsetLag":0,'
            '"isFuture":false}],"error":null,"logDir":"/data"}]}],"version":1}\n'
        )


def test_log_dirs_of_all_brokers_stand_in_order_with_those_that_failed(cluster: Any, tool: Any) -> None:
    cluster.brokers = dict.fromkeys((1000, 17, 64))
    cluster.controller = 17
    failed = {"results": [{"log_dir": "/b", "error_code": 56, "topics": []}, {"log_dir": "/a", "topics": []}]}
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: failed if broker == 64 else None
    dirs = {
        17: [{"partitions": [], "error": None, "logDir": "/data"}],
        64: [
            {"partitions": [], "error": None, "logDir": "/a"},
            {"partitions": [], "error": "org.apache.kafka.common.errors.KafkaStorageException", "logDir": "/b"},
        ],
        1000: [{"partitions": [], "error": None, "logDir": "/data"}],
    }
    expected = {"brokers": [{"broker": broker, "logDirs": of} for broker, of in dirs.items()], "version": 1}
    outcome = tool(log_dirs, cluster, ["--describe", "--json"], bootstrap="b17:9092")
    assert json.loads(outcome.out) == expected
    text = tool(log_dirs, cluster, ["--describe"], bootstrap="b17:9092").out
    assert "Received log directory information from brokers 17,64,1000\n" in text
    unknown = tool(log_dirs, cluster, ["--describe", "--broker-list", "9,100,8"], bootstrap="b17:9092")
    assert (unknown.code, unknown.out) == (1, "")
    assert "from --broker-list: 8,9,100. Current existent brokers: 17,64,1000" in unknown.err


def test_a_broker_without_a_log_dir_refused_the_question(cluster: Any, tool: Any) -> None:
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []}
    outcome = tool(log_dirs, cluster, ["--describe"])
    assert (outcome.code, "Cluster authorization failed." in outcome.out + outcome.err) == (1, True)


OFFSETS = [
    ("all, sorted as strings", [], ["b:0", "t:0", "t:1", "t:10", "t:2"]),
    ("one topic", ["--topic", "b"], ["b:0"]),
    ("partitions", ["--partitions", "1,2"], ["t:1", "t:2"]),
    ("ranges exclude their end", ["--topic-partitions", "t:1-2,b"], ["b:0", "t:1"]),
    ("open ranges", ["--topic-partitions", ":10-,b:-1"], ["b:0", "t:10"]),
    ("one number of any topic", ["--topic-partitions", ":0"], ["b:0", "t:0"]),
]


@pytest.mark.parametrize(("argv", "expected"), [row[1:] for row in OFFSETS], ids=[row[0] for row in OFFSETS])
def test_get_offsets(cluster: Any, tool: Any, argv: list[str], expected: list[str]) -> None:
    cluster.topic("b", (0,))
    cluster.topic("t", *[(1,)] * 11)
    outcome = tool(offsets, cluster, argv)
    lines = [line.rsplit(":", 1) for line in outcome.out.splitlines()]
    assert [head for head, _ in lines if head in {"b:0", "t:0", "t:1", "t:10", "t:2"}] == expected
    assert {tail for _, tail in lines} == {"100"}


def test_get_offsets_refusals(cluster: Any, tool: Any) -> None:
    outcome = tool(offsets, cluster, ["--topic", "nix"])
    text = "Error occurred: Could not match any topic-partitions with the specified filters\n"
    assert (outcome.code, outcome.err) == (1, text)
    outcome = tool(offsets, cluster, ["--partitions", "x"])
    assert "--partitions expects a comma separated list of numeric partition ids, but received: x" in outcome.err
    assert tool(offsets, cluster, ["--bogus"]).err == "Error occurred: bogus is not a recognized option\n"


def _group() -> dict[str, Any]:
    assignment = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x03foo" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x00"
    member = {
        "member_id": "m-1",
        "client_id": "me",
        "client_host": "/127.0.0.1",
        "member_metadata": b"",
        "member_assignment": assignment + b"\xff\xff\xff\xff",
    }
    return {"group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range", "members": [member]}


def test_consumer_group_offsets(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (1,), (2,))
    cluster.groups["g"] = _group()
    cluster.committed["g"] = {TopicPartition("foo", 0): 40, TopicPartition("foo", 1): 99}
    assert tool(groups, cluster, ["--list"]).out == "g\n"
    lines = tool(groups, cluster, ["--describe", "--group", "g"]).out.splitlines()
    assert lines[0] == ""
    assert lines[1].split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert lines[2].split() == ["g", "foo", "0", "40", "100", "60", "m-1", "/127.0.0.1", "me"]
    assert lines[3].split() == ["g", "foo", "1", "99", "100", "1", "-", "-", "-"]
    assert lines[2].startswith(f"{'g':<15} {'foo':<15} {'0':<10} {'40':<15} ")
    state = tool(groups, cluster, ["--describe", "--group", "g", "--state"]).out.splitlines()
    assert state[2].split() == ["g", "b1:9092", "(1)", "range", "Stable", "1"]


def test_consumer_group_that_is_not_there(cluster: Any, tool: Any) -> None:
    outcome = tool(groups, cluster, ["--describe", "--group", "nix"])
    assert (outcome.code, outcome.out) == (0, "\nError: Consumer group 'nix' does not exist.\n")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KafkaStorageException"),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UnknownServerException"),
        (ErrorCode.NOT_CONTROLLER, "NotControllerException"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
    ],
)
def test_exception_classes(code: ErrorCode, name: str) -> None:
    assert exception_class(code) == f"org.apache.kafka.common.errors.{name}"


def test_an_election_that_is_never_answered(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0, 1))
    cluster.answers[ApiKey.ELECT_LEADERS] = lambda broker, body: {"error_code": int(ErrorCode.REQUEST_TIMED_OUT)}
    outcome = tool(elect, cluster, ["--election-type", "preferred", "--topic", "foo", "--partition", "0"])
    assert (outcome.code, outcome.out) == (1, "Timeout waiting for election results\n")
    assert outcome.err.splitlines()[0] == "Timeout waiting for election results"
    nobody = tool(elect, cluster, ["--election-type", "preferred", *ALL], bootstrap="b7:9092")
    assert (nobody.code, "Timeout waiting" in nobody.out + nobody.err) == (1, False), "that is another failure"


SEVERAL_NAMES = [
    ("topics", ["foo", "bar"], "An entity name must be specified for every entity type"),
    ("brokers", ["1", "2"], "Found multiple arguments for option entity-name, but you asked for only one"),
]


@pytest.mark.parametrize(("kind", "names", "complaint"), SEVERAL_NAMES)
def test_configs_of_several_entities_are_not_changed(
    cluster: Any, tool: Any, kind: str, names: list[str], complaint: str
) -> None:
    cluster.topic("foo", (0,))
    words = [word for name in names for word in ("--entity-name", name)]
    outcome = tool(configs, cluster, ["--alter", "--entity-type", kind, *words, "--add-config", "retention.ms=1"])
    assert (outcome.code, outcome.out, outcome.err) == (1, "", f"{complaint}\n")
    assert not cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)


def test_keys_of_a_file_are_checked(cluster: Any, tool: Any, tmp_path: Path) -> None:
    file = tmp_path / "add.properties"
    file.write_text("a\\ b=1\n")
    outcome = tool(configs, cluster, ["--alter", "--broker", "1", "--add-config-file", str(file)])
    assert (outcome.code, outcome.err) == (1, "Invalid character found for config key: a b\n")
    both = ["--alter", "--broker", "1", "--add-config", "a b=1,c"]
    assert "must be in the format" in tool(configs, cluster, both).err, "the form comes before the keys"


def test_a_message_format_is_warned_of(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    words = ["--alter", "--topic", "foo", "--add-config", "message.format.version=2.6"]
    today, older = tool(configs, cluster, words).out, tool(configs, cluster, ["--compat", "2.6", *words]).out
    head = "WARNING: The configuration message.format.version=2.6 is specified."
    assert today.startswith(head)
    assert older.startswith(head)
    assert "removed in Apache Kafka 4.0" in today
    assert "removed in Apache Kafka 4.0" not in older
    assert "WARNING" not in tool(configs, cluster, ["--compat", "4.1", *words]).out
    create = ["--compat", "4.1", "--create", "--topic", "x", "--config", "message.format.version=2.6"]
    assert "Unknown topic config name: message.format.version" in tool(topics, cluster, create).out

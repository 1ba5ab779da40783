"""The tools of 2.6 (2.0) with --bootstrap-server: each difference from 3.9 that the spec names, by its section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import configs, leader_election, reassign_partitions, topics
from controller.admin.reassignment import throttles
from controller.admin.topics import config_versions as topic_config_versions
from controller.rules.configs.values import InvalidConfig
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import PartitionReplica, ReplicaAssignment, TopicPartition

V26 = ("--compat", "2.6")
MAINS = {
    "topics": topics,
    "reassign": reassign_partitions,
    "configs": configs,
    "election": leader_election,
}
FOO0 = TopicPartition("foo", 0)


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Moves foo-0 to 1 and 2."""
    path = tmp_path / "plan.json"
    path.write_text('{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}')
    return str(path)


REFUSED: list[tuple[str, str, str, str]] = [  # section, tool, words -> how the first line begins
    ("2.2-2", "topics", "--create --list", "Command must include exactly one action: "),
    ("2.2-4", "topics", "--describe --if-exists", 'Missing required argument "[topic]"'),
    ("2.2-5", "topics", "--delete", 'Missing required argument "[topic]"'),
    ("0.8", "topics", "--alter --topic t --config a=b",
     'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'),
    ("2.2-7", "topics", "--alter --topic t", 'Missing required argument "[partitions]"'),
    ("2.2-8-delete-config", "topics", "--alter --topic t --partitions 2 --delete-config a",
     'Option "[delete-config]" can\'t be used with option "[bootstrap-server]"'),
    ("2.2-8-reports", "topics", "--describe --under-replicated-partitions --at-min-isr-partitions",
     'Option "[under-replicated-partitions]" can\'t be used with option "[at-min-isr-partitions]"'),
    ("2.1-topic-id", "topics", "--topic-id x", "Exception in thread "),
    ("0.9", "topics", "--help", "This tool helps to create, delete, describe, or change a topic."),
    ("3.1", "reassign", "", "Command must include exactly one action: --generate, --execute"),
    ("3.1-permitted", "reassign", "--verify --reassignment-json-file x --throttle 1",
     'Option "[throttle]" can\'t be used with action "[verify]"'),
    ("4.3-types", "configs", "--describe", "At least one entity type must be specified"),
    ("4.3-topics", "configs", "--alter --entity-type topics",
     "an entity name must be specified with --alter of topics"),
    ("4.3-brokers", "configs", "--alter --entity-type brokers",
     "an entity-name or default entity must be specified with --alter of users, clients or brokers"),
    ("4.3-additions", "configs", "--alter --topic foo",
     "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"),
    ("4.3-broker-id", "configs", "--describe --broker x",
     "The entity name for brokers must be a valid integer broker id, but it is: x"),
    ("4.3-ips", "configs", "--describe --entity-type ips",
     "Invalid entity type ips, the entity type must be one of topics,clients,users,brokers,broker-loggers with"),
    ("4.3-both", "configs", "--describe --topic t --zookeeper z",
     "Only one of --bootstrap-server or --zookeeper must be specified"),
]  # fmt: skip


@pytest.mark.parametrize(("main", "words", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_2_6_refuses(cluster: Any, tool: Any, main: str, words: str, message: str) -> None:
    outcome = tool(MAINS[main], cluster, [*V26, *words.split()])
    assert outcome.code == 1
    assert outcome.err.splitlines()[0].startswith(message)
    assert cluster.seen == [], "refused before anything is asked"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "Missing required option(s): election-type, bootstrap-server", id="4.1-reversed"),
        pytest.param(["--election-type", "preferred"], "Missing required option(s): bootstrap-server", id="4.1-one"),
    ],
)
def test_missing_options_of_the_leader_tool_2_6(cluster: Any, tool: Any, words: list[str], message: str) -> None:
    argv = [*V26, *words, "--topic", "foo", "--partition", "0"]
    outcome = tool(leader_election, cluster, argv, bootstrap=None)
    assert (outcome.code, outcome.out) == (1, "")
    text = f'Exception in thread "main" kafka.common.AdminCommandFailedException: {message}'
    assert outcome.err.splitlines()[0] == text


def test_2_8_describe_has_neither_ids_nor_elr(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (1, 2, 0))
    cluster.running[FOO0] = ReplicaAssignment(replicas=(1, 2, 0), adding_replicas=(2,), removing_replicas=(0,))
    outcome = tool(topics, cluster, [*V26, "--describe", "--topic", "foo"])
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "Topic: foo\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \n"
        "\tTopic: foo\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 1,2,0\tAdding Replicas: 2\tRemoving Replicas: 0\n"
    )


@pytest.mark.parametrize("action", ["--describe", "--delete"])
def test_2_8_missing_topic(cluster: Any, tool: Any, action: str) -> None:
    outcome = tool(topics, cluster, [*V26, action, "--topic", "nix"])
    text = "Error while executing topic command : Topic 'nix' does not exist as expected\n"
    assert (outcome.code, outcome.out) == (1, text)
    assert "(kafka.admin.TopicCommand$)" in outcome.err
    assert tool(topics, cluster, [*V26, action, "--topic", "nix", "--if-exists"]).code == 0


def test_2_2_refusals_carry_their_class_but_for_create(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    again = ["--create", "--topic", "foo", "--partitions", "1", "--replication-factor", "1"]
    created = tool(topics, cluster, [*V26, *again])
    assert created.out == "Error while executing topic command : Topic 'foo' already exists.\n"
    assert "ERROR org.apache.kafka.common.errors.TopicExistsException: Topic 'foo' already exists." in created.err
    text = "Topic already has 1 partitions."
    cluster.answers[ApiKey.CREATE_PARTITIONS] = lambda broker, body: {
        "results": [{"name": "foo", "error_code": ErrorCode.INVALID_PARTITIONS, "error_message": text}]
    }
    altered = tool(topics, cluster, [*V26, "--alter", "--topic", "foo", "--partitions", "1"])
    name = "org.apache.kafka.common.errors.InvalidPartitionsException"
    assert altered.out == f"Error while executing topic command : {name}: {text}\n"
    today = tool(topics, cluster, ["--alter", "--topic", "foo", "--partitions", "1"])
    assert today.out == f"Error while executing topic command : {text}\n"


def test_2_5_format_version(cluster: Any, tool: Any) -> None:
    words = ["--create", "--topic", "foo", "--config", "message.format.version=2.6"]
    out = tool(topics, cluster, [*V26, *words]).out.splitlines()
    assert out[0].endswith("newer than the inter.broker.protocol.version specified in the broker.")
    assert out[1] == "Created topic foo."


def test_3_12_the_transcript_of_2_6(cluster: Any, tool: Any, plan: str) -> None:
    cluster.topic("foo", (0, 1))
    file = ("--reassignment-json-file", plan)
    run = lambda *words: tool(reassign_partitions, cluster, [*V26, *words])  # noqa: E731
    assert run("--execute", *file, "--throttle", "1000").out.splitlines()[5:] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed.",
        "The inter-broker throttle limit was set to 1000 B/s",
        "Successfully started partition reassignment for foo-0",
    ]
    again = run("--execute", *file)
    assert (again.code, again.out) == (
        1,
        "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
        "create a new partition assignment in addition to the existing one.\n",
    )
    header = "Status of partition reassignment:\n"
    assert run("--verify", *file).out == header + "Reassignment of partition foo-0 is still in progress.\n\n"
    assert run("--list").out.splitlines()[1] == "foo-0: replicas: 1,2,0. adding: 2. removing: 0."
    cluster.finish()
    assert run("--verify", *file).out == (
        f"{header}Reassignment of partition foo-0 is complete.\n\n"
        "Clearing broker-level throttles on brokers 0,1,2\nClearing topic-level throttles on topic foo\n"
    )


def test_3_8_cancel_ends_its_line(cluster: Any, tool: Any, plan: str) -> None:
    cluster.topic("foo", (0, 1))
    out = tool(reassign_partitions, cluster, [*V26, "--cancel", "--reassignment-json-file", plan]).out
    assert out.splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 0,1,2",
        "Clearing topic-level throttles on topic foo",
    ]


def test_3_10_moves_between_log_dirs_share_a_line(cluster: Any, tool: Any, tmp_path: Path) -> None:
    cluster.topic("foo", (0,), (0,))
    rows = [{"topic": "foo", "partition": n, "replicas": [0], "log_dirs": ["/b"]} for n in (1, 0)]
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    words = ["--execute", "--reassignment-json-file", str(path), "--replica-alter-log-dirs-throttle", "7"]
    out = tool(reassign_partitions, cluster, [*V26, *words]).out.splitlines()
    assert out[-1] == "Successfully started log directory moves for: foo-0-0,foo-1-0"
    assert cluster.futures.keys() == {PartitionReplica(TopicPartition("foo", n), 0) for n in (0, 1)}
    lists = cluster.configs[2, "foo"]
    assert lists == {throttles.LEADER_REPLICAS: "0:0,1:0", throttles.FOLLOWER_REPLICAS: ""}, "§3.6: for log dirs, too"


def test_3_1_zookeeper_beside_brokers_is_not_looked_at(cluster: Any, tool: Any, plan: str) -> None:
    cluster.topic("foo", (1, 2))
    words = ["--zookeeper", "nowhere:1", "--verify", "--reassignment-json-file", plan]
    out = tool(reassign_partitions, cluster, [*V26, *words]).out.splitlines()
    assert out[0] == (
        "Warning: ignoring deprecated --zookeeper option because --bootstrap-server was specified.  The --zookeeper "
        "option will be removed in a future version of Kafka."
    )
    assert out[2] == "Reassignment of partition foo-0 is complete."


@pytest.mark.parametrize(
    ("compat", "words"),
    [
        pytest.param("2.6", "Broker list contains duplicate entries: 1", id="3.4-2.6"),
        pytest.param("3.9", "Broker list contains duplicate entries: [1]", id="3.4-3.9"),
    ],
)
def test_3_4_duplicates(cluster: Any, tool: Any, tmp_path: Path, compat: str, words: str) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topics":[{"topic":"foo"}]}')
    argv = ["--compat", compat, "--generate", "--topics-to-move-json-file", str(path), "--broker-list", "1,1"]
    out = tool(reassign_partitions, cluster, argv).out.splitlines()
    assert out[0] == f"Error: {words}"
    package = "kafka.common" if compat == "2.6" else "org.apache.kafka.server.common"
    assert out[1] == f"{package}.AdminCommandFailedException: {words}"


def _moving(replicas: str, adding: str, removing: str) -> ReplicaAssignment:
    ids = lambda text: tuple(map(int, text))  # noqa: E731
    return ReplicaAssignment(replicas=ids(replicas), adding_replicas=ids(adding), removing_replicas=ids(removing))


def test_3_6_move_map_of_2_6() -> None:
    """Running partitions lose their follower throttle; a proposal has all present replicas as sources."""
    bar0, foo1 = TopicPartition("bar", 0), TopicPartition("foo", 1)
    running = {FOO0: _moving("1234", "4", "3"), foo1: _moving("45678", "78", "45")}
    current = {FOO0: (1, 2, 3, 4), bar0: (2, 3, 4)}
    proposed = {FOO0: (1, 2, 5), bar0: (1, 2, 3)}
    old = throttles.topic_configs(throttles.move_map_26(running, proposed, current))
    assert old["foo"] == {
        throttles.LEADER_REPLICAS: "0:1,0:2,0:3,0:4,1:4,1:5,1:6,1:7,1:8",
        throttles.FOLLOWER_REPLICAS: "0:5",
    }
    assert old["bar"] == {throttles.LEADER_REPLICAS: "0:2,0:3,0:4", throttles.FOLLOWER_REPLICAS: "0:1"}
    new = throttles.topic_configs(throttles.move_map(running, proposed, current))
    assert new["foo"][throttles.FOLLOWER_REPLICAS] == "0:5,1:7,1:8"


@pytest.mark.parametrize(
    ("compat", "entity", "altered", "described"),
    [
        pytest.param(
            "2.6", "--topic=foo", "config for topic foo.", "Dynamic configs for topic foo are:", id="4.3-topic"
        ),
        pytest.param(
            "2.6",
            "--broker-defaults",
            "default config for brokers in the cluster.",
            "Default configs for brokers in the cluster are:",
            id="4.3-default",
        ),
        pytest.param(
            "2.0", "--entity-name=1", "config for broker: 1.", "Configs for broker 1 are:", id="4.3-2.0-broker"
        ),
        pytest.param(
            "2.0",
            "--entity-default",
            "default config for brokers in the cluster,",
            "Default config for brokers in the cluster are:",
            id="4.3-2.0-default",
        ),
    ],
)
def test_configs_by_brokers(cluster: Any, tool: Any, compat: str, entity: str, altered: str, described: str) -> None:
    cluster.topic("foo", (0,))
    words = ["--compat", compat, entity, *(["--entity-type", "brokers"] if compat == "2.0" else [])]
    outcome = tool(configs, cluster, [*words, "--alter", "--add-config", "flush.ms=7"])
    assert (outcome.code, outcome.out, outcome.err) == (0, f"Completed updating {altered}\n", "")
    shown = tool(configs, cluster, [*words, "--describe"]).out.splitlines()
    assert shown[0] == described
    assert shown[1].startswith("  flush.ms=7 sensitive=false synonyms={")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["--zookeeper", "z", "--describe"],
            "Only one of --bootstrap-server or --zookeeper must be specified",
            id="4.3-2.0-both",
        ),
        pytest.param(
            ["--alter", "--entity-type", "topics"], 'Missing required argument "[zookeeper]"', id="4.3-2.0-topics"
        ),
        pytest.param(["--describe", "--all"], "all is not a recognized option", id="4.3-2.0-all"),
        pytest.param(
            ["--alter", "--entity-type", "brokers", "--entity-name", "1"],
            "At least one of --add-config or --delete-config must be specified with --alter",
            id="4.3-2.0-additions",
        ),
        pytest.param(
            ["--describe", "--entity-type", "brokers"],
            "At least one of --entity-name or --entity-default must be specified with --bootstrap-server",
            id="4.3-2.0-name",
        ),
    ],
)
def test_what_configs_of_2_0_refuses(cluster: Any, tool: Any, words: list[str], message: str) -> None:
    outcome = tool(configs, cluster, ["--compat", "2.0", *words])
    assert (outcome.code, outcome.out, outcome.err.splitlines()[0]) == (1, "", message)
    assert cluster.seen == []


def test_own_options_go_with_2_6_by_brokers(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    outcome = tool(topics, cluster, [*V26, "--describe", "--topic", "foo", "--json"])
    assert json.loads(outcome.out)["topics"][0]["topic"] == "foo"
    assert tool(topics, cluster, [*V26, "--describe", "--explain", "--topic", "foo"]).code == 0


def _elections(cluster: Any) -> None:
    """foo-0 needs an election, foo-1 has had it, foo-2 cannot have it."""
    cluster.topic("foo", (0, 1), (1, 2), (2, 0))
    cluster.topics["foo"][0].leader = 1
    cluster.topics["foo"][2].leader = 0
    cluster.topics["foo"][2].isr = (0,)


@pytest.fixture
def listed(tmp_path: Path) -> str:
    """All three partitions."""
    path = tmp_path / "election.json"
    path.write_text(json.dumps({"partitions": [{"topic": "foo", "partition": n} for n in range(3)]}))
    return str(path)


@pytest.mark.parametrize(
    ("words", "lines", "count"),
    [
        pytest.param(
            ["--election-type", "preferred"],
            [
                "Successfully completed leader election (PREFERRED) for partitions foo-0",
                "Valid replica already elected for partitions foo-0",
                "Error completing leader election (PREFERRED) for partition: foo-2: ",
            ],
            "1 replica(s) could not be elected",
            id="4.1-leader-tool",
        ),
        pytest.param(
            [],
            [
                "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405",
                "Successfully completed preferred leader election for partitions foo-0",
                "Preferred replica already elected for partitions foo-0",
                "Error completing preferred leader election for partition: foo-2: ",
            ],
            "1 preferred replica(s) could not be elected",
            id="4.1-preferred-tool",
        ),
    ],
)
def test_elections_of_2_6(cluster: Any, tool: Any, listed: str, words: list[str], lines: list[str], count: str) -> None:
    _elections(cluster)
    outcome = tool(leader_election, cluster, [*V26, *words, "--path-to-json-file", listed])
    assert outcome.code == 1
    printed = outcome.out.splitlines()
    assert printed[:-1] == lines[:-1], "already elected: the partitions that were elected just now"
    assert printed[-1].startswith(lines[-1])
    assert outcome.err == f'Exception in thread "main" kafka.common.AdminCommandFailedException: {count}\n'


def test_4_1_the_preferred_tool_wants_one_server_option(cluster: Any, tool: Any) -> None:
    outcome = tool(leader_election, cluster, [*V26, "--zookeeper", "z"])
    message = "Exactly one of '[bootstrap-server]' or '[zookeeper]' must be provided"
    assert (outcome.code, outcome.err.splitlines()[0]) == (1, message)


def test_4_1_duplicates_without_brackets(cluster: Any, tool: Any, tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text(json.dumps({"partitions": [{"topic": "foo", "partition": 1}] * 2}))
    words = ["--election-type", "preferred", "--path-to-json-file", str(path)]
    err = tool(leader_election, cluster, [*V26, *words]).err
    assert err.endswith("Replica election data contains duplicate partitions: foo-1\n")


@pytest.mark.parametrize(
    ("compat", "config", "message"),
    [
        pytest.param(
            "2.0", "max.compaction.lag.ms=1", "Unknown topic config name: max.compaction.lag.ms", id="2.5-2.0"
        ),
        pytest.param("2.6", "max.compaction.lag.ms=1", None, id="2.5-2.6"),
        pytest.param("2.6", "remote.storage.enable=true", "Unknown topic config name: remote.storage.enable", id="2.5"),
        pytest.param(
            "2.0",
            "compression.type=zstd",
            "Invalid value zstd for configuration compression.type: String must be one of: uncompressed, snappy, lz4, "
            "gzip, producer",
            id="2.5-2.0-zstd",
        ),
        pytest.param("2.6", "compression.type=zstd", None, id="2.5-2.6-zstd"),
        pytest.param("2.0", "retention.ms=-9", None, id="2.5-2.0-retention"),
        pytest.param(
            "2.6",
            "retention.ms=-9",
            "Invalid value -9 for configuration retention.ms: Value must be at least -1",
            id="2.5-2.6-retention",
        ),
        pytest.param("2.6", "segment.index.bytes=0", None, id="2.5-index"),
        pytest.param(
            "2.6",
            "segment.index.bytes=-1",
            "Invalid value -1 for configuration segment.index.bytes: Value must be at least 0",
            id="2.5-index-negative",
        ),
        pytest.param("2.0", "flush.messages=0", None, id="2.5-flush"),
    ],
)
def test_configs_of_versions(compat: str, config: str, message: str | None) -> None:
    name, _, value = config.partition("=")
    if message is None:
        topic_config_versions.validate(compat, {name: value})
        return
    with pytest.raises(InvalidConfig) as refused:
        topic_config_versions.validate(compat, {name: value})
    assert (refused.value.message or "").startswith(message)


def test_2_5_a_config_that_2_6_had_not_is_refused_before_anything_is_asked(cluster: Any, tool: Any) -> None:
    words = ["--create", "--topic", "foo", "--config", "remote.storage.enable=true"]
    outcome = tool(topics, cluster, [*V26, *words])
    text = "Error while executing topic command : Unknown topic config name: remote.storage.enable\n"
    assert (outcome.code, outcome.out, cluster.topics) == (1, text, {})


def test_3_2_what_is_no_json_is_not_told_in_the_parsers_words(cluster: Any, tool: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{]")
    words = ["--verify", "--reassignment-json-file", str(tmp_path / "bad.json")]
    out = tool(reassign_partitions, cluster, [*V26, *words]).out
    assert out.startswith("Error: The input string is not a valid JSON")


@pytest.mark.parametrize("main", [*MAINS])
def test_0_9_version(cluster: Any, tool: Any, main: str) -> None:
    assert tool(MAINS[main], cluster, [*V26, "--version"]).out == "2.6.0 (Commit:62abe01bee039651)\n"
    assert tool(MAINS[main], cluster, ["--version"]).out == "3.9.1\n"

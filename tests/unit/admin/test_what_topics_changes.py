"""What kafka-topics changes, by brokers and by ZooKeeper, and nothing beside; what machines read of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.admin.commands import topics
from controller.wire.protocol import ApiKey
from tests.unit.admin.test_older_tools import Stage

#: options of --create -> the counts that are sent, the replicas of each partition
SENT = [
    ([], (-1, -1), []),
    (["--partitions", "1"], (1, -1), []),
    (["--replication-factor", "1"], (-1, 1), []),
    (["--partitions", "7", "--replication-factor", "2"], (7, 2), []),
    (["--replication-factor", "32767"], (-1, 32767), []),
    (["--replica-assignment", "2:1,0:2,1:0"], (-1, -1), [(0, (2, 1)), (1, (0, 2)), (2, (1, 0))]),
]


@pytest.mark.parametrize(("options", "counts", "placed"), SENT, ids=[" ".join(row[0]) or "none" for row in SENT])
def test_counts_are_sent_as_they_are_given_and_none_for_what_is_left_to_the_cluster(
    cluster: Any, tool: Any, options: list[str], counts: tuple[int, int], placed: list[Any]
) -> None:
    configs = ["--config", "retention.ms=5", "--config", "flush.ms=7"]
    assert tool(topics, cluster, ["--create", "--topic", "t", *configs, *options]).code == 0
    [request] = cluster.requests(ApiKey.CREATE_TOPICS)
    [topic] = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", *counts)
    assert [(a.partition_index, tuple(a.broker_ids)) for a in topic.assignments] == placed
    assert {c.name: c.value for c in topic.configs} == {"retention.ms": "5", "flush.ms": "7"}
    assert not request.validate_only


def test_partitions_are_added_to_each_topic_named_and_placed_by_the_cluster(cluster: Any, tool: Any) -> None:
    for name in ("a1", "a2", "b"):
        cluster.topic(name, (0, 1))
    answer = json.loads(tool(topics, cluster, ["--alter", "--topic", "a.", "--partitions", "3", "--json"]).out)
    assert answer == {"topics": ["a1", "a2"], "partitions": 3}
    [request] = cluster.requests(ApiKey.CREATE_PARTITIONS)
    assert [(t.name, t.count, t.assignments) for t in request.topics] == [("a1", 3, None), ("a2", 3, None)]
    assert {name: len(partitions) for name, partitions in cluster.topics.items()} == {"a1": 3, "a2": 3, "b": 1}


def test_lists_are_those_of_what_each_topic_gets(cluster: Any, tool: Any) -> None:
    """Of the topics that a pattern means each has a number of partitions of its own; the first lists are theirs."""
    for number, name in enumerate(("a0", "a1", "a2", "a3"), 1):
        cluster.topic(name, *[(0, 1)] * number)
    words = ["--alter", "--topic", "a.", "--partitions", "4", "--replica-assignment", "0:1,1:2,2:0,2:1"]
    assert tool(topics, cluster, words).code == 0
    [request] = cluster.requests(ApiKey.CREATE_PARTITIONS)
    added = {t.name: [tuple(a.broker_ids) for a in t.assignments] for t in request.topics}
    lists = [(0, 1), (1, 2), (2, 0), (2, 1)]
    assert added == {name: lists[number:] for number, name in enumerate(("a0", "a1", "a2", "a3"), 1)}


@pytest.mark.parametrize("action", [["--alter", "--partitions", "3"], ["--delete"]])
def test_internal_topics_are_changed_where_they_are_meant(cluster: Any, tool: Any, action: list[str]) -> None:
    for name in ("__consumer_offsets", "__mine"):
        cluster.topic(name, (0, 1))
    answer = json.loads(tool(topics, cluster, [*action, "--topic", "__.*", "--json"]).out)
    assert next(iter(answer.values())) == ["__consumer_offsets", "__mine"]
    changed = {name: len(partitions) for name, partitions in cluster.topics.items()}
    assert changed == ({} if action == ["--delete"] else dict.fromkeys(("__consumer_offsets", "__mine"), 3))


@pytest.mark.parametrize("action", [["--alter", "--partitions", "3"], ["--delete"]])
def test_a_name_that_fits_nothing_changes_nothing(cluster: Any, tool: Any, action: list[str]) -> None:
    cluster.topic("abc", (0,))
    outcome = tool(topics, cluster, [*action, "--topic", "b", "--json"])
    assert (outcome.code, json.loads(outcome.out).keys()) == (1, {"error", "class"}), "a name is no part of another"
    assert tool(topics, cluster, [*action, "--topic", "b", "--if-exists"]).code == 0
    assert not {ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS} & {key for _, key, _ in cluster.seen}


def test_what_machines_read_of_changes(cluster: Any, tool: Any) -> None:
    def ask(*words: str) -> Any:
        return json.loads(tool(topics, cluster, [*words, "--json"]).out)

    assert ask("--create", "--topic", "t") == {"topic": "t", "created": True}
    assert ask("--create", "--topic", "t", "--if-not-exists") == {"topic": "t", "created": False}
    assert ask("--delete", "--topic", "t") == {"deleted": ["t"]}
    assert ask("--delete", "--topic", "t", "--if-exists") == {"deleted": []}


def test_the_topic_that_was_created_is_explained_and_no_other(cluster: Any, tool: Any) -> None:
    cluster.topic("newer", (0,))
    words = ["--create", "--topic", "n.w", "--replica-assignment", "0:1,2:0", "--explain"]
    cluster.topic("now", (0,))
    assert [line for line in tool(topics, cluster, words).out.splitlines() if line.startswith("Topic ")] == [
        "Topic n.w"
    ]


# By ZooKeeper.


def changes(stage: Stage) -> dict[str, Any]:
    """What a tool may write, as it is."""
    kinds = ("/brokers/topics/", "/config/", "/admin/")
    return {path: data for path, data in stage.after.items() if path.startswith(kinds)}


@pytest.fixture
def stage() -> Stage:
    """foo with a config, a.b and c_d, on brokers 0 to 2."""
    made = Stage()
    for name in ("foo", "foo2", "a.b", "c_d"):
        made.topic(name, (0, 1))
    made.before["/config/topics/foo"] = {"version": 1, "config": {"retention.ms": "5", "flush.ms": "7"}}
    made.run("topics", "--list", "--zk")
    return made


ON_ONE = ("--partitions", "1", "--replication-factor", "1")
#: what changes nothing -> its code and, in words, why
UNCHANGED = [
    (("--create", "--topic", "foo", *ON_ONE), 1, "Topic 'foo' already exists."),
    (("--create", "--topic", "foo", "--if-not-exists", "--config", "flush.ms=1", *ON_ONE), 0, None),
    (("--create", "--topic", "a_b", *ON_ONE), 1, "Topic 'a_b' collides with existing topics: a.b"),
    (("--create", "--topic", "c.d", *ON_ONE), 1, "Topic 'c.d' collides with existing topics: c_d"),
    (("--create", "--topic", "", *ON_ONE), 1, "Topic name is illegal, it can't be empty"),
    (("--create", "--topic", "x" * 250, *ON_ONE), 1, f"be longer than 249 characters, topic name: {'x' * 250}"),
    (("--create", "--topic", "t", "--config", "retention.ms=x", *ON_ONE), 1, "Invalid value x for configuration"),
    (("--create", "--topic", "t", "--replica-assignment", ":"), 1, "Error while executing topic command"),
    (("--alter", "--topic", "oo", "--config", "flush.ms=1"), 1, "does not exist"),
    (("--alter", "--topic", "oo", "--if-exists", "--config", "flush.ms=1"), 0, None),
    (("--alter", "--topic", "foo", "--config", "flush.ms=x"), 1, "Invalid value x for configuration flush.ms"),
    (("--alter", "--topic", "foo", "--delete-config", "nix"), 1, "Unknown topic config name: nix"),
    (("--delete", "--topic", "oo"), 1, "does not exist"),
    (("--delete", "--topic", "oo", "--if-exists"), 0, None),
]  # fmt: skip


@pytest.mark.parametrize("version", ["2.0", "2.6"])
@pytest.mark.parametrize(("words", "code", "why"), UNCHANGED, ids=[" ".join(row[0])[:60] for row in UNCHANGED])
def test_what_is_refused_or_needless_changes_nothing(
    stage: Stage, version: str, words: tuple[str, ...], code: int, why: str | None
) -> None:
    before = changes(stage)
    outcome = stage.run("topics", words[0], "--zk", *words[1:], compat=version)
    assert outcome[0] == code
    assert why is None or why in outcome[1]
    assert changes(stage) == before


@pytest.mark.parametrize("version", ["2.0", "2.6"])
def test_the_longest_name_and_the_names_beside_others_can_be_created(stage: Stage, version: str) -> None:
    for name in ("x" * 249, "a.c", "ab", "c_e"):
        code, out, _ = stage.run("topics", "--create", "--zk", "--topic", name, *ON_ONE, compat=version)
        assert code == 0
        assert ("could collide" in out) == ("." in name or "_" in name)


@pytest.mark.parametrize("version", ["2.0", "2.6"])
def test_what_is_added_and_removed_leaves_the_other_configs(stage: Stage, version: str) -> None:
    before = changes(stage)
    pairs = ("--config", " max.message.bytes = 9 ", "--delete-config", " flush.ms ")  # blanks do not count
    words = ("--alter", "--zk", "--topic", "foo", *pairs)
    assert stage.run("topics", *words, compat=version)[0] == 0
    assert stage.json("/config/topics/foo")["config"] == {"retention.ms": "5", "max.message.bytes": "9"}
    assert stage.notices() == ["topics/foo"]
    written = {path for path, data in changes(stage).items() if before.get(path) != data}
    assert {path.rpartition("/")[0] for path in written} == {"/config/topics", "/config/changes"}


def test_configs_are_checked_with_those_that_are_there_already(stage: Stage) -> None:
    alter = ("--alter", "--zk", "--topic", "foo", "--config")
    assert stage.run("topics", *alter, "max.compaction.lag.ms=9", compat="2.6")[0] == 0
    before = changes(stage)
    assert stage.run("topics", *alter, "min.compaction.lag.ms=10", compat="2.6")[0] == 1
    assert changes(stage) == before


def test_what_machines_read_where_zookeeper_is_asked(stage: Stage) -> None:
    def ask(*words: str) -> Any:
        out = stage.run("topics", words[0], "--zk", *words[1:], "--json", compat="2.6")[1]
        return json.loads(out)

    assert ask("--create", "--topic", "t", *ON_ONE) == {"topic": "t", "created": True}
    assert ask("--create", "--topic", "t", "--if-not-exists", *ON_ONE) == {"topic": "t", "created": False}
    assert ask("--alter", "--topic", "foo.*", "--config", "flush.ms=1") == {"topics": ["foo", "foo2"]}
    assert ask("--delete", "--topic", "foo.*") == {"deleted": ["foo", "foo2"]}
    assert ask("--list", "--topic", "foo2|t") == {"topics": ["foo2", "t"], "marked_for_deletion": ["foo2"]}
    assert sorted(p for p in stage.after if p.startswith("/admin/delete_topics/")) == [
        "/admin/delete_topics/foo",
        "/admin/delete_topics/foo2",
    ]


#: lists for foo, which has one partition, with a total of 2 -> the replicas of partition 1, or why not
LISTS = [
    ("2.0", "0:1,2:0", [2, 0]),
    ("2.6", "0:1,2:0", [2, 0]),
    ("2.6", "9:9,2:0", [2, 0]),
    ("2.0", "0:1", 'For input string: ""'),
    ("2.6", "0:1", "placed"),
]


@pytest.mark.parametrize(("version", "lists", "outcome"), LISTS)
def test_lists_of_added_partitions(stage: Stage, version: str, lists: str, outcome: Any) -> None:
    words = ("--alter", "--zk", "--topic", "foo", "--partitions", "2", "--replica-assignment", lists)
    code, out, _ = stage.run("topics", *words, compat=version)
    replicas = stage.json("/brokers/topics/foo")["partitions"]
    assert replicas["0"] == [0, 1]
    if outcome == "placed":
        assert (code, len(replicas["1"])) == (0, 2)
    elif isinstance(outcome, list):
        assert (code, replicas["1"]) == (0, outcome)
    else:
        assert (code, outcome in out, set(replicas)) == (1, True, {"0"})


@pytest.mark.parametrize(("version", "warned"), [("2.0", True), ("2.6", False)])
def test_2_0_warns_of_a_name_before_it_reads_the_lists(stage: Stage, version: str, warned: bool) -> None:
    words = ("--create", "--zk", "--topic", "x.y", "--replica-assignment", "0:0")
    code, out, _ = stage.run("topics", *words, compat=version)
    assert (code, "could collide" in out) == (1, warned)
    assert "Partition replica lists may not contain duplicate entries: 0" in out

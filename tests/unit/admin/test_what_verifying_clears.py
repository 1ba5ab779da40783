"""kafka-reassign-partitions --verify: what it says of each partition, and when it clears which throttles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import reassign_partitions as reassign
from controller.admin.reassignment.throttles import BROKER_THROTTLES, TOPIC_THROTTLES
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from tests.unit.admin.test_older_tools import Stage

THROTTLED = dict.fromkeys(BROKER_THROTTLES, "5")
LISTED = dict.fromkeys(TOPIC_THROTTLES, "*")


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes a file of these rows (topic, partition, replicas, and directories or none); gives the option for it."""

    def write(*rows: tuple[Any, ...]) -> list[str]:
        names = ("topic", "partition", "replicas", "log_dirs")
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"partitions": [dict(zip(names, row, strict=False)) for row in rows]}))
        return ["--reassignment-json-file", str(path)]

    return write


def test_what_machines_read_of_all_that_a_partition_and_a_replica_may_be(cluster: Any, tool: Any, file: Any) -> None:
    cluster.topic("foo", (0, 1), (1, 2), (2, 0))
    moving = ReplicaAssignment(replicas=(BrokerId(0), BrokerId(1)), adding_replicas=(BrokerId(1),))
    cluster.running[TopicPartition("foo", 0)] = moving
    cluster.futures = {
        PartitionReplica(TopicPartition("foo", 1), BrokerId(1)): "/ssd",
        PartitionReplica(TopicPartition("foo", 2), BrokerId(0)): "/other",
    }
    plan = file(
        ("foo", 0, [0, 1]),
        ("foo", 1, [1, 2], ["/ssd", "/data"]),
        ("foo", 2, [0, 2], ["/ssd", "/ssd"]),
        ("nix", 0, [1]),
    )
    answer = json.loads(tool(reassign, cluster, ["--verify", "--json", *plan]).out)
    partitions = [(p["topic"], p["partition"], p["state"], p["replicas"], p["target"]) for p in answer["partitions"]]
    assert partitions == [
        ("foo", 0, "in_progress", [0, 1], [0, 1]),
        ("foo", 1, "completed", [1, 2], [1, 2]),
        ("foo", 2, "different", [2, 0], [0, 2]),
        ("nix", 0, "different", [], [1]),
    ]
    moves = {m["replica"]: (m["current"], m["future"], m["target"], m["done"]) for m in answer["moves"]}
    assert moves == {
        "foo-1-1": ("/data", "/ssd", "/ssd", False),
        "foo-1-2": ("/data", None, "/data", True),
        "foo-2-0": ("/data", "/other", "/ssd", False),
        "foo-2-2": ("/data", None, "/ssd", True),
    }
    assert (answer["running"], answer["throttles_cleared"]) == (["foo-0"], False)


def test_replicas_are_told_of_broker_by_broker(cluster: Any, tool: Any, file: Any) -> None:
    cluster.topic("foo", (0, 1), (1, 0))
    plan = file(("foo", 1, [1, 0], ["/data", "/data"]), ("foo", 0, [0, 1], ["/data", "/data"]))
    lines = tool(reassign, cluster, ["--verify", *plan]).out.splitlines()
    assert [line.split()[3] for line in lines if "of replica" in line] == ["foo-0-0", "foo-1-0", "foo-0-1", "foo-1-1"]


#: where foo-0, which is to be on 1, and foo-1, which is to be on 2, are, what runs, version -> whether it clears
WHEN = [
    ((1,), (2,), None, "2.0", True),
    ((1,), (2,), None, "2.6", True),
    ((1,), (0,), None, "2.0", False),
    ((0,), (2,), None, "2.0", False),
    ((0,), (0,), None, "2.6", True),
    ((1,), (2,), "bar", "2.0", True),
    ((1,), (2,), "bar", "2.6", False),
    ((1,), (2,), "foo", "2.0", False),
    ((1,), (2,), "foo", "2.6", False),
]


@pytest.mark.parametrize(("foo_0", "foo_1", "runs", "version", "cleared"), WHEN)
def test_2_0_clears_when_all_it_was_asked_for_is_there_and_2_6_when_nothing_runs(
    file: Any, foo_0: tuple[int], foo_1: tuple[int], runs: str | None, version: str, cleared: bool
) -> None:
    """The rates of live brokers; in 2.6 those of brokers in the file that are away, too. Lists of the topics named."""
    stage = Stage()
    stage.topic("foo", foo_0, foo_1)
    stage.topic("bar", (0,))
    if runs is not None:
        asked = {"topic": runs, "partition": 0, "replicas": [1]}
        stage.before["/admin/reassign_partitions"] = {"version": 1, "partitions": [asked]}
    own = {"log.cleaner.threads": "2"}
    for broker in (0, 1, 9):
        stage.before[f"/config/brokers/{broker}"] = {"version": 1, "config": {**own, **THROTTLED}}
    for topic in ("foo", "bar"):
        stage.before[f"/config/topics/{topic}"] = {"version": 1, "config": {"retention.ms": "5", **LISTED}}
    code, out, _ = stage.run("reassign", "--verify", "--zk", *file(("foo", 0, [1]), ("foo", 1, [2])), compat=version)
    assert code == 0
    left = {name: stage.json(f"/config/{name}")["config"] for name in ("brokers/0", "brokers/1", "topics/foo")}
    assert left == {
        "brokers/0": own if cleared else {**own, **THROTTLED},
        "brokers/1": own if cleared else {**own, **THROTTLED},
        "topics/foo": {"retention.ms": "5"} if cleared else {"retention.ms": "5", **LISTED},
    }
    assert stage.json("/config/topics/bar")["config"] == {"retention.ms": "5", **LISTED}
    assert stage.json("/config/brokers/9")["config"] == {**own, **THROTTLED}, "neither alive nor named"
    assert ("Throttle was removed." in out) == (cleared and version == "2.0")
    assert ("Clearing broker-level throttles on brokers 0,1,2" in out) == (cleared and version == "2.6")


@pytest.mark.parametrize("version", ["2.0", "2.6"])
def test_brokers_that_are_away_are_cleared_where_the_file_names_them_from_2_6_on(file: Any, version: str) -> None:
    stage = Stage({1: None})
    stage.topic("foo", (1, 9))
    stage.before["/config/brokers/9"] = {"version": 1, "config": THROTTLED}
    _, out, _ = stage.run("reassign", "--verify", "--zk", *file(("foo", 0, [1, 9])), compat=version)
    assert stage.json("/config/brokers/9")["config"] == ({} if version == "2.6" else THROTTLED)
    assert ("Clearing broker-level throttles on brokers 1,9\n" in out) == (version == "2.6")


def test_one_broker_is_one_broker(cluster: Any, tool: Any, file: Any) -> None:
    cluster.brokers = {0: None}
    cluster.topic("foo", (0,))
    assert "throttles on broker 0\n" in tool(reassign, cluster, ["--verify", *file(("foo", 0, [0]))]).out


@pytest.mark.parametrize("rates", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_2_0_says_that_it_removed_a_throttle_when_there_was_one(file: Any, rates: bool, lists: bool) -> None:
    stage = Stage()
    stage.topic("foo", (1,))
    stage.before["/config/brokers/1"] = {"version": 1, "config": THROTTLED if rates else {}}
    stage.before["/config/topics/foo"] = {"version": 1, "config": LISTED if lists else {}}
    _, out, _ = stage.run("reassign", "--verify", "--zk", *file(("foo", 0, [1])))
    assert ("Throttle was removed." in out) == (rates or lists)
    assert stage.notices() == ["brokers/1"] * rates + ["topics/foo"] * lists, (
        "what has nothing to remove is not written"
    )


#: numbers that the topic has, that runs, that is asked for -> the length it is out of, or none
NUMBERS = [
    ("there", 2, None, 1, None),
    ("one above the last", 2, None, 2, 2),
    ("two above the last", 2, None, 3, None),
    ("below the first", 2, None, -1, 2),
    ("far below", 2, None, -7, 2),
    ("one above the last, being moved as it was added", 2, 2, 2, None),
    ("of a topic that there is not", 0, None, 0, None),
    ("below the first of a topic that there is not", 0, None, -1, None),
]


@pytest.mark.parametrize(("count", "runs", "number", "length"), [n[1:] for n in NUMBERS], ids=[n[0] for n in NUMBERS])
def test_numbers_over_which_verify_stumbles(
    cluster: Any, tool: Any, file: Any, count: int, runs: int | None, number: int, length: int | None
) -> None:
    if count:
        cluster.topic("foo", *[(0,)] * count)
    if runs is not None:
        cluster.running[TopicPartition("foo", runs)] = ReplicaAssignment(replicas=(BrokerId(0), BrokerId(1)))
    outcome = tool(reassign, cluster, ["--verify", *file(("foo", number, [0]))])
    text = f"Error: Index {number} out of bounds for length {length}\n"
    assert outcome.out.startswith(text) == (length is not None)
    assert ("Index" in outcome.out) == (length is not None)
    if length is not None:
        assert outcome.code == 1
        assert not cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)


@pytest.mark.parametrize("action", ["--execute", "--verify"])
@pytest.mark.parametrize(("version", "brokers"), [("2.0", []), ("2.0", ["--bootstrap-server", "b:1"]), ("2.6", [])])
def test_directories_are_refused_before_anything_is_changed_where_only_zookeeper_is_asked(
    file: Any, version: str, action: str, brokers: list[str]
) -> None:
    stage = Stage()
    stage.topic("foo", (1,))
    stage.before["/config/brokers/1"] = {"version": 1, "config": THROTTLED}
    words = [action, "--zk", *brokers, *file(("foo", 0, [1], ["/ssd"]))]
    code, out, _ = stage.run("reassign", *words, compat=version)
    refused = "Partitions reassignment failed due to" if version == "2.0" else "Error:"
    assert [line for line in out.splitlines() if line.startswith(refused)]
    assert code == (0 if version == "2.0" else 1)
    assert stage.json("/config/brokers/1")["config"] == THROTTLED
    assert stage.json("/admin/reassign_partitions") is None
    assert ("bootstrap-server needs to be provided" in out) == (not brokers)

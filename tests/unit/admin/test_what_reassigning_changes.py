"""What kafka-reassign-partitions changes in a cluster, and nothing beside: throttles, moves, and what machines read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import reassign_partitions as reassign
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from tests.unit.admin.test_older_tools import Stage

FOO_0, FOO_1, BAR_0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LOG_DIRS = "replica.alter.log.dirs.io.max.bytes.per.second"
CHANGING = {ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ALTER_REPLICA_LOG_DIRS}


def rates(value: str) -> dict[str, str]:
    return {"leader.replication.throttled.rate": value, "follower.replication.throttled.rate": value}


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes a reassignment file of these rows, and gives the option that names it."""

    def write(*rows: dict[str, Any]) -> list[str]:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return ["--reassignment-json-file", str(path)]

    return write


def row(partition: TopicPartition, *replicas: int, dirs: list[str] | None = None) -> dict[str, Any]:
    value = {"topic": partition.topic, "partition": partition.partition, "replicas": replicas}
    return value if dirs is None else {**value, "log_dirs": dirs}


@pytest.fixture
def five(cluster: Any) -> Any:
    """Brokers 0 to 4; foo-0 and foo-1 on 0 and 1, bar-0 on its way from 3 to 4."""
    cluster.brokers = dict.fromkeys(range(5))
    cluster.topic("foo", (0, 1), (0, 1))
    cluster.topic("bar", (3,))
    cluster.topics["bar"][0].replicas = (4, 3)
    cluster.running[BAR_0] = ReplicaAssignment(
        replicas=(BrokerId(4), BrokerId(3)), adding_replicas=(BrokerId(4),), removing_replicas=(BrokerId(3),)
    )
    return cluster


def configs(cluster: Any) -> dict[tuple[int, str], dict[str, str]]:
    return {entity: dict(values) for entity, values in cluster.configs.items() if values}


LISTS = {LEADERS: "0:0,0:1", FOLLOWERS: "0:2"}
#: version and options -> the rate of all three brokers, that of moves between log dirs, whether replicas are listed
THROTTLED = [
    ("3.9", [], None, None, False),
    ("3.9", ["--throttle", "-1"], None, None, False),
    ("3.9", ["--throttle", "0"], "0", None, True),
    ("3.9", ["--throttle", "1"], "1", None, True),
    ("3.9", ["--replica-alter-log-dirs-throttle", "-1"], None, None, False),
    ("3.9", ["--replica-alter-log-dirs-throttle", "0"], None, "0", False),
    ("3.9", ["--replica-alter-log-dirs-throttle", "1"], None, "1", False),
    ("2.6", ["--replica-alter-log-dirs-throttle", "0"], None, "0", True),
    ("3.9", ["--throttle", "0", "--replica-alter-log-dirs-throttle", "7"], "0", "7", True),
    ("3.9", ["--throttle", "7", "--replica-alter-log-dirs-throttle", "-1"], "7", None, True),
]


@pytest.mark.parametrize(("version", "options", "rate", "dirs_rate", "listed"), THROTTLED)
def test_each_throttle_is_set_from_nothing_per_second_on_and_where_its_moves_are(
    cluster: Any, tool: Any, file: Any, version: str, options: list[str], rate: Any, dirs_rate: Any, listed: bool
) -> None:
    cluster.topic("foo", (0, 1))
    plan = file(row(FOO_0, 1, 2, dirs=["/ssd", "any"]))
    outcome = tool(reassign, cluster, ["--compat", version, "--execute", *options, *plan])
    assert outcome.code == 0
    expected = {(4, str(broker)): rates(rate) for broker in range(3) if rate is not None}
    if dirs_rate is not None:
        expected[4, "1"] = {**expected.get((4, "1"), {}), LOG_DIRS: dirs_rate}
    assert configs(cluster) == expected | ({(2, "foo"): LISTS} if listed else {})
    assert (f"inter-broker throttle limit was set to {rate} B/s" in outcome.out) == (rate is not None)
    assert (f"replica-alter-dir throttle limit was set to {dirs_rate} B/s" in outcome.out) == (dirs_rate is not None)
    assert ("Warning: You must run --verify" in outcome.out) == bool(expected)


@pytest.mark.parametrize("end", [["--verify"], ["--cancel"]], ids=["verify", "cancel"])
def test_what_is_set_for_a_reassignment_is_removed_behind_it_and_nothing_else(
    cluster: Any, tool: Any, file: Any, end: list[str]
) -> None:
    cluster.topic("foo", (0, 1))
    cluster.topic("bar", (0,))
    cluster.configs[2, "foo"] = {"retention.ms": "5"}
    cluster.configs[2, "bar"] = {LEADERS: "*", FOLLOWERS: "*"}
    cluster.configs[4, "1"] = {"log.cleaner.threads": "2"}
    cluster.configs[4, ""] = rates("9")
    before = configs(cluster)
    plan = file(row(FOO_0, 1, 2, dirs=["/ssd", "any"]))
    tool(reassign, cluster, ["--execute", "--throttle", "5", "--replica-alter-log-dirs-throttle", "6", *plan])
    during = configs(cluster)
    assert during[2, "foo"] == {"retention.ms": "5", **LISTS}
    assert during[4, "1"] == {"log.cleaner.threads": "2", **rates("5"), LOG_DIRS: "6"}
    if end == ["--verify"]:
        cluster.finish()
        cluster.futures.clear()
    assert tool(reassign, cluster, [*end, *plan]).code == 0
    assert configs(cluster) == before


@pytest.mark.parametrize(
    ("version", "bar"),
    [("3.9", {LEADERS: "0:3", FOLLOWERS: "0:4"}), ("2.6", {LEADERS: "0:3,0:4", FOLLOWERS: ""})],
)
def test_what_runs_already_is_throttled_with_what_is_added(
    five: Any, tool: Any, file: Any, version: str, bar: dict[str, str]
) -> None:
    plan = file(row(FOO_0, 1, 2))
    words = ["--compat", version, "--execute", "--additional", "--throttle", "5", *plan]
    assert tool(reassign, five, words).code == 0
    assert configs(five) == {(4, str(b)): rates("5") for b in range(5)} | {(2, "foo"): LISTS, (2, "bar"): bar}
    assert five.running.keys() == {FOO_0, BAR_0}


def test_what_runs_already_counts_in_a_dry_run(five: Any, tool: Any, file: Any) -> None:
    """bar-0 is turned to another broker: what leaves is both what it was on and what it was going to."""
    words = ["--execute", "--additional", "--dry-run", "--json", *file(row(BAR_0, 0))]
    [move] = json.loads(tool(reassign, five, words).out)["dry_run"]["partitions"]
    shown = [move[f"{kind}_replicas"] if kind else move["replicas_meanwhile"] for kind in ("", "adding", "removing")]
    assert not CHANGING & {key for _, key, _ in five.seen}
    tool(reassign, five, [word for word in words if word != "--dry-run"])
    moved = five.running[BAR_0]
    assert shown == [list(ids) for ids in (moved.replicas, moved.adding_replicas, moved.removing_replicas)]
    assert (set(moved.adding_replicas), set(moved.removing_replicas)) == ({0}, {3})


def test_progress_counts_the_brokers_that_get_a_replica_when_another_way_is_replaced(
    five: Any, tool: Any, file: Any
) -> None:
    five.sizes = {PartitionReplica(BAR_0, BrokerId(b)): 1000 for b in (3, 4)}

    def end_once_begun(broker: int, body: Any) -> None:
        if five.requests(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
            five.finish()

    five.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = end_once_begun
    outcome = tool(reassign, five, ["--execute", "--additional", "--progress", *file(row(BAR_0, 3, 4, 0))])
    assert "2.0 kB of 2.0 kB" in outcome.out, "those of brokers 4 and 0"


def refusing(api: ApiKey) -> Any:
    """Answers that refuse all that a request asks for."""
    code, text = ErrorCode.POLICY_VIOLATION, "No."
    no = {"error_code": code, "error_message": text}
    return {
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda broker, body: {
            "responses": [{"resource_type": r.resource_type, "resource_name": r.resource_name, **no}
                          for r in body.resources]
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda broker, body: {
            "responses": [
                {"name": t.name, "partitions": [{"partition_index": p.partition_index, **no} for p in t.partitions]}
                for t in body.topics
            ]
        },
        ApiKey.ALTER_REPLICA_LOG_DIRS: lambda broker, body: {
            "results": [
                {"topic_name": t.name, "partitions": [{"partition_index": p, "error_code": code} for p in t.partitions]}
                for d in body.dirs
                for t in d.topics
            ]
        },
    }[api]  # fmt: skip


@pytest.mark.parametrize("action", ["--execute", "--cancel"])
@pytest.mark.parametrize("refused", sorted(CHANGING))
def test_what_is_refused_ends_it_and_is_no_success(
    cluster: Any, tool: Any, file: Any, refused: ApiKey, action: str
) -> None:
    """Throttles, reassignments, log dirs when it begins; the other way round when it is taken back."""
    order = [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ALTER_REPLICA_LOG_DIRS]
    if action == "--cancel":
        order = [*order[1:], order[0]]
    cluster.topic("foo", (0, 1))
    plan = file(row(FOO_0, 1, 2, dirs=["/ssd", "any"]))
    if action == "--cancel":
        tool(reassign, cluster, ["--execute", "--throttle", "5", *plan])
    cluster.answers[refused] = refusing(refused)
    cluster.seen.clear()
    words = [action, *(["--throttle", "5"] if action == "--execute" else []), "--json", *plan]
    outcome = tool(reassign, cluster, words)
    [answer] = map(json.loads, outcome.out.splitlines())
    assert (outcome.code, answer.keys()) == (1, {"error", "class"})
    asked = [key for _, key, _ in cluster.seen if key in CHANGING]
    assert list(dict.fromkeys(asked)) == order[: order.index(refused) + 1]
    assert asked.count(refused) == 1


@pytest.mark.parametrize("refused", [{FOO_0}, {FOO_1}, {FOO_0, FOO_1}], ids=["first", "last", "all"])
def test_whichever_partition_is_refused_it_is_named_and_no_log_dir_is_asked_for(
    cluster: Any, tool: Any, file: Any, refused: set[TopicPartition]
) -> None:
    cluster.topic("foo", (0, 1), (0, 1))
    no = {"error_code": ErrorCode.POLICY_VIOLATION, "error_message": "No."}
    cluster.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, body: {
        "responses": [
            {"name": "foo", "partitions": [{"partition_index": p.partition, **(no if p in refused else {})}]}
            for p in (FOO_0, FOO_1)
        ]
    }
    plan = file(row(FOO_0, 1, 2, dirs=["/ssd", "any"]), row(FOO_1, 1, 2))
    outcome = tool(reassign, cluster, ["--execute", *plan])
    lines = outcome.out.partition("Error reassigning partition(s):\n")[2].splitlines()
    assert (outcome.code, lines) == (1, [f"{partition}: No." for partition in sorted(refused)])
    assert not cluster.requests(ApiKey.ALTER_REPLICA_LOG_DIRS)


@pytest.mark.parametrize("removing", [[], [1]])
@pytest.mark.parametrize("adding", [[], [2]])
def test_only_what_gains_or_loses_replicas_is_cancelled(
    five: Any, tool: Any, file: Any, adding: list[int], removing: list[int]
) -> None:
    """A controller may list a partition that does neither: there is nothing to take back."""
    listed = {"partition_index": 0, "replicas": [0, 1], "adding_replicas": adding, "removing_replicas": removing}
    five.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda broker, body: {
        "topics": [{"name": "foo", "partitions": [listed]}]
    }
    five.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, body: {"responses": []}
    outcome = tool(reassign, five, ["--cancel", *file(row(FOO_0, 1, 2))])
    asked = five.requests(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    active = outcome.out.startswith("Successfully cancelled partition reassignment for: foo-0\n")
    none_active = outcome.out.startswith("None of the specified partition reassignments are active.\n")
    assert (active, len(asked), none_active) == ((True, 1, False) if adding or removing else (False, 0, True))


@pytest.mark.parametrize("way", ["/ssd", "/elsewhere"])
def test_only_replicas_that_move_are_sent_back_to_their_directory(five: Any, tool: Any, file: Any, way: str) -> None:
    """Of four that the file names: one moves (there, or elsewhere), one is where it was, one is on no broker's disk,
    one is not named."""
    plan = file(row(FOO_0, 0, 1, dirs=["/ssd", "/ssd"]), row(FOO_1, 2, 1, dirs=["/ssd", "any"]))
    moving, other = PartitionReplica(FOO_0, BrokerId(1)), PartitionReplica(FOO_1, BrokerId(1))
    five.futures = {moving: way, other: "/ssd"}
    answer = json.loads(tool(reassign, five, ["--cancel", "--json", *plan]).out)
    assert answer == {"cancelled": [], "cancelled_moves": ["foo-0-1"]}
    assert five.futures == {other: "/ssd"}
    [asked] = five.requests(ApiKey.ALTER_REPLICA_LOG_DIRS)
    assert [(d.path, [(t.name, list(t.partitions)) for t in d.topics]) for d in asked.dirs] == [
        ("/data", [("foo", [0])])
    ]


def test_a_copy_whose_replica_is_nowhere_is_left(five: Any, tool: Any, file: Any) -> None:
    """Its directory has failed, say: there is none to send it back to."""
    copy = {"partition_index": 0, "partition_size": 1, "offset_lag": 5, "is_future_key": True}
    five.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {
        "results": [{"log_dir": "/ssd", "topics": [{"name": "foo", "partitions": [copy]}]}]
    }
    outcome = tool(reassign, five, ["--cancel", "--json", *file(row(FOO_0, 0, 1, dirs=["/ssd", "any"]))])
    assert json.loads(outcome.out) == {"cancelled": [], "cancelled_moves": []}
    assert not five.requests(ApiKey.ALTER_REPLICA_LOG_DIRS)


@pytest.mark.parametrize("version", ["2.6", "3.9"])
def test_moves_that_no_broker_has_taken_yet_are_not_said_to_have_started(
    cluster: Any, tool: Any, file: Any, version: str
) -> None:
    cluster.topic("foo", (0, 1))
    tries = iter([1, 1])

    def later(broker: int, body: Any) -> Any:
        entry = {"partition_index": 0, "error_code": ErrorCode.REPLICA_NOT_AVAILABLE}
        return {"results": [{"topic_name": "foo", "partitions": [entry]}]} if next(tries, None) else None

    cluster.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = later
    out = tool(reassign, cluster, ["--compat", version, "--execute", *file(row(FOO_0, 0, 1, dirs=["any", "/b"]))]).out
    [line] = [line for line in out.splitlines() if "log director" in line]
    assert line == {
        "2.6": "Successfully started log directory move for: foo-0-1",
        "3.9": "Successfully started moving log directory to /b for replica foo-0 with broker 1 ",
    }.get(version, "")


def test_what_machines_read_of_each_action(five: Any, tool: Any, file: Any, tmp_path: Path) -> None:
    """One value each, with what was done and what leads back."""

    def ask(*words: str) -> Any:
        [line] = tool(reassign, five, [*words, "--json"]).out.splitlines()
        return json.loads(line)

    plan = file(row(FOO_0, 1, 2), row(FOO_1, 0, 2))
    back = {"version": 1, "partitions": [row(p, 0, 1, dirs=["any", "any"]) for p in (FOO_0, FOO_1)]}
    started = ask("--execute", "--additional", *plan)
    assert started == {"started": ["foo-0", "foo-1"], "rollback": json.loads(json.dumps(back))}
    seen = ask("--verify", *plan)
    assert [(p["topic"], p["partition"], p["state"]) for p in seen["partitions"]] == [
        ("foo", 0, "in_progress"), ("foo", 1, "in_progress")
    ]  # fmt: skip
    assert (seen["running"], seen["throttles_cleared"]) == (["bar-0", "foo-0", "foo-1"], False)
    assert [r["topic"] for r in ask("--list")["reassignments"]] == ["bar", "foo", "foo"]
    assert ask("--cancel", *plan) == {"cancelled": ["foo-0", "foo-1"], "cancelled_moves": []}
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics":[{"topic":"foo"}]}')
    made = ask("--generate", "--broker-list", "0,1,2", "--topics-to-move-json-file", str(topics))
    assert [p["partition"] for p in made["proposed"]["partitions"]] == [0, 1]
    assert {frozenset(p["replicas"]) for p in made["current"]["partitions"]} == {frozenset({0, 1})}


@pytest.mark.parametrize(("version", "shown"), [("2.0", [0, 1]), ("2.6", [0])])
def test_what_is_printed_to_go_back_by(file: Any, version: str, shown: list[int]) -> None:
    """2.0 prints all partitions of the topics, 2.6 those of the file; machines read the same."""
    for options in ([], ["--json"]):
        stage = Stage()
        stage.topic("foo", (0, 1), (1, 0))
        _, out, _ = stage.run("reassign", "--execute", "--zk", *options, *file(row(FOO_0, 1, 2)), compat=version)
        [printed] = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert [p["partition"] for p in printed.get("rollback", printed)["partitions"]] == shown


@pytest.mark.parametrize(("options", "rate"), [([], "9"), (["--throttle", "-1"], "9"), (["--throttle", "0"], "0")])
def test_a_second_execution_of_2_0_changes_the_rate_only_where_one_is_given(
    file: Any, options: list[str], rate: str
) -> None:
    stage = Stage()
    stage.topic("foo", (0, 1))
    plan = file(row(FOO_0, 1, 2))
    stage.run("reassign", "--execute", "--zk", "--throttle", "9", *plan)
    asked = stage.after["/admin/reassign_partitions"]
    code, out, _ = stage.run("reassign", "--execute", "--zk", "--json", *options, *plan)
    assert (code, json.loads(out)) == (0, {"started": []})
    assert [stage.json(f"/config/brokers/{b}")["config"] for b in range(3)] == [rates(rate)] * 3
    assert stage.after["/admin/reassign_partitions"] == asked

"""kafka-reassign-partitions against a scripted cluster: the transcripts of admin.md §3.12 [3.9] and the refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.cluster.log_dirs import ReplicaPlace
from controller.admin.commands import reassign_partitions as reassign
from controller.admin.reassignment.command import format_running
from controller.admin.reassignment.verify import replica_line
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

FOO_0 = TopicPartition("foo", 0)
PLAN = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
EXECUTED = """Current partition replica assignment

{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["any","any"]}]}

Save this to use as the --reassignment-json-file option during rollback
Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.
The inter-broker throttle limit was set to 1000 B/s
Successfully started partition reassignment for foo-0
"""
CLEARED = """Clearing broker-level throttles on brokers 0,1,2
Clearing topic-level throttles on topic foo
"""
IN_PROGRESS = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment.\n"
)


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """Writes a file and gives the option that names it."""

    def write(text: str = PLAN, option: str = "--reassignment-json-file") -> list[str]:
        path = tmp_path / f"{option[2:]}.json"
        path.write_text(text)
        return [option, str(path)]

    return write


@pytest.fixture
def foo(cluster: Any) -> Any:
    """foo-0 on [0, 1], as in the transcripts."""
    cluster.topic("foo", (0, 1))
    return cluster


@pytest.mark.feature("002-07", "002-14", "002-30")
def test_the_worked_transcript(foo: Any, tool: Any, plan: Any) -> None:
    outcome = tool(reassign, foo, ["--execute", "--throttle", "1000", *plan()])
    assert (outcome.code, outcome.out, outcome.err) == (0, EXECUTED, "")
    rates = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
    assert [foo.configs[4, str(broker)] for broker in range(3)] == [rates] * 3
    assert foo.configs[2, "foo"] == {
        "leader.replication.throttled.replicas": "0:0,0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    again = tool(reassign, foo, ["--execute", *plan()])
    assert (again.code, again.out) == (1, IN_PROGRESS)
    assert tool(reassign, foo, ["--verify", *plan()]).out == (
        "Status of partition reassignment:\nReassignment of partition foo-0 is still in progress.\n\n"
    )
    assert foo.configs[4, "0"] == rates
    assert tool(reassign, foo, ["--list"]).out == (
        "Current partition reassignments:\nfoo-0: replicas: 1,2,0. adding: 2. removing: 0.\n"
    )
    foo.finish()
    done = "Status of partition reassignment:\nReassignment of partition foo-0 is completed.\n\n" + CLEARED
    assert tool(reassign, foo, ["--verify", *plan()]).out == done
    assert all(not configs for configs in foo.configs.values())
    assert tool(reassign, foo, ["--verify", *plan()]).out == done
    assert tool(reassign, foo, ["--list"]).out == "No partition reassignments found.\n"


def test_throttles_are_set_before_anything_moves(foo: Any, tool: Any, plan: Any) -> None:
    tool(reassign, foo, ["--execute", "--throttle", "1000", *plan()])
    asked = [api for _, api, _ in foo.seen]
    started = asked.index(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    altered = [at for at, api in enumerate(asked) if api is ApiKey.INCREMENTAL_ALTER_CONFIGS]
    assert altered and max(altered) < started


def test_verify_keeps_throttles_where_asked_to_and_while_a_log_dir_fills(foo: Any, tool: Any, plan: Any) -> None:
    text = '{"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["any","/ssd"]}]}'
    tool(reassign, foo, ["--execute", "--throttle", "1000", *plan(text)])
    foo.finish()
    set_before = {entity: dict(configs) for entity, configs in foo.configs.items()}
    assert any(set_before.values())
    replica = PartitionReplica(FOO_0, BrokerId(1))
    foo.futures[replica] = "/ssd"
    assert CLEARED not in tool(reassign, foo, ["--verify", *plan(text)]).out
    assert foo.configs == set_before
    foo.futures.clear()
    foo.log_dir = "/ssd"
    assert CLEARED not in tool(reassign, foo, ["--verify", "--preserve-throttles", *plan(text)]).out
    assert foo.configs == set_before
    assert CLEARED in tool(reassign, foo, ["--verify", *plan(text)]).out
    assert not any(foo.configs.values())


def test_cancel_goes_back_in_another_order(foo: Any, tool: Any, plan: Any) -> None:
    tool(reassign, foo, ["--execute", "--throttle", "1000", *plan()])
    outcome = tool(reassign, foo, ["--cancel", *plan()])
    assert (outcome.code, outcome.out) == (
        0,
        "Successfully cancelled partition reassignment for: foo-0\n"
        "None of the specified partition moves are active." + CLEARED,
    )
    assert foo.topics["foo"][0].replicas == (1, 0)
    assert tool(reassign, foo, ["--cancel", "--preserve-throttles", *plan()]).out == (
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active."
    )


def test_cancel_also_ends_what_only_adds_replicas(foo: Any, tool: Any, plan: Any) -> None:
    grow = plan(PLAN.replace("[1,2]", "[0,1,2]"))
    tool(reassign, foo, ["--execute", *grow])
    assert "Successfully cancelled partition reassignment for: foo-0\n" in tool(reassign, foo, ["--cancel", *grow]).out
    assert foo.topics["foo"][0].replicas == (0, 1)


def test_cancel_ends_only_what_is_named(foo: Any, tool: Any, plan: Any) -> None:
    foo.topic("bar", (0,))
    other = plan('{"partitions":[{"topic":"bar","partition":0,"replicas":[1]}]}')
    tool(reassign, foo, ["--execute", *other])
    tool(reassign, foo, ["--execute", "--additional", *plan()])
    assert "for: foo-0\n" in tool(reassign, foo, ["--cancel", *plan()]).out
    assert tool(reassign, foo, ["--list"]).out == (
        "Current partition reassignments:\nbar-0: replicas: 1,0. adding: 1. removing: 0.\n"
    )


@pytest.mark.known_failure("A1")
def test_additional_reassignments_and_plurals(foo: Any, tool: Any, plan: Any) -> None:
    foo.topic("bar", (0,))
    tool(reassign, foo, ["--execute", *plan()])
    rows = '{"topic":"foo","partition":0,"replicas":[2]},{"topic":"bar","partition":0,"replicas":[1]}'
    both = plan(f'{{"partitions":[{rows}]}}')
    outcome = tool(reassign, foo, ["--execute", "--additional", "--throttle", "0", *both])
    assert outcome.out.endswith("Successfully started partition reassignments for bar-0,foo-0\n")
    assert foo.configs[2, "foo"]["leader.replication.throttled.replicas"] == "0:0,0:1"
    outcome = tool(reassign, foo, ["--cancel", *both])
    assert outcome.out.startswith("Successfully cancelled partition reassignments for: bar-0,foo-0\n")
    assert outcome.out.endswith("Clearing topic-level throttles on topics bar,foo\n")


UNKNOWN = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
REFUSED = [
    ("broker", PLAN.replace("[1,2]", "[1,9]"), "Unknown broker id 9"),
    ("topic", PLAN.replace("foo", "quux"), f"{UNKNOWN}: Topic quux not found."),
    ("partition", PLAN.replace('partition":0', 'partition":10'), f"{UNKNOWN}: Unable to find partition: foo-10"),
    ("broker before topic", PLAN.replace("foo", "quux").replace("[1,2]", "[9]"), "Unknown broker id 9"),
    ("empty list", "{}", "Partition reassignment list cannot be empty"),
    ("empty file", "", "The input string shouldn't be empty"),
]


@pytest.mark.feature("002-06")
@pytest.mark.parametrize(("text", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_execute_refuses_and_changes_nothing(foo: Any, tool: Any, plan: Any, text: str, message: str) -> None:
    outcome = tool(reassign, foo, ["--execute", "--throttle", "1", *plan(text)])
    assert (outcome.code, outcome.out.splitlines()[0]) == (1, f"Error: {message}")
    assert not foo.running
    assert not any(foo.configs.values())


def test_the_controllers_refusals_are_terse(foo: Any, tool: Any, plan: Any) -> None:
    entry = {"partition_index": 0, "error_code": ErrorCode.INVALID_REPLICA_ASSIGNMENT, "error_message": "No."}
    foo.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda broker, body: {
        "responses": [{"name": "foo", "partitions": [entry]}]
    }
    outcome = tool(reassign, foo, ["--execute", *plan()])
    assert outcome.code == 1
    assert outcome.out.endswith("during rollback\nError reassigning partition(s):\nfoo-0: No.\n")


@pytest.mark.feature("002-30")
def test_verify_names_what_is_not_as_wanted(foo: Any, tool: Any, plan: Any) -> None:
    text = (
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[1,0]},{"topic":"nix","partition":0,"replicas":[1]}]}'
    )
    outcome = tool(reassign, foo, ["--verify", *plan(text)])
    assert outcome.out.startswith(
        "Status of partition reassignment:\n"
        "There is no active reassignment of partition foo-0, but replica set is 0,1 rather than 1,0.\n"
        "There is no active reassignment of partition nix-0, but replica set is  rather than 1.\n\n"
        "Clearing broker-level throttles on brokers 0,1,2\nClearing topic-level throttles on topics foo,nix\n"
        f"Error: {UNKNOWN}: The topic 'nix' does not exist.\n"
    )
    assert outcome.code == 1


@pytest.mark.feature("002-02")
def test_generate_is_repeatable_and_changes_nothing(foo: Any, tool: Any, plan: Any) -> None:
    topics = plan('{"topics":[{"topic":"foo"}]}', "--topics-to-move-json-file")
    outcome = tool(reassign, foo, ["--generate", "--broker-list", "2,1,77", *topics])
    lines = outcome.out.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert json.loads(lines[1])["partitions"][0]["replicas"] == [0, 1]
    assert lines[2:4] == ["", "Proposed partition reassignment configuration"]
    assert sorted(json.loads(lines[4])["partitions"][0]["replicas"]) == [1, 2]
    assert outcome.out == tool(reassign, foo, ["--generate", "--broker-list", "2,1,77", *topics]).out
    assert foo.topics["foo"][0].replicas == (0, 1)


@pytest.mark.feature("000-10", "002-03")
def test_generate_refuses_what_cannot_be_placed(foo: Any, tool: Any, plan: Any) -> None:
    topics = plan('{"topics":[{"topic":"foo"}]}', "--topics-to-move-json-file")
    outcome = tool(reassign, foo, ["--generate", "--broker-list", "0,7", *topics])
    assert outcome.out.startswith("Error: Replication factor: 2 larger than available brokers: 1.\n")
    foo.brokers = {0: "a", 1: None, 2: "b"}
    outcome = tool(reassign, foo, ["--generate", "--broker-list", "0,1,2", *topics])
    assert outcome.out.startswith(
        "Error: Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
        "assignment without rack information.\n"
    )
    assert tool(reassign, foo, ["--generate", "--broker-list", "0,1,2", "--disable-rack-aware", *topics]).code == 0


USAGE = [
    ("no action", [], "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
    ("file missing", ["--verify"], 'Missing required argument "[reassignment-json-file]"'),
    ("foreign option", ["--list", "--throttle", "3"], 'Option "[throttle]" can\'t be used with action "[list]"'),
    (
        "no progress of a cancellation",
        ["--cancel", "--reassignment-json-file", "x", "--progress"],
        'Option "[progress]" can\'t be used with action "[cancel]"',
    ),
]


@pytest.mark.parametrize(("argv", "message"), [row[1:] for row in USAGE], ids=[row[0] for row in USAGE])
def test_usage_exits(foo: Any, tool: Any, argv: list[str], message: str) -> None:
    outcome = tool(reassign, foo, argv)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(message + "\nOption ")
    assert tool(reassign, foo, ["--list"], bootstrap=None).err.startswith("Please specify --bootstrap-server\nOption")


@pytest.mark.feature("002-17", "002-33")
def test_moves_between_log_dirs(foo: Any, tool: Any, plan: Any) -> None:
    text = '{"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["any","/ssd"]}]}'
    tries = iter([{"partition_index": 0, "error_code": ErrorCode.REPLICA_NOT_AVAILABLE}] * 2)

    def later(broker: int, body: Any) -> Any:
        entry = next(tries, None)
        return entry and {"results": [{"topic_name": "foo", "partitions": [entry]}]}

    foo.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = later
    outcome = tool(reassign, foo, ["--execute", "--replica-alter-log-dirs-throttle", "7", *plan(text)])
    assert outcome.out.endswith(
        "The replica-alter-dir throttle limit was set to 7 B/s\n"
        "Successfully started partition reassignment for foo-0\n"
        "Successfully started moving log directory to /ssd for replica foo-0 with broker 1 \n"
    )
    assert foo.configs[4, "1"] == {"replica.alter.log.dirs.io.max.bytes.per.second": "7"}
    assert not foo.configs[2, "foo"]
    assert len(foo.requests(ApiKey.ALTER_REPLICA_LOG_DIRS)) == 3
    assert (
        "Reassignment of replica foo-0-1 is still in progress.\n" in tool(reassign, foo, ["--verify", *plan(text)]).out
    )
    outcome = tool(reassign, foo, ["--cancel", *plan(text)])
    assert "moving log directory to /data for replica foo-0 with broker 1 \n" in outcome.out
    assert not foo.futures and not foo.configs[4, "1"]
    outcome = tool(reassign, foo, ["--verify", *plan(text)])
    assert "Partition foo-0 on broker 1 is not being moved from log dir /data to /ssd.\nClearing" in outcome.out


#: where a replica is, and where a copy of it is made, that is to be in /b -> what is said of it, and whether it is over
PLACES = [
    (None, None, "is not found in any live log dir on broker 1", False),
    ("/a", None, "is not being moved from log dir /a to /b.", True),
    ("/b", None, "completed successfully.", True),
    ("/a", "/b", "is still in progress.", False),
    (None, "/b", "is not found in any live log dir on broker 1", False),
    ("/a", "/c", "is being moved to log dir /c instead of /b.", False),
    ("/b", "/c", "is being moved to log dir /c instead of /b.", False),
    (None, "/c", "is not found in any live log dir on broker 1", False),
]


@pytest.mark.parametrize(("current", "future", "said", "is_over"), PLACES)
def test_a_replica_is_where_it_goes_when_no_copy_is_made_any_more(
    current: str | None, future: str | None, said: str, is_over: bool
) -> None:
    replica = PartitionReplica(TopicPartition("t", 0), BrokerId(1))
    line, over = replica_line(replica, ReplicaPlace(current=current, future=future), "/b")
    assert (said in line, over) == (True, is_over)


@pytest.mark.feature("002-17")
def test_log_dir_moves_that_never_start_time_out(foo: Any, tool: Any, plan: Any) -> None:
    text = '{"partitions":[{"topic":"foo","partition":0,"replicas":[0,1],"log_dirs":["/x","/y"]}]}'
    entry = {"partition_index": 0, "error_code": ErrorCode.REPLICA_NOT_AVAILABLE}
    foo.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = lambda b, body: {
        "results": [{"topic_name": "foo", "partitions": [entry]}]
    }
    outcome = tool(reassign, foo, ["--execute", "--timeout", "2000", *plan(text)])
    assert outcome.out.endswith("Timed out before log directory moves could be started for: foo-0-0,foo-0-1\n")
    assert outcome.code == 1
    assert 2 < outcome.took_s < 3


def test_list_leaves_out_empty_sets() -> None:
    running = {
        TopicPartition("foo", 10): ReplicaAssignment(replicas=(0, 1), adding_replicas=(1,)),
        TopicPartition("foo", 2): ReplicaAssignment(replicas=(0, 1), removing_replicas=(0,)),
    }
    assert format_running(running).splitlines()[1:] == [
        "foo-2: replicas: 0,1. removing: 0.",
        "foo-10: replicas: 0,1. adding: 1.",
    ]


def test_progress_follows_the_bytes_until_it_is_done(foo: Any, tool: Any, plan: Any) -> None:
    foo.sizes = {PartitionReplica(FOO_0, BrokerId(0)): 1000, PartitionReplica(FOO_0, BrokerId(2)): 0}
    looks = iter([250, 500, 750])

    def copy(broker: int, body: Any) -> None:
        if foo.running and broker == 2:
            size = next(looks, None)
            if size is None:
                foo.finish()
            else:
                foo.sizes[PartitionReplica(FOO_0, BrokerId(2))] = size

    foo.answers[ApiKey.DESCRIBE_LOG_DIRS] = copy
    outcome = tool(reassign, foo, ["--execute", "--progress", *plan()])
    shown = [line for line in outcome.out.splitlines() if line.startswith("Reassigning")]
    assert [line.split()[1] for line in shown] == ["25%", "50%", "75%", "100%"]
    assert "1.0 kB of 1.0 kB" in outcome.out
    assert "1 of 1 partitions done" in outcome.out
    assert outcome.out.endswith("Reassignment done. Run --verify to remove throttles.\n")
    assert outcome.code == 0

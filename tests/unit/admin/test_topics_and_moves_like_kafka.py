"""What kafka-topics and kafka-reassign-partitions say in corners: orders of complaints, races, part failures."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.admin import log_dirs
from controller.admin.cluster.queries import PartitionInfo, encode_id
from controller.admin.commands import leader_election as elect
from controller.admin.commands import reassign_partitions as reassign
from controller.admin.commands import topics
from controller.admin.toolkit.texts import V39
from controller.admin.topics.describe import DescribedPartition
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.worlds import scripted_brokers


@pytest.fixture
def foo(cluster: Any) -> Any:
    cluster.topic("foo", (0, 1), (1, 2), (2, 0))
    return cluster


def _file(folder: Path, *rows: Mapping[str, Any]) -> list[str]:
    file = folder / "plan.json"
    file.write_text(json.dumps({"partitions": rows}))
    return ["--reassignment-json-file", str(file)]


def _row(partition: int, replicas: Sequence[int], *dirs: str) -> dict[str, Any]:
    more = {"log_dirs": list(dirs)} if dirs else {}
    return {"topic": "foo", "partition": partition, "replicas": list(replicas), **more}


# -- kafka-topics


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--alter", "--partitions", "9"]])
def test_empty_text_names_no_topic(foo: Any, tool: Any, action: list[str]) -> None:
    outcome = tool(topics, foo, [*action, "--topic", ""])
    assert (outcome.code, outcome.out) == (0, "")
    assert "foo" in foo.topics
    older = tool(topics, foo, ["--compat", "2.6", *action, "--topic", ""])
    assert older.code == 1
    assert older.out.endswith("Topic '' does not exist as expected\n")


def test_a_wrong_assignment_comes_before_a_missing_topic(foo: Any, tool: Any) -> None:
    words = ["--alter", "--topic", "nope", "--partitions", "3", "--replica-assignment", "a", "--if-exists"]
    assert 'For input string: "a"' in tool(topics, foo, words).out


def _with_ids(cluster: Any) -> None:
    """Answers of a later broker: each topic has an id, `__consumer_offsets` is internal."""

    def topic(name: str, number: int) -> dict[str, Any]:
        partition = {"partition_index": 0, "leader_id": 0, "replica_nodes": [0], "isr_nodes": [0]}
        own = {"topic_id": uuid.UUID(int=number), "is_internal": name.startswith("__")}
        return {"name": name, "partitions": [partition], **own}

    def metadata(broker: int, body: Any) -> dict[str, Any]:
        names = ["__consumer_offsets", "foo"]
        brokers = [{"node_id": b, "host": f"b{b}", "port": 9092} for b in range(3)]
        asked = [n for n in names if body.topics is None or n in [t.name for t in body.topics]]
        return {"brokers": brokers, "controller_id": 0, "topics": [topic(n, names.index(n) + 1) for n in asked]}

    cluster.answers[ApiKey.METADATA] = metadata


BOTH = "Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID\n"


def test_ids_of_topics(foo: Any, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scripted_brokers.HIGHEST, ApiKey.METADATA, 12)
    foo.topic("__consumer_offsets", (0,))
    _with_ids(foo)
    internal, own = (encode_id(uuid.UUID(int=n)) for n in (1, 2))
    by_id = ["--describe", "--topic-id"]
    assert tool(topics, foo, [*by_id, f"{own}=="]).out.startswith("Topic: foo\t")
    assert tool(topics, foo, [*by_id, internal]).out.startswith("Topic: __consumer_offsets\t")
    assert "does not exist as expected" in tool(topics, foo, [*by_id, internal, "--exclude-internal"]).out
    assert tool(topics, foo, [*by_id, own, "--topic", "foo"]).out.startswith("Topic: foo\t")
    for id_of in (own, "AAAAAAAAAAAAAAAAAAAAAA"):
        assert tool(topics, foo, [*by_id, id_of, "--topic", "foo", "--if-exists"]).out.startswith(f"{BOTH}Topic: foo\t")


#: What brokers told of the replicas, what the controller told of the move a moment later or before, the factor.
RACES = [
    ((1, 2, 3), ((1, 2, 3), (3,), ()), 2),
    ((1, 2), ((1, 2, 3), (3,), ()), 2),
    ((1,), ((1, 2), (2,), ()), 1),
    ((1, 2), ((3, 4, 1, 2), (3, 4), (1, 2)), 2),
    ((3, 4), ((3, 4, 1, 2), (3, 4), (1, 2)), 2),
]


@pytest.mark.parametrize(("told", "move", "factor"), RACES)
def test_a_move_that_began_or_ended_between_two_answers(
    told: tuple[int, ...], move: tuple[tuple[int, ...], ...], factor: int
) -> None:
    replicas, adding, removing = (tuple(map(BrokerId, ids)) for ids in move)
    ids = tuple(map(BrokerId, told))
    described = DescribedPartition(
        topic="t",
        info=PartitionInfo(partition=0, leader=ids[0], replicas=ids, isr=ids),
        reassignment=ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing),
        min_insync_replicas=1,
        leader_is_live=True,
    )
    assert described.replication_factor == factor


# -- kafka-reassign-partitions


def test_brokers_come_before_topics(foo: Any, tool: Any, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text('{"topics":3}')
    outcome = tool(reassign, foo, ["--generate", "--broker-list", "a", "--topics-to-move-json-file", str(file)])
    assert outcome.out.startswith('Error: For input string: "a"\n')


@pytest.mark.parametrize(("partition", "code"), [(2, 0), (3, 1), (4, 0)])
def test_verify_stumbles_over_the_number_behind_the_last(
    foo: Any, tool: Any, tmp_path: Path, partition: int, code: int
) -> None:
    outcome = tool(reassign, foo, ["--verify", *_file(tmp_path, _row(partition, (1, 2)))])
    assert outcome.code == code
    assert ("Error: Index 3 out of bounds for length 3\n" in outcome.out) == bool(code)


def test_one_of_two_is_not_cancelled(foo: Any, tool: Any, tmp_path: Path) -> None:
    for number in (0, 1):
        moving = ReplicaAssignment(replicas=(BrokerId(0), BrokerId(1)), adding_replicas=(BrokerId(0),))
        foo.running[TopicPartition("foo", number)] = moving
    codes = {0: ErrorCode.NONE, 1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    rows = [{"partition_index": n, "error_code": code} for n, code in codes.items()]
    foo.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda *_: {"responses": [{"name": "foo", "partitions": rows}]}
    outcome = tool(reassign, foo, ["--cancel", *_file(tmp_path, _row(0, (0, 1)), _row(1, (1, 2)))])
    assert outcome.out.startswith("Error cancelling partition reassignment for:\nfoo-1: ")


def test_moves_between_dirs_are_told_by_broker(foo: Any, tool: Any, tmp_path: Path) -> None:
    plan = _file(tmp_path, _row(0, (0, 1), "/x", "/x"), _row(1, (1, 2), "/x", "/x"))
    lines = tool(reassign, foo, ["--execute", *plan]).out.splitlines()
    start = "Successfully started moving log directory to /x for replica foo-"
    places = [(0, 0), (0, 1), (1, 1), (1, 2)]
    assert [li for li in lines if "moving" in li] == [f"{start}{n} with broker {b} " for n, b in places]


def test_nothing_is_told_of_a_round_in_which_a_broker_refuses(foo: Any, tool: Any, tmp_path: Path) -> None:
    def alter(broker: int, body: Any) -> dict[str, Any] | None:
        code = ErrorCode.LOG_DIR_NOT_FOUND
        rows = [{"topic_name": "foo", "partitions": [{"partition_index": 0, "error_code": code}]}]
        return {"results": rows} if broker == 1 else None

    foo.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = alter
    outcome = tool(reassign, foo, ["--execute", *_file(tmp_path, _row(0, (0, 1), "/x", "/y"))])
    assert "Failed to alter dir for foo-0-1" in outcome.out
    assert "started moving" not in outcome.out


def test_a_time_out_names_what_waits_by_broker(foo: Any, tool: Any, tmp_path: Path) -> None:
    code = ErrorCode.REPLICA_NOT_AVAILABLE
    foo.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = lambda _, body: {
        "results": [
            {"topic_name": t.name, "partitions": [{"partition_index": n, "error_code": code} for n in t.partitions]}
            for d in body.dirs
            for t in d.topics
        ]
    }
    plan = _file(tmp_path, _row(0, (0, 1), "any", "/x"), _row(2, (2, 0), "any", "/x"))
    outcome = tool(reassign, foo, ["--execute", "--timeout", "0", *plan])
    assert outcome.out.endswith("log directory moves could be started for: foo-2-0,foo-0-1\n")


# -- others


def test_who_may_not_elect_is_told_on_both_streams(foo: Any, tool: Any) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    foo.answers[ApiKey.ELECT_LEADERS] = lambda *_: {"error_code": code, "replica_election_results": []}
    outcome = tool(elect, foo, ["--election-type", "preferred", "--all-topic-partitions"])
    assert outcome.out == "Not authorized to perform leader election\n"
    assert outcome.err.startswith(outcome.out)


def test_the_name_that_brokers_see_of_log_dirs() -> None:
    assert log_dirs.tool_of(V39, []).client_id == "log-dirs-tool"


def test_two_servers_are_told_where_all_failures_are(foo: Any, tool: Any) -> None:
    outcome = tool(reassign, foo, ["--list", "--bootstrap-server", "b1:9092"])
    why = "Found multiple arguments for option bootstrap-server, but you asked for only one"
    lines = f"Error: {why}\njoptsimple.MultipleArgumentsForOptionException: {why}\n"
    assert (outcome.code, outcome.out, outcome.err) == (1, lines, "")
